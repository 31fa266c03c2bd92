"""Stores leases in the metadata file: one row per lease, and one per lease and table.

A change writes only the changed rows: a renewal the head, another bucket the block of its table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from sqlite3 import Connection
from typing import Protocol

from sluice.errors import StorageError
from sluice.failpoints import failpoint
from sluice.leases import Change, Lease, SnapshotsByBucket
from sluice.server.coordinator.leases.codec import (
    Unreadable,
    decode_head,
    decode_holds,
    encode_head,
    encode_holds,
)
from sluice.server.storage.database import Database


class LeaseStore(Protocol):
    """Stores leases. Every method may raise StorageError."""

    def load(self) -> list[Lease]:
        """All leases."""

    def read(self, lease_id: str) -> Lease | None:
        """One lease as currently stored, or None."""

    def write(self, changes: Sequence[Change]) -> None:
        """Stores all changes in one transaction. After an error, the outcome may be unknown."""


class SqliteLeaseStore:
    """A LeaseStore in the metadata file. Stateless."""

    def __init__(self, database: Database) -> None:
        """:raises StorageError: the file cannot be written."""
        self._database = database
        # Null for leases of earlier versions, and of servers without a users file.
        database.ensure_table("kv_snapshot_leases", {"owner": "TEXT"})

    def load(self) -> list[Lease]:
        """Reads all leases.

        :raises StorageError: a lease cannot be read; the message names it and the repair.
        """
        blocks: dict[int, list[tuple[int, bytes]]] = {}
        rows = self._database.query(
            "SELECT lease_no, table_id, holds FROM kv_snapshot_lease_tables"
        )
        for lease_no, table_id, block in rows:
            blocks.setdefault(lease_no, []).append((table_id, block))
        leases = []
        for lease_no, lease_id, head, owner in self._heads():
            leases.append(_decoded(lease_id, head, owner, blocks.get(lease_no, [])))
        return leases

    def read(self, lease_id: str) -> Lease | None:
        """Reads one lease.

        :raises StorageError: as :meth:`load`.
        """
        for lease_no, _, head, owner in self._heads(" WHERE lease_id = ?", lease_id):
            blocks = self._database.query(
                "SELECT table_id, holds FROM kv_snapshot_lease_tables WHERE lease_no = ?", lease_no
            )
            return _decoded(lease_id, head, owner, blocks)
        return None

    def write(self, changes: Sequence[Change]) -> None:
        with self._database.transaction() as connection:
            for change in changes:
                _write(connection, change)
            failpoint("server.lease.before_commit")
        failpoint("server.lease.after_commit")

    def ids(self) -> list[str]:
        """Ids of all leases, readable or not."""
        return [lease_id for _, lease_id, *_ in self._heads()]

    def remove(self, lease_id: str) -> bool:
        """Deletes a lease, readable or not; returns whether it existed."""
        with self._database.transaction() as connection:
            done = connection.execute(
                "DELETE FROM kv_snapshot_leases WHERE lease_id = ?", (lease_id,)
            )
            return done.rowcount > 0

    def _heads(
        self, where: str = "", *arguments: object
    ) -> list[tuple[int, str, bytes, str | None]]:
        sql = f"SELECT lease_no, lease_id, head, owner FROM kv_snapshot_leases{where}"  # noqa: S608
        return self._database.query(f"{sql} ORDER BY lease_id", *arguments)


def _write(connection: Connection, change: Change) -> None:
    lease, lease_id = change.after, change.lease_id
    if lease is None:
        connection.execute("DELETE FROM kv_snapshot_leases WHERE lease_id = ?", (lease_id,))
        return
    (lease_no,) = connection.execute(
        "INSERT INTO kv_snapshot_leases (lease_id, head, owner) VALUES (?, ?, ?)"
        " ON CONFLICT (lease_id) DO UPDATE SET head = excluded.head RETURNING lease_no",
        (lease_id, encode_head(lease), lease.owner or None),
    ).fetchone()
    gone = [(lease_no, table_id) for table_id in change.tables if table_id not in lease.held]
    connection.executemany(
        "DELETE FROM kv_snapshot_lease_tables WHERE lease_no = ? AND table_id = ?", gone
    )
    connection.executemany(
        "INSERT INTO kv_snapshot_lease_tables VALUES (?, ?, ?)"
        " ON CONFLICT (lease_no, table_id) DO UPDATE SET holds = excluded.holds",
        (
            (lease_no, table_id, encode_holds(lease_id, table_id, lease.held[table_id]))
            for table_id in change.tables
            if table_id in lease.held
        ),
    )


def _decoded(
    lease_id: str, head: bytes, owner: str | None, blocks: Iterable[tuple[int, bytes]]
) -> Lease:
    try:
        held: dict[int, SnapshotsByBucket] = {
            table_id: decode_holds(lease_id, table_id, block) for table_id, block in blocks
        }
        return replace(decode_head(lease_id, head, held), owner=owner or "")
    except Unreadable as error:
        raise StorageError(
            f"KV snapshot lease {lease_id!r} cannot be read: {error}. The server does not start,"
            " because it cannot tell which snapshots to keep. Restore metadata.sqlite from a"
            f" backup, or drop the lease: `sluice leases drop {lease_id!r} --data-dir DIR`"
        ) from error
