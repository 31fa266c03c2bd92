"""Checks that a table's files can be written: as rounds do, and as Iceberg's own client does."""

from __future__ import annotations

import logging
import uuid
from contextlib import suppress
from typing import Any

from sluice.errors import LakeNotWritable
from sluice.lake.file_systems import FileSystems
from sluice.lake.java import lake_errors
from sluice.lake.loaded_table import LoadedTable
from sluice.lake.small_files import read_file, storage_errors, write_file

_LOG = logging.getLogger(__name__)
_NAME = "_sluice-check-"
"""How the files begin. Readers ignore such a name."""
_CONTENT = b"sluice was here"


def check_writable(loaded: LoadedTable) -> None:
    """Writes a file where the table's data files will be, and deletes it.

    Iceberg itself writes local files as the same user, so these are not checked.

    :raises LakeNotWritable: the storage refuses, or cannot be reached.
    :raises ConfigurationError: a storage option is wrong, or the scheme has no file system.
    """
    uri = _place(loaded)
    with storage_errors(f"write {uri}", loaded.files):
        if loaded.is_local:
            return
    write_file(uri, b"", loaded.files)
    try:
        _delete(uri, loaded.files)
    except LakeNotWritable as error:  # a store may allow no deletion by clients (S3 Tables)
        _LOG.warning("a file of a check stays: %s", error.message)


def check_both_ways(loaded: LoadedTable) -> str:
    """Has each client read a file of the other one; returns the folder.

    :raises LakeNotWritable: the storage refuses one of them, or they see different files.
    :raises ConfigurationError: as of :func:`check_writable`.
    """
    uri, io = _place(loaded), loaded.java.io()
    try:
        write_file(uri, _CONTENT, loaded.files)
        with lake_errors(f"read {uri} by Iceberg's own client"):
            _compare(uri, _read(io, uri), "Iceberg's client reads another file than Sluice wrote")
    except BaseException:
        with suppress(LakeNotWritable):  # the first error counts
            _delete(uri, loaded.files)
        raise
    _delete(uri, loaded.files)
    with lake_errors(f"write {uri} by Iceberg's own client"):
        _write(io, uri)
    try:
        found = read_file(uri, 2 * len(_CONTENT), loaded.files)
        _compare(uri, found, "Sluice reads another file than Iceberg's client wrote")
    except BaseException:
        with suppress(LakeNotWritable), lake_errors(f"delete {uri}"):
            io.deleteFile(uri)
        raise
    with lake_errors(f"delete {uri} by Iceberg's own client"):
        io.deleteFile(uri)
    return uri.rpartition("/")[0]


def _place(loaded: LoadedTable) -> str:
    return str(loaded.java.locationProvider().newDataLocation(f"{_NAME}{uuid.uuid4().hex[:12]}"))


def _delete(uri: str, files: FileSystems) -> None:
    with storage_errors(f"delete {uri}", files):
        files.delete(uri)


def _read(io: Any, uri: str) -> bytes:
    stream = io.newInputFile(uri).newStream()
    try:
        return bytes(stream.readAllBytes())
    finally:
        stream.close()


def _write(io: Any, uri: str) -> None:
    stream = io.newOutputFile(uri).createOrOverwrite()
    try:
        stream.write(_CONTENT)
    finally:
        stream.close()


def _compare(uri: str, found: bytes | None, why: str) -> None:
    if found != _CONTENT:
        raise LakeNotWritable(
            f"{uri}: {why}: check that the endpoint and the keys of both are for the same store"
        )
