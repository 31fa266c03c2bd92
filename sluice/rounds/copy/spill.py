"""Spill files: Arrow rows that do not fit in memory, written once and read part by part.

They are stored in a local folder named ``sluice-spill-<pid>-<random>``. Next to the folder is a
file of that name with the suffix ``.lock``, which the process keeps locked while it lives.
``close`` deletes both. If a process is killed, the next one that spills to the same place can lock
the file, and deletes both. Process ids alone would not do, because they are reused and containers
share disks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from sluice.errors import SpillFailed

_PREFIX = "sluice-spill-"
_LOCK = ".lock"
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


class SpillFile:
    """A file with one record batch for each part, in order."""

    def __init__(self, path: Path, rows: Sequence[int]) -> None:
        self.path = path
        self.rows = tuple(rows)
        """Number of rows of each part."""

    def read(self, part: int, columns: Sequence[int] | None = None) -> pa.RecordBatch | None:
        """The rows of one part; None if it has none. ``columns`` are positions in the schema.

        :raises SpillFailed: the file is missing, truncated or damaged.
        """
        if not self.rows[part]:
            return None
        options = pa.ipc.IpcReadOptions(included_fields=columns, use_threads=False)
        with _errors("read", self.path):
            with pa.OSFile(str(self.path)) as source:
                reader = pa.ipc.open_file(source, options=options)
                batch = reader.get_batch(part)
            batch.validate(full=True)
            if batch.num_rows != self.rows[part]:
                raise ValueError(
                    f"part {part} has {batch.num_rows} rows, but {self.rows[part]} were written"
                )
        return batch

    def remove(self) -> None:
        """Deletes the file."""
        with contextlib.suppress(OSError):
            self.path.unlink()


class SpillFolder:
    """The spill files of one process. Used by one thread; ``close`` deletes all files."""

    def __init__(self, parent: Path) -> None:
        """Creates the folder, and deletes folders that killed processes have left next to it.

        :raises SpillFailed: the folder cannot be created.
        """
        with _errors("make a folder in", parent):
            parent.mkdir(parents=True, exist_ok=True)
            remove_left_over(parent)
            self._path, self._lock = _make(parent)
        self._count = 0

    @property
    def path(self) -> Path:
        """The folder. Callers may store other files in it; ``close`` deletes them, too."""
        return self._path

    def write(self, schema: pa.Schema, parts: Iterator[pa.RecordBatch]) -> SpillFile:
        """Writes one file; leaves nothing on disk if that fails.

        :raises SpillFailed: the disk is full or not writable.
        """
        self._count += 1
        path = self._path / f"{self._count:06d}.arrow"
        rows = []
        try:
            with (
                _errors("write", path),
                pa.OSFile(str(path), "wb") as sink,
                pa.ipc.new_file(sink, schema, options=_OPTIONS) as writer,
            ):
                for batch in parts:
                    writer.write_batch(batch)
                    rows.append(batch.num_rows)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return SpillFile(path, rows)

    def close(self) -> None:
        """Deletes all files; those that cannot be deleted are left to the next process."""
        if self._lock >= 0:
            _remove(self._path)
            os.close(self._lock)
            self._lock = -1


def remove_left_over(parent: Path) -> list[str]:
    """Deletes spill folders of processes that no longer exist; returns the folders' names.

    :raises OSError: the folder cannot be listed.
    """
    found = []
    for lock in sorted(parent.glob(f"{_PREFIX}*{_LOCK}")):
        with contextlib.suppress(OSError):  # another process does the same, or another user owns it
            handle = os.open(lock, os.O_RDWR)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(lock.with_suffix(""))
                found.append(lock.stem)
            finally:
                os.close(handle)
    return found


def _make(parent: Path) -> tuple[Path, int]:
    """Creates a folder; returns its path and the open lock file."""
    while True:
        handle, name = tempfile.mkstemp(_LOCK, f"{_PREFIX}{os.getpid()}-", parent)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            # before it was locked, another process may have deleted it as a leftover
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(Path(name).stat(), os.fstat(handle)):
                    folder = Path(name).with_suffix("")
                    folder.mkdir(mode=0o700)  # only this user may read the rows
                    return folder, handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _remove(folder: Path) -> None:
    """Deletes the folder before its lock, so that the next process can finish an interrupted
    run.
    """
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        with contextlib.suppress(OSError):
            folder.with_name(folder.name + _LOCK).unlink()


@contextlib.contextmanager
def _errors(what: str, path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException, ValueError) as error:
        raise SpillFailed(
            f"cannot {what} {path}: {type(error).__name__}: {error}. A round stores rows there that"
            " do not fit in memory: free disk space, make the folder writable or change"
            " tiering.spill_dir, or raise tiering.changes_memory_bytes",
            path=str(path),
        ) from error
