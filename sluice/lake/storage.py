"""File system operations of the lake, in addition to those of ``sluice.storage``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

from pyarrow import fs

from sluice.storage import file_system

OPTION_PREFIXES = ("s3.", "client.", "hadoop.")
"""Prefixes of the catalog properties that configure a file system."""


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


def delete(uri: str, properties: Mapping[str, str]) -> None:
    """Deletes one file; a missing one is ignored.

    :raises OSError: from the file system, with its path.
    """
    filesystem, path = file_system(uri, properties)
    with contextlib.suppress(FileNotFoundError):
        filesystem.delete_file(path)
