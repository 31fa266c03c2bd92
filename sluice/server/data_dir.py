"""The data directory: its format version, its lock and its layout.

<data_dir>/FORMAT             {"format": 1}: an unknown version is refused
<data_dir>/LOCK               held by flock for as long as a server runs; its process and boot
<data_dir>/metadata.sqlite    catalog, epochs, tiering, lake snapshots
<data_dir>/log/<db>/<table>-<id>[/<partition>-p<id>]/log-<bucket>/   segments
<data_dir>/kv/<db>/<table>-<id>[/<partition>-p<id>]/kv-<bucket>/     RocksDB, see tablet/kv_files.py
<data_dir>/remote/kv/<db>/<table>-<id>[/<partition>-p<id>]/<bucket>/  KV snapshots
<data_dir>/remote/lake/<db>/<table>-<id>/metadata/<uuid>.offsets
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

import structlog

from sluice.errors import DataDirError, DataDirLocked, UnknownDataDirFormat
from sluice.model import Partition, TableBucket, TableInfo

FORMAT = 1
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_TABLE_FOLDER = re.compile(r".+-(\d+)")
_PARTITION_FOLDER = re.compile(r".+-p(\d+)")

_log = structlog.get_logger("sluice.server")


class Ids(Protocol):
    """The ids that the catalog has given to tables and partitions."""

    def has_partition(self, table_id: int, partition_id: int | None) -> bool:
        """Whether the table exists and, unless ``partition_id`` is None, the partition."""

    def has_issued_table_id(self, table_id: int) -> bool:
        """Whether the id belongs to a table, dropped or not."""

    def has_issued_partition_id(self, partition_id: int) -> bool: ...


class DataDir:
    """An opened data directory. ``close`` releases the lock, and so does the process's end."""

    def __init__(self, root: Path, lock: int, *, is_same_boot: bool) -> None:
        self.root = root
        self.database = root / "metadata.sqlite"
        self.log = root / "log"
        self.kv = root / "kv"
        self.remote = root / "remote"
        self.lake = self.remote / "lake"
        self.is_same_boot = is_same_boot
        """Whether the machine has run on since the last server read its logs: all that it wrote is
        there, synced or not. False if that is unknown."""
        self._lock = lock

    def record_boot(self) -> None:
        """Says that the logs were read since the machine's start, and what is wrong was cut.

        :raises DataDirError: it cannot be written.
        """
        try:
            _write_lock(self._lock, _boot_id())
        except OSError as error:
            raise DataDirError(f"data directory {self.root}: {error.strerror}") from error

    @classmethod
    def open(cls, path: str | Path) -> DataDir:
        """Locks the directory, creates it if missing, and checks its format.

        A new directory is its owner's alone. The mode of an existing one is not changed, since
        Spark's executors may read KV snapshots there as another user; the log says what it is.

        :raises DataDirLocked: another server holds it.
        :raises UnknownDataDirFormat: its version is unknown, or it holds foreign files.
        :raises DataDirError: it cannot be read or written, or its metadata is lost.
        """
        root = Path(path).absolute()
        if root.exists() and not root.is_dir():
            raise DataDirError(f"data directory {root} is not a directory: choose another")
        try:
            root.parent.mkdir(parents=True, exist_ok=True)
            root.mkdir(mode=0o700, exist_ok=True)
            lock = os.open(root / "LOCK", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise DataDirError(f"data directory {root}: {error.strerror}") from error
        try:
            is_same_boot = _take(lock, root)
            _check_format(root)
            _check_database(root)
            _tell_of_others(root)
        except OSError as error:
            os.close(lock)
            raise DataDirError(f"data directory {root}: {error.strerror}") from error
        except BaseException:
            os.close(lock)
            raise
        return cls(root, lock, is_same_boot=is_same_boot)

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _take(lock: int, root: Path) -> bool:
    """Locks the directory; returns whether the last server ran since the machine's last start."""
    process, _, boot = os.pread(lock, 128, 0).decode(errors="replace").strip().partition("\n")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = process or "unknown"
        raise DataDirLocked(
            f"data directory {root} is in use by another server (process {owner}):"
            " stop that server, or choose another --data-dir"
        ) from None
    # The boot stays the one before: a server that dies before it has read the logs leaves them as
    # the machine's start did.
    _write_lock(lock, boot)
    return bool(boot) and boot == _boot_id()


def _write_lock(lock: int, boot: str) -> None:
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n{boot}\n".encode(), 0)


def _boot_id() -> str:
    """A text that changes when the machine starts; empty where there is none."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _check_format(root: Path) -> None:
    marker = root / "FORMAT"
    if not marker.exists():
        foreign = sorted(p.name for p in root.iterdir() if p.name not in ("LOCK", "FORMAT.tmp"))
        if foreign:
            raise UnknownDataDirFormat(
                f"data directory {root} is not a Sluice data directory (it has no FORMAT file but"
                f" contains {foreign[0]!r}): choose an empty directory"
            )
        write_durably(marker, json.dumps({"format": FORMAT}).encode() + b"\n")
        return
    text = marker.read_text(encoding="utf-8", errors="replace").strip()
    try:
        found = json.loads(text)["format"]
    except (ValueError, TypeError, KeyError):
        found = text[:40]
    if found != FORMAT:
        raise UnknownDataDirFormat(
            f"data directory {root} has format {found!r}, but this version of Sluice supports only"
            f" {FORMAT}: use the version that wrote it"
        )


def _check_database(root: Path) -> None:
    """Refuses a directory whose metadata is lost; ``log`` is created after the database."""
    database = root / "metadata.sqlite"
    problem = "" if database.exists() else "missing"
    if not problem and not database.stat().st_size:  # SQLite takes it for a new database
        problem = "empty"
    if problem and (root / "log").exists():
        raise DataDirError(
            f"data directory {root}: metadata.sqlite is {problem}, although a server has run here."
            " Without it the server cannot tell which logs belong to existing tables: restore it"
            " from a backup, or choose an empty directory. Nothing was deleted"
        )


def _tell_of_others(root: Path) -> None:
    mode = stat.S_IMODE(root.stat().st_mode)
    if mode & 0o007:
        _log.warning(
            "other users of this machine can read the data directory; `chmod o-rwx` prevents it",
            data_dir=str(root),
            mode=f"{mode:04o}",
        )


def write_durably(path: Path, content: bytes) -> None:
    """Writes a file atomically, and syncs it and its folder.

    :raises OSError: the file could not be written, and no part of it is left.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Syncs a folder, so that the names in it survive a power loss."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def file_uri(path: Path) -> str:
    """A file: URI of an absolute path as Fluss writes it, without escapes."""
    return f"file://{path.absolute()}"


def local_path(uri: str) -> Path:
    """The path of a URI from ``file_uri``."""
    return Path(uri.removeprefix("file://"))


def bucket_folder(
    root: Path, info: TableInfo, partitions: Mapping[int, Partition], bucket: TableBucket, name: str
) -> Path:
    """The folder of a bucket in ``root``: ``log``, ``kv`` or ``remote/kv``."""
    folder = _table_folder(root, info)
    if bucket.partition_id is not None:
        partition = partitions[bucket.partition_id]
        folder = folder / f"{partition.name}-p{partition.partition_id}"
    return folder / name


def delete_table(root: Path, info: TableInfo, partition_id: int | None = None) -> None:
    """Deletes the folders of a table or of one partition there, as far as possible."""
    folder = _table_folder(root, info)
    for path in [folder] if partition_id is None else list(folder.glob(f"*-p{partition_id}")):
        shutil.rmtree(path, ignore_errors=True)


def orphans(root: Path, ids: Ids) -> Iterator[tuple[Path, bool]]:
    """The folders of tables and partitions that do not exist, and whether their id was issued."""
    for folder in sorted(root.glob("*/*-*")):
        table_id = _id_in(folder, _TABLE_FOLDER)
        if table_id is None:
            continue
        if not ids.has_partition(table_id, None):
            yield folder, ids.has_issued_table_id(table_id)
            continue
        for inner in sorted(folder.glob("*-p*")):
            partition_id = _id_in(inner, _PARTITION_FOLDER)
            if partition_id is not None and not ids.has_partition(table_id, partition_id):
                yield inner, ids.has_issued_partition_id(partition_id)


def delete_orphans(root: Path, ids: Ids) -> None:
    """Deletes the folders of dropped tables and partitions there; keeps those of unknown ids."""
    for folder, is_issued in orphans(root, ids):
        if is_issued:
            shutil.rmtree(folder, ignore_errors=True)


def _id_in(folder: Path, pattern: re.Pattern[str]) -> int | None:
    """The id in a folder's name; None for a foreign folder, which is kept."""
    found = pattern.fullmatch(folder.name)
    return int(found[1]) if found and folder.is_dir() else None


def _table_folder(root: Path, info: TableInfo) -> Path:
    return root / info.path.database / f"{info.path.table}-{info.table_id}"
