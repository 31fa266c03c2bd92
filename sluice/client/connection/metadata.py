"""What servers say of their cluster and of themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sluice.client.connection.addresses import Address
from sluice.errors import FlussError
from sluice.model import ServerInfo, TableBucket
from sluice.wire import apis
from sluice.wire.apis import Role

_OF_OTHERS = frozenset(
    {
        apis.ALTER_DATABASE,
        apis.DESCRIBE_CLUSTER_CONFIGS,
        apis.GET_CLUSTER_HEALTH,
        apis.LIST_KV_SNAPSHOTS,
        apis.LIST_REMOTE_LOG_MANIFESTS,
        apis.REGISTER_PRODUCER_OFFSETS,
        apis.GET_PRODUCER_OFFSETS,
        apis.DELETE_PRODUCER_OFFSETS,
    }
)
"""Calls of Fluss's clients, which this client does not make."""

_SHOWN_MAX = 4
"""Most servers whose failures one message names."""


@dataclass(frozen=True, slots=True)
class Servers:
    """The servers of the cluster, from its metadata."""

    coordinator: Address
    tablets: dict[int, Address]


def servers_in(reply: Any, entry: Address, coordinator: Address) -> Servers:
    """The servers that a metadata response names.

    :param entry: the server that responded; the others get its scheme.
    :param coordinator: the address to use if the response names no coordinator.
    """
    if reply.HasField("coordinator_server"):
        node = reply.coordinator_server
        coordinator = entry.at(node.host, node.port)
    return Servers(coordinator, {n.node_id: entry.at(n.host, n.port) for n in reply.tablet_servers})


def leaders_in(reply: Any, servers: Servers) -> dict[TableBucket, Address | None]:
    """Each bucket of a metadata response with its leader's address; None if it has no leader."""
    found: dict[TableBucket, Address | None] = {}
    owners = [(table.table_id, None, table) for table in reply.table_metadata]
    owners += [(part.table_id, part.partition_id, part) for part in reply.partition_metadata]
    for table_id, partition_id, owner in owners:
        for entry in owner.bucket_metadata:
            leader = servers.tablets.get(entry.leader_id) if entry.HasField("leader_id") else None
            found[TableBucket(table_id, partition_id, entry.bucket_id)] = leader
    return found


def is_behind(reply: Any, bucket: TableBucket) -> bool:
    """Whether the server knows only an earlier partition of the same name.

    Fluss 0.9.1 looks a partition up by its name. A tablet server that has not heard yet that it was
    dropped and created again answers with the one before, whose id is smaller.
    """
    if bucket.partition_id is None:
        return False
    known = [p.partition_id for p in reply.partition_metadata if p.table_id == bucket.table_id]
    return bool(known) and max(known) < bucket.partition_id


def server_in(reply: Any, address: Address, role: Role) -> ServerInfo:
    """A server by its response to ApiVersions."""
    offered = {api.api_key for api in reply.api_versions}
    wanted = [api for api in apis.APIS if role in api.roles and api not in _OF_OTHERS]
    lacks = tuple(api.name for api in wanted if api.key not in offered)
    version = reply.server_version if reply.HasField("server_version") else None
    return ServerInfo(str(address), role.name.lower(), version, lacks)


def combined(failures: list[FlussError]) -> FlussError:
    """The first failure; its text names those of further servers, too."""
    first = failures[0]
    texts = list(dict.fromkeys(error.message for error in failures))
    if len(texts) == 1:
        return first
    more = len(texts) - _SHOWN_MAX
    shown = "; ".join(texts[:_SHOWN_MAX]) + (f"; {more} more servers failed" if more > 0 else "")
    return type(first)(shown, **first.details)
