"""The bucket counts that a cluster's metadata names, and requests that carry them.

Since Fluss 1.0 each request to a bucket names the number of buckets among which it was chosen, so
that the server can refuse one that was chosen among another number. A request to an older server
names none. See docs/fluss/keys-and-buckets.md#bucket-counts-of-partitions
"""

from __future__ import annotations

import json
import threading
from typing import Any

from sluice.errors import InvalidBucketRouting
from sluice.model import TableBucket, TablePath
from sluice.wire.apis import Api
from sluice.wire.messages.bucket_routing import Owner, routed_parts


class BucketCounts:
    """Bucket counts by table and partition. Safe for use by many threads.

    A partition keeps its count for as long as it exists, and its id is never used again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the counts
        self._counts: dict[Owner, int | None] = {}

    def learn(self, reply: Any) -> None:
        """Keeps the counts that a metadata response names; None where it names none."""
        found: dict[Owner, int | None] = {}
        unaltered: dict[int, int] = {}  # all partitions of these tables have the table's count
        for table in reply.table_metadata:
            found[table.table_id, None] = None
            if table.HasField("bucket_count_epoch"):
                count = _count_in(table.table_json)
                found[table.table_id, None] = count
                if not table.bucket_count_epoch and count is not None:
                    unaltered[table.table_id] = count
        for part in reply.partition_metadata:
            count = part.bucket_count if part.HasField("bucket_count") else None
            found[part.table_id, part.partition_id] = count or unaltered.get(part.table_id)
        with self._lock:
            self._counts |= found

    def forget(self, table_id: int) -> None:
        """Drops what is known of a table; the next request reads it again."""
        with self._lock:
            for owner in [owner for owner in self._counts if owner[0] == table_id]:
                del self._counts[owner]

    def unknown(self, api: Api, request: Any) -> set[int | None]:
        """The partitions of a request that no metadata response had yet."""
        with self._lock:
            owners = {owner for owner, _ in routed_parts(api, request)}
            return {owner[1] for owner in owners if owner not in self._counts}

    def put(self, path: TablePath, api: Api, request: Any, routed_by: int | None) -> None:
        """Writes the counts into a request.

        :param routed_by: the number of buckets among which the caller has chosen; None: it has its
            bucket from elsewhere.
        :raises InvalidBucketRouting: the partition has another number.
        """
        for owner, entry in routed_parts(api, request):
            with self._lock:
                count = self._counts.get(owner)
            if count is None:
                entry.ClearField("routing_bucket_count")
                continue
            if routed_by not in (None, count):
                where = "" if owner[1] is None else f", partition {owner[1]}"
                raise InvalidBucketRouting(
                    f"table {path}{where} has {count} buckets, but the rows or keys were assigned"
                    f" to {routed_by}: give them to a new reader or writer",
                    final=True,
                )
            entry.routing_bucket_count = count


def _count_in(descriptor: bytes) -> int | None:
    """The bucket count of a table descriptor; None if it cannot be read."""
    try:
        count = json.loads(descriptor)["bucket_count"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return count if isinstance(count, int) else None


def still_refused(
    path: TablePath, bucket: TableBucket, error: InvalidBucketRouting
) -> InvalidBucketRouting:
    """The error of a call that was refused again after the metadata was read again."""
    if error.details.get("final"):
        return error
    return InvalidBucketRouting(
        f"bucket {bucket} of table {path}: the server refuses the number of buckets that the"
        f" cluster's metadata names: {error}. Its own metadata may be old: try again later, and"
        " restart that tablet server if it stays",
        **error.details,
    )
