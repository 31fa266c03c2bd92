"""The few things that logs and KV snapshots do with files. A test may give them other ones.

What is synced when: an acknowledged append has been written to the file, so the death of the
process loses nothing; every ``sync_interval_ms``, at the end of a segment and at a clean stop it is
synced to the disk, so a power loss loses at most the appends of that interval. A table's logs are
synced before the offsets that the lake has of it are registered, whatever the interval.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from sluice.server.data_dir import sync_folder

Part = bytes | bytearray | memoryview


class LogFiles:
    """Plain files. A file is opened for each use: a handle for every bucket would run out."""

    def make_folder(self, path: Path) -> list[Path]:
        """Makes a folder and those above it; answers what to sync for their names to last."""
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        path.mkdir(parents=True, exist_ok=True)
        return [folder.parent for folder in missing]

    def append(self, path: Path, position: int, parts: Sequence[Part]) -> None:
        """Writes ``parts`` at ``position``, where the valid content ends; all of it or none.

        :raises OSError: nothing was added (what a failed write left is cut off, now or next time).
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

    def write(self, handle: int, position: int, parts: Sequence[Part]) -> None:
        """Writes all parts one behind the other, however often that takes."""
        views = [memoryview(part) for part in parts]
        while views:
            written = os.pwritev(handle, views, position)
            position += written
            while views and written >= len(views[0]):
                written -= len(views.pop(0))
            if views:
                views[0] = views[0][written:]

    def read_into(self, path: Path, position: int, target: memoryview) -> None:
        """Fills ``target`` from ``position`` on.

        :raises OSError: it cannot be read. :raises EOFError: the file is shorter.
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
        """Makes a file and its name survive a power loss, and the names in ``folders``."""
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        for folder in (path.parent, *folders):
            sync_folder(folder)

    def place(self, source: Path, target: Path, *, share: bool) -> None:
        """Puts a file at another place: a hard link where that is wanted and possible, else a copy.

        :raises OSError: it is not there, or not whole.
        """
        if share:
            try:
                os.link(source, target)
            except OSError:
                pass  # another file system, or one without links
            else:
                return
        shutil.copyfile(source, target)
        self.sync(target)
