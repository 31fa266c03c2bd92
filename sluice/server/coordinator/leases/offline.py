"""Ends a lease in the data directory of a stopped server, which may not start with that lease."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from sluice.errors import DataDirError
from sluice.server.coordinator.leases.store import SqliteLeaseStore
from sluice.server.data_dir import DataDir
from sluice.server.storage.database import Database


def drop_stored_lease(data_dir: str | Path, lease_id: str) -> bool:
    """Deletes a lease, readable or not; returns whether it existed.

    :raises DataDirLocked: the server is running; drop the lease through its address.
    :raises DataDirError, StorageError: the folder is not a data directory, or cannot be written.
    """
    if not (Path(data_dir) / "metadata.sqlite").is_file():
        raise DataDirError(f"{data_dir} is not a data directory: it has no metadata.sqlite")
    with closing(DataDir.open(data_dir)) as opened, closing(Database(opened.database)) as database:
        return SqliteLeaseStore(database).remove(lease_id)
