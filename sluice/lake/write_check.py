"""Checks that a round can write a table's files, before the table is created."""

from __future__ import annotations

from sluice.lake.loaded_table import LoadedTable
from sluice.lake.small_files import storage_errors, write_file

NAME = "_sluice-check"
"""Always the same, so at most one such file is left in a table. Readers ignore the name."""


def check_writable(loaded: LoadedTable) -> None:
    """Writes a file where the table's data files will be, and deletes it.

    Iceberg itself writes local files as the same user, so these are not checked.

    :raises LakeNotWritable: the storage refuses, or cannot be reached.
    :raises ConfigurationError: a storage option is wrong, or the scheme has no file system.
    """
    uri = str(loaded.java.locationProvider().newDataLocation(NAME))
    with storage_errors(f"write {uri}", loaded.files):
        filesystem, _ = loaded.files.open(uri)
    if filesystem.type_name == "local":
        return
    write_file(uri, b"", loaded.files)
    with storage_errors(f"delete {uri}", loaded.files):
        loaded.files.delete(uri)
