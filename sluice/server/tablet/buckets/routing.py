"""Refuses requests whose buckets were chosen among another number of buckets.

See docs/fluss/keys-and-buckets.md#bucket-counts-of-partitions
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sluice.errors import InvalidBucketRouting
from sluice.server.tablet.buckets.ports import HostedTable, Tables
from sluice.wire.apis import Api
from sluice.wire.listeners.handlers import Handler
from sluice.wire.messages.bucket_routing import ROUTED, Owner, routed_parts


def with_routing_checked(tables: Tables, handlers: Mapping[Api, Handler]) -> dict[Api, Handler]:
    """Handlers that check each request before they serve it, as Fluss 1.0 does."""
    return {
        api: _checked(tables, api, handler) if api in ROUTED else handler
        for api, handler in handlers.items()
    }


def _checked(tables: Tables, api: Api, handler: Handler) -> Handler:
    def handle(request: Any) -> Any:
        if getattr(request, "follower_server_id", -1) >= 0:
            return handler(request)  # from a server, which has its buckets from the coordinator
        for owner, part in routed_parts(api, request):
            table = tables.find(owner[0])
            if table is not None:  # else the call itself says so
                _check(table, owner, part)
        return handler(request)

    return handle


def _check(table: HostedTable, owner: Owner, part: Any) -> None:
    count = table.bucket_count(owner[1])
    if not count:
        return  # of a dropped partition, which the call itself finds
    where = f"table {table.info.path}" + ("" if owner[1] is None else f", partition {owner[1]}")
    if not part.HasField("routing_bucket_count"):
        if table.bucket_count_epoch:
            raise InvalidBucketRouting(
                f"{where} has {count} buckets; the request does not name the number among which"
                " its bucket was chosen, as is necessary once bucket.num was altered: use a client"
                " of Fluss 1.0"
            )
    elif part.routing_bucket_count != count:
        raise InvalidBucketRouting(
            f"{where} has {count} buckets, but the request's bucket was chosen among"
            f" {part.routing_bucket_count}: read the metadata again"
        )
