"""A local folder for Arrow rows that do not fit in memory: written once, read part by part.

Its name says the process, ``sluice-spill-<pid>-<random>``, and beside it lies a file of that name
and ``.lock``, which the process has locked for as long as it lives. ``close`` removes both. What a
killed process leaves is removed by the next one that spills to the same place: it can lock the
file. A process number would not tell, since numbers are given anew and containers share disks.
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
    """A file of as many record batches as there are parts; part i is batch i."""

    def __init__(self, path: Path, rows: Sequence[int]) -> None:
        self.path = path
        self.rows = tuple(rows)
        """Rows of each part."""

    def read(self, part: int, columns: Sequence[int] | None = None) -> pa.RecordBatch | None:
        """The rows of one part, None where it has none; ``columns`` are places in the schema.

        :raises SpillFailed: the file is gone, cut or damaged.
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
                raise ValueError(f"{batch.num_rows} rows of {self.rows[part]}")
        return batch

    def remove(self) -> None:
        """Gives its space back at once."""
        with contextlib.suppress(OSError):
            self.path.unlink()


class SpillFolder:
    """Spill files of one process. Used by one thread; ``close`` removes them all."""

    def __init__(self, parent: Path) -> None:
        """Makes it, and removes what processes that are no more have left beside it.

        :raises SpillFailed:
        """
        with _errors("make a folder in", parent):
            parent.mkdir(parents=True, exist_ok=True)
            remove_left_over(parent)
            self._path, self._lock = _make(parent)
        self._count = 0

    @property
    def path(self) -> Path:
        """Other files may be put there too; they go with it."""
        return self._path

    def write(self, schema: pa.Schema, parts: Iterator[pa.RecordBatch]) -> SpillFile:
        """Writes one file; nothing of it stays where that fails.

        :raises SpillFailed: the disk is full, or refuses.
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
        """Removes all; what cannot be removed is left to the next process that spills."""
        if self._lock >= 0:
            _remove(self._path)
            os.close(self._lock)
            self._lock = -1


def remove_left_over(parent: Path) -> list[str]:
    """Removes what processes that are no more have spilled there, and answers the folders' names.

    :raises OSError: the folder cannot be listed.
    """
    found = []
    for lock in sorted(parent.glob(f"{_PREFIX}*{_LOCK}")):
        with contextlib.suppress(OSError):  # another process does the same, or it is another user's
            handle = os.open(lock, os.O_RDWR)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(lock.with_suffix(""))
                found.append(lock.stem)
            finally:
                os.close(handle)
    return found


def _make(parent: Path) -> tuple[Path, int]:
    """The folder, and its lock as an open file."""
    while True:
        handle, name = tempfile.mkstemp(_LOCK, f"{_PREFIX}{os.getpid()}-", parent)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            # before it was locked, it looked like one that was left over
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(Path(name).stat(), os.fstat(handle)):
                    folder = Path(name).with_suffix("")
                    folder.mkdir(mode=0o700)  # rows that only this user may read
                    return folder, handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _remove(folder: Path) -> None:
    """The folder first: while its lock is there, somebody will come back for it."""
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
            f"cannot {what} {path}: {type(error).__name__}: {error}. A round keeps there what does"
            " not fit in memory: give it space and rights, or more memory",
            path=str(path),
        ) from error
