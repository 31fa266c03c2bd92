"""Ends a lease in the data directory of a server that does not run, or cannot start for it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from sluice.errors import DataDirError
from sluice.server.coordinator.leases_store import SqliteLeaseStore
from sluice.server.data_dir import DataDir
from sluice.server.storage.database import Database


def drop_stored_lease(data_dir: str | Path, lease_id: str) -> bool:
    """Removes a lease, readable or not; whether it was there.

    :raises DataDirLocked: the server runs: drop the lease by its address.
    :raises DataDirError, StorageError: it is no data directory, or cannot be written.
    """
    if not (Path(data_dir) / "metadata.sqlite").is_file():
        raise DataDirError(f"{data_dir} holds no metadata.sqlite: it is not a data directory")
    with closing(DataDir.open(data_dir)) as opened, closing(Database(opened.database)) as database:
        return SqliteLeaseStore(database).remove(lease_id)
