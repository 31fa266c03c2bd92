"""Where the requests to buckets carry the number of buckets among which they were chosen.

See docs/fluss/keys-and-buckets.md#bucket-counts-of-partitions
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sluice.wire import apis
from sluice.wire.apis import Api

Owner = tuple[int, int | None]
"""Table id and partition id."""

_OF_BUCKETS = frozenset(
    {apis.PRODUCE_LOG, apis.PUT_KV, apis.LOOKUP, apis.PREFIX_LOOKUP, apis.GET_TABLE_STATS}
)
_OF_PARTITION = frozenset({apis.LIST_OFFSETS, apis.LIMIT_SCAN})

ROUTED = _OF_BUCKETS | _OF_PARTITION | {apis.FETCH_LOG, apis.SCAN_KV}
"""The calls whose requests have such parts."""


def routed_parts(api: Api, request: Any) -> Iterator[tuple[Owner, Any]]:
    """The parts of a request with a field ``routing_bucket_count``, and what each belongs to."""
    if api is apis.FETCH_LOG:
        for table in request.tables_req:
            for part in table.buckets_req:
                yield (table.table_id, _partition(part)), part
    elif api in _OF_BUCKETS:
        for part in request.buckets_req:
            yield (request.table_id, _partition(part)), part
    elif api in _OF_PARTITION:
        yield (request.table_id, _partition(request)), request
    elif api is apis.SCAN_KV and request.HasField("bucket_scan_req"):
        part = request.bucket_scan_req
        yield (part.table_id, _partition(part)), part


def _partition(part: Any) -> int | None:
    return part.partition_id if part.HasField("partition_id") else None
