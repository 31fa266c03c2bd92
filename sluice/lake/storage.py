"""What the lake asks of a file system beyond opening files; sluice.storage finds it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

from pyarrow import fs

from sluice.storage import file_system

OPTION_PREFIXES = ("s3.", "client.", "hadoop.")
"""Of the catalog's properties, those that a file system wants to know."""


def resolve(uri: str, properties: Mapping[str, str]) -> tuple[fs.FileSystem, str]:
    """The file system of a URI as Iceberg writes it, and the path on it.

    :raises ConfigurationError, OSError, ValueError, ImportError: as ``sluice.storage`` says.
    """
    return file_system(uri, properties)


def renames(filesystem: fs.FileSystem) -> bool:
    """Whether a file should be written aside and renamed: elsewhere its close makes it appear."""
    return filesystem.type_name in ("local", "hdfs")


def sync(filesystem: fs.FileSystem, path: str) -> None:
    """Asks a local disk to keep the file: a commit that names it must not outlive it."""
    if filesystem.type_name != "local":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def delete(uri: str, properties: Mapping[str, str]) -> None:
    """Deletes one file; that it is gone already is fine.

    :raises OSError: from the file system, with its path.
    """
    filesystem, path = resolve(uri, properties)
    with contextlib.suppress(FileNotFoundError):
        filesystem.delete_file(path)
