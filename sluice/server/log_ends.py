"""Where each log ended, in the metadata file: so a log that is gone begins no offsets anew.

While the server runs, an end is an offset that the log will not reach soon, so that it is stored
rarely. A clean stop stores the exact end.
"""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from sluice.errors import StorageError
from sluice.leases import bucket_of, key_of
from sluice.model import TableBucket
from sluice.server.storage.database import Database

RESERVED = 1 << 28
"""Offsets that are stored as given out beyond the end of a log."""

_log = structlog.get_logger("sluice.log")


class StoredLogEnds:
    """The end of each log. Its callers call it one after the other.

    ``found`` has them as at the start of the server: an offset beyond all that a log has given, and
    whether it is exactly its end.
    """

    def __init__(self, database: Database) -> None:
        """:raises StorageError: the file cannot be read."""
        self._database = database
        rows = database.query(
            "SELECT table_id, partition_id, bucket, end_offset, is_exact FROM log_ends"
        )
        self._ends: dict[TableBucket, tuple[int, bool]] = {
            bucket_of(table_id, (owner, bucket)): (end, bool(is_exact))
            for table_id, owner, bucket, end, is_exact in rows
        }
        self.found = dict(self._ends)

    def begin(self) -> None:
        """Stores that logs may grow from now on. Call it when all are open, before any append.

        A start that ends earlier keeps the exact ends for the next one.

        :raises StorageError: the file cannot be written.
        """
        with self._database.transaction() as connection:
            connection.execute(
                "UPDATE log_ends SET end_offset = end_offset + ?, is_exact = 0 WHERE is_exact",
                (RESERVED,),
            )
        for bucket, (end, is_exact) in self._ends.items():
            if is_exact:
                self._ends[bucket] = end + RESERVED, False

    def reserve(self, ends: Mapping[TableBucket, int]) -> None:
        """Stores an offset far beyond the ends of logs, unless they are below the stored one.

        An error is logged; the next call tries it again.
        """
        near = {
            bucket: end + RESERVED
            for bucket, end in ends.items()
            if end + RESERVED // 2 > self._ends.get(bucket, (0, False))[0]
        }
        self._store(near, is_exact=False)

    def close(self, ends: Mapping[TableBucket, int]) -> None:
        """Stores the exact ends of logs, which grow no more. An error is logged."""
        self._store(ends, is_exact=True)

    def drop(self, table_id: int, partition_id: int | None) -> None:
        """Forgets a dropped table or partition. :raises StorageError: it cannot be written."""
        for bucket in list(self._ends):
            if bucket.table_id == table_id and partition_id in (None, bucket.partition_id):
                del self._ends[bucket]
        if partition_id is not None:  # those of a table are deleted by cascade
            with self._database.transaction() as connection:
                connection.execute(
                    "DELETE FROM log_ends WHERE table_id = ? AND partition_id = ?",
                    (table_id, partition_id),
                )

    def _store(self, ends: Mapping[TableBucket, int], *, is_exact: bool) -> None:
        if not ends:
            return
        try:
            with self._database.transaction() as connection:
                connection.executemany(
                    "INSERT INTO log_ends SELECT ?, ?, ?, ?, ?"
                    " WHERE EXISTS (SELECT 1 FROM tables WHERE table_id = ?)"
                    " ON CONFLICT DO UPDATE"
                    " SET end_offset = excluded.end_offset, is_exact = excluded.is_exact",
                    [
                        (bucket.table_id, *key_of(bucket), end, int(is_exact), bucket.table_id)
                        for bucket, end in ends.items()
                    ],
                )
        except StorageError as error:
            _log.error("cannot store where logs end", error=str(error))
            return
        for bucket, end in ends.items():
            self._ends[bucket] = end, is_exact
