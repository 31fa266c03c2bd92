"""File system operations of the lake, in addition to those of ``sluice.storage``."""

from __future__ import annotations

import os

from pyarrow import fs


def needs_rename(filesystem: fs.FileSystem) -> bool:
    """Whether files must be written under a temporary name; elsewhere they appear when closed."""
    return filesystem.type_name in ("local", "hdfs")


def sync(filesystem: fs.FileSystem, path: str) -> None:
    """Syncs a local file to disk, so that a commit never references a file that a crash lost."""
    if filesystem.type_name != "local":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
