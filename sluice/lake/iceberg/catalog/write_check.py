"""Checks that a table's files can be written: as rounds do, and as Iceberg's own client does."""

from __future__ import annotations

import logging
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sluice.errors import LakeNotWritable
from sluice.lake.iceberg.catalog.java import JavaThrew, java_errors, lake_errors
from sluice.lake.iceberg.catalog.loaded_table import LoadedTable
from sluice.lake.storage.file_systems import FileSystems
from sluice.lake.storage.small_files import read_file, storage_errors, write_file

_LOG = logging.getLogger(__name__)
_NAME = "_sluice-check-"
"""How the files begin. Readers ignore such a name."""
_CONTENT = b"sluice was here"
NO_DATABASE = (
    "the catalog stages no table without its database: the first round creates database {}, and has"
    " both clients write a file before the lake has rows"
)
STAGES_NOTHING = (
    "the catalog stages no tables: the first round creates a table, and then has both clients write"
    " a file before it has rows"
)
IN_A_FOLDER = "the files of the first one will be in a local folder: its first round creates it"
"""Why no file was written for a check."""


@dataclass(frozen=True, slots=True)
class StoreReport:
    """What a check of a table's storage has seen."""

    folder: str
    kept: tuple[str, ...] = ()
    """Files of the check that the store would not delete."""
    expires_ms: int | None = None
    """When the catalog's keys end, epoch milliseconds. None: there are none, or they do not end."""


@dataclass(frozen=True, slots=True)
class NothingWritten:
    """A storage was not checked, because nothing could be written without creating something."""

    why: str


def is_local(loaded: LoadedTable) -> bool:
    """Whether the data is on a local disk, where Iceberg writes as the same user as rounds do.

    :raises LakeNotWritable: the storage cannot be opened.
    :raises ConfigurationError: a storage option is wrong, or the scheme has no file system.
    """
    with storage_errors(f"open the storage of {loaded.java.location()}", loaded.files):
        return loaded.is_local


def check_both_ways(loaded: LoadedTable) -> StoreReport:
    """Has each client write a file where data files will be, and read the file of the other one.

    Each then deletes its own. A store may allow no deletion by clients (S3 Tables): that is only
    logged and reported.

    :raises LakeNotWritable: the storage refuses one of them, or they see different files.
    :raises ConfigurationError: a storage option is wrong, or the scheme has no file system.
    """
    try:
        mine, is_gone = _sluice_writes(loaded)
        theirs, is_theirs_gone = _iceberg_writes(loaded)
    except LakeNotWritable as error:
        if not (differing := loaded.contradictions()):
            raise
        raise LakeNotWritable(
            f"{error}; {_shown(differing)} differ from the catalog's, which Iceberg's"
            " own client uses: remove them",
            **error.details,
        ) from error
    kept = [uri for uri, gone in ((mine, is_gone), (theirs, is_theirs_gone)) if not gone]
    return StoreReport(mine.rpartition("/")[0], tuple(kept))


def _sluice_writes(loaded: LoadedTable) -> tuple[str, bool]:
    """Iceberg's client reads what Sluice has written; returns the file, and whether it is gone."""
    uri, io = _place(loaded), loaded.java.io()
    write_file(uri, _CONTENT, loaded.files)
    try:
        with lake_errors(f"read {uri} by Iceberg's own client"):
            _compare(uri, _read(io, uri), "Iceberg's client reads another file than Sluice wrote")
    except BaseException:
        with suppress(LakeNotWritable):  # the first error counts
            _delete(uri, loaded.files)
        raise
    try:
        _delete(uri, loaded.files)
    except LakeNotWritable as error:
        return uri, _stays(error.message)
    return uri, True


def _iceberg_writes(loaded: LoadedTable) -> tuple[str, bool]:
    """Sluice reads what Iceberg's client has written; answers as :func:`_sluice_writes`."""
    uri, io = _place(loaded), loaded.java.io()
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
        try:
            with java_errors():
                io.deleteFile(uri)
        except JavaThrew as thrown:
            return uri, _stays(f"delete {uri} by Iceberg's own client: {thrown}")
    return uri, True


def _stays(why: str) -> bool:
    _LOG.warning("a file of a check stays: %s", why)
    return False


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


def _shown(names: tuple[str, ...]) -> str:
    return ", ".join(f"datalake.iceberg.{name}" for name in names)
