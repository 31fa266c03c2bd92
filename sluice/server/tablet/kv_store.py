"""The key-value pairs of one bucket: a RocksDB that knows which log offset it has reached.

Two column families. The default one holds the table's rows and nothing else, as Fluss's own clients
expect of a snapshot; the other holds the log offset, and how many rows there are. Both are flushed
together (atomic flush), so that whatever a crash leaves, the offset says exactly what the rows
contain; only where a store dies while it is closed, the rows may be newer. RocksDB's own log is
off: the bucket's log is the only one, and what RocksDB had not flushed is read from there again.

RocksDB is called once for each key (a batch of reads takes a list, a batch of writes does not): the
loops here are the only ones over single rows that a put needs, and they only pass bytes on.
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
"""The column family beside the default one."""

CONFIG_FILE = "rocksdict-config.json"
"""A file of the library's own, which no snapshot needs."""

_log = structlog.get_logger("sluice.kv")

_LOG_OFFSET = b"log_offset"
_OFFSET = struct.Struct("<q")
_OFFSET_AND_COUNT = struct.Struct("<qq")
_FILES_MIN = 20  # of one RocksDB: its log, manifest, lock, and a few SST files
_FILES_MAX = 256
_MEMTABLE_FILTER = 0.02  # of its memory: 16 bits for each row of 100 bytes


@dataclass(frozen=True, slots=True)
class StoreProgress:
    """What a store contains: the log below an offset, and so many rows, if that is known."""

    log_offset: int
    row_count: int | None

    @classmethod
    def from_bytes(cls, stored: bytes | None) -> StoreProgress:
        """None: of a store in which nothing was written yet."""
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
    """What all stores of a server share: memory, and a bound on open files."""

    def __init__(self, *, block_cache_bytes: int, write_buffer_bytes: int, open_max: int) -> None:
        """:param open_max: most stores open at once; fewer if the process may open few files."""
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
        self.open_max = max(min(open_max, files // _FILES_MIN), 1)
        self._files = min(max(files // self.open_max, _FILES_MIN), _FILES_MAX)
        self._cache = Cache(block_cache_bytes)
        self._buffers = WriteBufferManager(write_buffer_bytes, False)
        self._buffer_bytes = max(min(write_buffer_bytes // 4, 16 << 20), 64 << 10)

    def row_options(self) -> Options:
        """Those of a column family that holds rows; a store may not share them with another."""
        options = self.options()
        # Most keys of a put are new: so it need not search for them in what was put lately.
        options.set_memtable_whole_key_filtering(True)
        options.set_memtable_prefix_bloom_ratio(_MEMTABLE_FILTER)
        return options

    def options(self) -> Options:
        """Those of another column family, or for reading only; not to be shared either."""
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
        blocks.set_block_cache(self._cache)
        blocks.set_cache_index_and_filter_blocks(True)
        blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
        blocks.set_bloom_filter(10, False)
        options.set_block_based_table_factory(blocks)
        return options


@dataclass(frozen=True, slots=True)
class SnapshotIterator:
    """The rows of a store at one moment. Whoever has this keeps the store open."""

    rows: Any
    """RocksDB's iterator over them."""
    snapshot: Any
    """RocksDB's snapshot, which it counts."""


class KvStore:
    """An opened store. Reading needs no lock; one thread writes at a time. Close it once.

    Every method raises KvStorageError if RocksDB fails.
    """

    def __init__(self, folder: Path, resources: KvResources) -> None:
        """Opens the store, made if missing.

        :raises KvStoreCorrupt: what is there is no store that can be read.
        """
        self._name = str(folder)
        self._write_options = WriteOptions()
        # properties, though the library's stub has the first as a method
        self._write_options.disable_wal = True  # type: ignore[assignment, method-assign]
        # puts come in the order of their keys: each is looked for beside the one before
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
        """The store contains what the log holds below this offset."""
        return self._reached.log_offset

    @property
    def row_count(self) -> int | None:
        """How many rows there are, if whoever wrote them has always said how many came."""
        return self._reached.row_count

    def get(self, keys: list[bytes]) -> list[bytes | None]:
        """The values of keys in their order, None where there is none."""
        try:
            return self._db.get(keys) if keys else []
        except Exception as error:
            raise failure(f"{self._name} cannot be read", error) from error

    def prefix(self, prefix: bytes, max_bytes: int) -> list[bytes]:
        """The values of all keys that begin with these bytes, in the order of the keys.

        :raises RecordTooLarge: they take more than ``max_bytes``.
        """
        options = ReadOptions()
        end = _after(prefix)
        if end is not None:
            options.set_iterate_upper_bound(end)
        return self._values(prefix, options, None, max_bytes)

    def first(self, limit: int, max_bytes: int) -> list[bytes]:
        """The values of the first keys, at most ``limit``.

        :raises RecordTooLarge: they take more than ``max_bytes``.
        """
        return self._values(None, ReadOptions(), limit, max_bytes)

    def _values(
        self, start: bytes | None, options: ReadOptions, limit: int | None, max_bytes: int
    ) -> list[bytes]:
        values: list[bytes] = []
        size = 0
        rows: Any = None
        try:
            # Not ``values()``: that ends without a word where a block is damaged.
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
            rows = None  # or an error on its way would keep the store open
        if size > max_bytes:
            raise RecordTooLarge(
                f"more than {len(values)} rows take more than {max_bytes} bytes: ask for fewer"
            )
        return values

    def write(
        self,
        puts: Iterable[tuple[bytes, bytes]],
        deletes: Iterable[bytes],
        log_offset: int,
        added: int | None = None,
    ) -> None:
        """Applies changes and the offset that they lead to, all of it or nothing.

        :param added: how many rows more there are by it; None: not known, from now on.
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
        """A copy of the store as it is now, by hard links; writes go on meanwhile."""
        try:
            Checkpoint(self._db).create_checkpoint(str(folder))
        except Exception as error:
            raise failure(f"{self._name}: no checkpoint in {folder}", error) from error

    def snapshot_iterator(self) -> SnapshotIterator:
        """The rows as they are now. Nothing may be written meanwhile."""
        options = ReadOptions()
        options.fill_cache(False)  # type: ignore[call-arg]  # the library's stub lacks it
        options.set_background_purge_on_iterator_cleanup(True)
        try:
            # The library's snapshots are none to their own iterators: those show newer rows too.
            return SnapshotIterator(self._db.iter(options), self._db.snapshot())
        except Exception as error:
            raise failure(f"{self._name} cannot be read", error) from error

    def snapshots_open(self) -> int:
        """How many snapshots there are now, by RocksDB's own count."""
        try:
            return int(self._db.property_int_value("rocksdb.num-snapshots"))
        except Exception as error:
            raise failure(f"{self._name} cannot be read", error) from error

    def close(self) -> None:
        """Writes what is in memory only, and gives up the files.

        The library flushes the family of each object that is closed, alone. So the rows go first,
        here, and the offset when RocksDB itself is closed: whoever dies between the two leaves
        rows that are newer than their offset says, and takes them from the log once more. The
        other way round they would be lost. The log must be synced before, so that it has them.
        """
        # Each of these holds the database open; it may be opened again only after the last is gone.
        db, self._db, self._state = self._db, None, None
        if db is None:
            return
        try:
            db.close()
        except DbClosedError:
            pass
        except Exception as error:  # damage; what could not be written is in the log
            _log.warning("KV store closed with an error", store=self._name, error=str(error))


class KvStoreCorrupt(KvStorageError):
    """The files of a store are damaged: it is made anew from a snapshot and the log."""


def checkpoint_progress(checkpoint: Path, resources: KvResources) -> StoreProgress:
    """What a checkpoint contains; it is opened for reading only.

    :raises KvStorageError: it cannot be read.
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
    """Its object is closed at once, while there is nothing that it could flush: see ``close``."""
    state = db.get_column_family(STATE_FAMILY)
    try:
        stored: bytes | None = state.get(_LOG_OFFSET)
    finally:
        state.close()
    return stored


def _after(prefix: bytes) -> bytes | None:
    """The smallest key behind all that begin with these bytes; None if there is no such."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def failure(what: str, error: Exception) -> KvStorageError:
    """RocksDB's own error as ours; ``what``: the store's name, and what cannot be done."""
    text = str(error)
    kind = KvStoreCorrupt if text.startswith("Corruption") else KvStorageError
    return kind(f"KV store {what}: {text}")
