"""The key-value store of one bucket: a RocksDB that records the log offset it has reached.

It has two column families. The default one contains only the table's rows, as Fluss's own clients
expect in a snapshot. The other contains the log offset and the number of rows. Both are flushed
together (atomic flush), so after a crash the offset matches the rows. Only if the process dies
while it closes a store can the rows be newer. RocksDB's write-ahead log is off: rows that were not
flushed are read again from the bucket's log.

RocksDB reads keys in batches but writes them one by one. The loops here are the only ones over
single rows in a put, and they only pass bytes on.
"""

from __future__ import annotations

import resource
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    Checkpoint,
    ChecksumType,
    DbClosedError,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteBufferManager,
    WriteOptions,
)

from sluice.errors import KvStorageError, RecordTooLarge

STATE_FAMILY = "sluice"
"""The second column family."""

CONFIG_FILE = "rocksdict-config.json"
"""A file of the RocksDB library, which snapshots do not need."""

_log = structlog.get_logger("sluice.kv")

_LOG_OFFSET = b"log_offset"
_OFFSET = struct.Struct("<q")
_OFFSET_AND_COUNT = struct.Struct("<qq")
_FILES_MIN = 20  # of one RocksDB: its log, manifest, lock, and a few SST files
_FILES_MAX = 256
_MEMTABLE_FILTER = 0.02  # of its memory: 16 bits for each row of 100 bytes


@dataclass(frozen=True, slots=True)
class StoreProgress:
    """A store's content: all changes below a log offset, and the number of rows, if known."""

    log_offset: int
    row_count: int | None

    @classmethod
    def from_bytes(cls, stored: bytes | None) -> StoreProgress:
        """Decodes stored bytes; None stands for an empty store."""
        if stored is None:
            return cls(0, 0)
        if len(stored) == _OFFSET.size:
            return cls(int(_OFFSET.unpack(stored)[0]), None)
        return cls(*_OFFSET_AND_COUNT.unpack(stored))

    def to_bytes(self) -> bytes:
        if self.row_count is None:
            return _OFFSET.pack(self.log_offset)
        return _OFFSET_AND_COUNT.pack(self.log_offset, self.row_count)


class KvResources:
    """Resources that all stores share: memory and a limit of open files."""

    def __init__(self, *, block_cache_bytes: int, write_buffer_bytes: int, open_max: int) -> None:
        """:param open_max: maximum number of open stores; a low file limit lowers it."""
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
        self.open_max = max(min(open_max, files // _FILES_MIN), 1)
        self._files = min(max(files // self.open_max, _FILES_MIN), _FILES_MAX)
        self._cache = Cache(block_cache_bytes)
        self._buffers = WriteBufferManager(write_buffer_bytes, False)
        self._buffer_bytes = max(min(write_buffer_bytes // 4, 16 << 20), 64 << 10)

    def row_options(self) -> Options:
        """Options of the column family with rows, for one store only."""
        options = self.options()
        # Most keys of a put are new: so it need not search for them in what was put lately.
        options.set_memtable_whole_key_filtering(True)
        options.set_memtable_prefix_bloom_ratio(_MEMTABLE_FILTER)
        return options

    def options(self) -> Options:
        """Options of the other column family or of a read-only store, for one store only."""
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.create_missing_column_families(True)
        options.set_atomic_flush(True)
        options.set_max_open_files(self._files)
        options.set_write_buffer_manager(self._buffers)
        options.set_write_buffer_size(self._buffer_bytes)
        options.set_max_background_jobs(2)
        options.set_compression_type(DBCompressionType.lz4())
        options.set_keep_log_file_num(1)
        options.set_max_log_file_size(1 << 20)
        options.set_manifest_preallocation_size(64 << 10)
        options.set_stats_dump_period_sec(0)
        options.set_stats_persist_period_sec(0)
        blocks = BlockBasedOptions()
        # Fluss's clients open snapshots with RocksDB 6.20, which reads nothing later.
        blocks.set_format_version(5)
        blocks.set_checksum_type(ChecksumType.crc32c())
        blocks.set_block_cache(self._cache)
        blocks.set_cache_index_and_filter_blocks(True)
        blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
        blocks.set_bloom_filter(10, False)
        options.set_block_based_table_factory(blocks)
        return options


@dataclass(frozen=True, slots=True)
class SnapshotIterator:
    """An iterator over the rows of a store at one point in time. It keeps the store open."""

    rows: Any
    """RocksDB's iterator."""
    snapshot: Any
    """RocksDB's snapshot, held because RocksDB counts open snapshots."""


class KvStore:
    """An open store. Reads need no lock; only one thread may write. Close it once.

    Every method raises KvStorageError if RocksDB fails.
    """

    def __init__(self, folder: Path, resources: KvResources) -> None:
        """Opens the store, and creates it if missing.

        :raises KvStoreCorrupt: the files are not a readable store.
        """
        self._name = str(folder)
        self._write_options = WriteOptions()
        # properties, though the library's stub has the first as a method
        self._write_options.disable_wal = True  # type: ignore[assignment, method-assign]
        # puts are ordered by key, so each search starts at the previous key
        self._write_options.memtable_insert_hint_per_batch = True
        families = {STATE_FAMILY: resources.options()}
        try:
            self._db: Any = Rdict(str(folder), resources.row_options(), column_families=families)
        except Exception as error:
            raise failure(f"{folder} cannot be opened", error) from error
        try:
            self._state: Any = self._db.get_column_family_handle(STATE_FAMILY)
            stored = _stored_offset(self._db)
        except Exception as error:
            self.close()
            raise failure(f"{folder} cannot be read", error) from error
        self._reached = StoreProgress.from_bytes(stored)

    @property
    def log_offset(self) -> int:
        """The store contains all changes of the log below this offset."""
        return self._reached.log_offset

    @property
    def row_count(self) -> int | None:
        """The number of rows, or None if a write did not state how many it added."""
        return self._reached.row_count

    def get(self, keys: list[bytes]) -> list[bytes | None]:
        """Returns the values of keys in order; None for a missing key."""
        try:
            return self._db.get(keys) if keys else []
        except Exception as error:
            raise failure(f"{self._name} cannot be read", error) from error

    def prefix(self, prefix: bytes, max_bytes: int) -> list[bytes]:
        """Returns the values of all keys with this prefix, ordered by key.

        :raises RecordTooLarge: they exceed ``max_bytes``.
        """
        options = ReadOptions()
        end = _after(prefix)
        if end is not None:
            options.set_iterate_upper_bound(end)
        return self._values(prefix, options, None, max_bytes)

    def first(self, limit: int, max_bytes: int) -> list[bytes]:
        """Returns the values of the first ``limit`` keys.

        :raises RecordTooLarge: they exceed ``max_bytes``.
        """
        return self._values(None, ReadOptions(), limit, max_bytes)

    def _values(
        self, start: bytes | None, options: ReadOptions, limit: int | None, max_bytes: int
    ) -> list[bytes]:
        values: list[bytes] = []
        size = 0
        rows: Any = None
        try:
            # Not ``values()``, which ends silently at a damaged block.
            rows = self._db.iter(options)
            rows.seek_to_first() if start is None else rows.seek(start)
            while rows.valid() and len(values) != limit:
                value = rows.value()
                size += len(value)
                if size > max_bytes:
                    break
                values.append(value)
                rows.next()
            rows.status()
        except Exception as error:
            raise failure(f"{self._name} cannot be read", error) from error
        finally:
            rows = None  # otherwise a raised error would keep the store open
        if size > max_bytes:
            raise RecordTooLarge(
                f"the requested rows exceed {max_bytes} bytes after {len(values)} rows: request"
                " fewer"
            )
        return values

    def write(
        self,
        puts: Iterable[tuple[bytes, bytes]],
        deletes: Iterable[bytes],
        log_offset: int,
        added: int | None = None,
    ) -> None:
        """Applies changes and their log offset atomically.

        :param added: number of rows added; None: unknown, and so is the row count from then on.
        """
        count = self.row_count
        reached = StoreProgress(
            log_offset, None if count is None or added is None else count + added
        )
        try:
            batch: Any = WriteBatch(raw_mode=True)
            put, delete = batch.put, batch.delete
            for key, value in puts:
                put(key, value)
            for key in deletes:
                delete(key)
            put(_LOG_OFFSET, reached.to_bytes(), self._state)
            self._db.write(batch, self._write_options)
        except Exception as error:
            raise failure(f"{self._name} cannot be written", error) from error
        self._reached = reached

    def checkpoint(self, folder: Path) -> None:
        """Copies the store's current state by hard links, while writes continue."""
        try:
            Checkpoint(self._db).create_checkpoint(str(folder))
        except Exception as error:
            raise failure(f"{self._name}: cannot create a checkpoint in {folder}", error) from error

    def snapshot_iterator(self) -> SnapshotIterator:
        """Returns an iterator over the current rows. Nothing may be written during the call."""
        options = ReadOptions()
        options.fill_cache(False)  # type: ignore[call-arg]  # the library's stub lacks it
        options.set_background_purge_on_iterator_cleanup(True)
        try:
            # The library does not let an iterator read from a snapshot; it would see newer rows.
            return SnapshotIterator(self._db.iter(options), self._db.snapshot())
        except Exception as error:
            raise failure(f"{self._name} cannot be read", error) from error

    def snapshots_open(self) -> int:
        """The number of open snapshots, by RocksDB's own count."""
        try:
            return int(self._db.property_int_value("rocksdb.num-snapshots"))
        except Exception as error:
            raise failure(f"{self._name} cannot be read", error) from error

    def close(self) -> None:
        """Flushes memory to disk and closes the files.

        The library flushes each column family separately when its object is closed. So the rows are
        flushed first, here, and the offset when RocksDB itself is closed. If the process dies in
        between, the rows are newer than their offset and are read from the log again; in the other
        order they would be lost. Sync the log before, so that it contains them.
        """
        # Each of these keeps the database open; it can be opened again after the last is closed.
        db, self._db, self._state = self._db, None, None
        if db is None:
            return
        try:
            db.close()
        except DbClosedError:
            pass
        except Exception as error:  # damage; the log has what was not written
            _log.warning("error while closing a KV store", store=self._name, error=str(error))


class KvStoreCorrupt(KvStorageError):
    """The files of a store are damaged; it is rebuilt from a snapshot and the log."""


def checkpoint_progress(checkpoint: Path, resources: KvResources) -> StoreProgress:
    """Returns the progress of a checkpoint, which is opened read-only.

    :raises KvStorageError: the checkpoint cannot be read.
    """
    db: Any = None
    try:
        db = Rdict(
            str(checkpoint),
            resources.options(),
            column_families={STATE_FAMILY: resources.options()},
            access_type=AccessType.read_only(),
        )
        stored = _stored_offset(db)
    except Exception as error:
        raise failure(f"checkpoint {checkpoint} cannot be read", error) from error
    finally:
        if db is not None:
            db.close()
    return StoreProgress.from_bytes(stored)


def _stored_offset(db: Any) -> bytes | None:
    """Reads the stored progress; closes its object at once, before there is data to flush."""
    state = db.get_column_family(STATE_FAMILY)
    try:
        stored: bytes | None = state.get(_LOG_OFFSET)
    finally:
        state.close()
    return stored


def _after(prefix: bytes) -> bytes | None:
    """The smallest key after all keys with this prefix; None if there is none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def failure(what: str, error: Exception) -> KvStorageError:
    """Converts a RocksDB error; ``what`` names the store and the failed operation."""
    text = str(error)
    kind = KvStoreCorrupt if text.startswith("Corruption") else KvStorageError
    return kind(f"KV store {what}: {text}")
