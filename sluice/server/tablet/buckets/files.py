"""File operations of logs and KV snapshots, which a test may replace.

An acknowledged append has been written to the file, so it survives the end of the process. The file
is synced to disk every ``sync_interval_ms``, at the end of a segment and at a clean stop, so a
power loss loses at most the appends of that interval. A table's logs are always synced before lake
offsets of the table are registered.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from sluice.server.data_dir import sync_folder

Part = bytes | bytearray | memoryview


def unreadable(error: OSError) -> str:
    """Why the disk cannot read a part of a file; empty if the error has another cause."""
    return f"the disk cannot read it: {error.strerror}" if error.errno == errno.EIO else ""


class LogFiles:
    """Operates on plain files. Opens a file for each use, as open files are limited."""

    def make_folder(self, path: Path) -> list[Path]:
        """Creates a folder and its parents; returns the folders to sync for durable names."""
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        path.mkdir(parents=True, exist_ok=True)
        return [folder.parent for folder in missing]

    def append(self, path: Path, position: int, parts: Sequence[Part]) -> None:
        """Adds a log batch: see :meth:`extend`."""
        self.extend(path, position, parts)

    def extend(self, path: Path, position: int, parts: Sequence[Part]) -> None:
        """Writes all ``parts`` at ``position``, where the valid content ends, or none.

        :raises OSError: nothing was added; a partial write is truncated now or by the next append.
        """
        handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            if os.fstat(handle).st_size > position:
                os.ftruncate(handle, position)
            try:
                self.write(handle, position, parts)
            except OSError:
                os.ftruncate(handle, position)
                raise
        finally:
            os.close(handle)

    def replace(self, path: Path, parts: Sequence[Part]) -> None:
        """Replaces a file by one with this content, durably; a crash leaves either of them.

        :raises OSError: the file is as it was.
        """
        temporary = path.with_name(path.name + ".tmp")
        self.extend(temporary, 0, parts)
        self.sync(temporary)
        temporary.rename(path)
        self.sync_names(path.parent)

    def write(self, handle: int, position: int, parts: Sequence[Part]) -> None:
        """Writes all parts in order, with as many system calls as needed."""
        views = [memoryview(part) for part in parts]
        while views:
            written = os.pwritev(handle, views, position)
            position += written
            while views and written >= len(views[0]):
                written -= len(views.pop(0))
            if views:
                views[0] = views[0][written:]

    def read(self, path: Path) -> bytes:
        """The whole file.

        :raises OSError: the file cannot be read.
        """
        return path.read_bytes()

    def read_into(self, path: Path, position: int, target: memoryview) -> None:
        """Fills ``target`` with the file's content from ``position`` on.

        :raises OSError: the file cannot be read. :raises EOFError: it is too short.
        """
        handle = os.open(path, os.O_RDONLY)
        try:
            while target:
                read = os.preadv(handle, [target], position)
                if not read:
                    raise EOFError(f"{path} ends at {position}")
                position += read
                target = target[read:]
        finally:
            os.close(handle)

    def sync(self, path: Path, folders: Sequence[Path] = ()) -> None:
        """Syncs a file, and the names in ``folders``, to disk."""
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        for folder in folders:
            self.sync_names(folder)

    def sync_names(self, folder: Path) -> None:
        """Syncs the names in a folder to disk."""
        sync_folder(folder)

    def copy(self, source: Path, target: Path) -> None:
        """Copies a file, durably.

        The copy shares nothing with its source, not even blocks of the disk: what damages one of
        them leaves the other. So this is no hard link, and no ``copy_file_range``.

        :raises OSError: the file is missing, or was not copied completely.
        """
        shutil.copyfile(source, target)
        self.sync(target, [target.parent])
