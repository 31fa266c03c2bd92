"""The role that each call requires, if the server has a users file.

As in Fluss, readers may also take leases, because a KV snapshot is read under a lease. Writers may
create and drop partitions. Tiering requires ``write``, because it commits lake snapshots.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType

from sluice.wire import apis
from sluice.wire.apis import Api


class Access(IntEnum):
    """The access of a token; each one includes the access before it."""

    READ = 1
    WRITE = 2
    ADMIN = 3

    @property
    def role(self) -> str:
        """The role of the users file that has this access."""
        return self.name.lower()


_READ = (
    apis.API_VERSIONS,
    apis.LIST_DATABASES,
    apis.DATABASE_EXISTS,
    apis.GET_DATABASE_INFO,
    apis.LIST_TABLES,
    apis.TABLE_EXISTS,
    apis.GET_TABLE_INFO,
    apis.GET_TABLE_SCHEMA,
    apis.LIST_PARTITION_INFOS,
    apis.GET_METADATA,
    apis.FETCH_LOG,
    apis.LIST_OFFSETS,
    apis.GET_TABLE_STATS,
    apis.LOOKUP,
    apis.PREFIX_LOOKUP,
    apis.LIMIT_SCAN,
    apis.SCAN_KV,
    apis.GET_LATEST_KV_SNAPSHOTS,
    apis.GET_KV_SNAPSHOT_METADATA,
    apis.LIST_KV_SNAPSHOTS,
    apis.ACQUIRE_KV_SNAPSHOT_LEASE,
    apis.RENEW_KV_SNAPSHOT_LEASE,
    apis.RELEASE_KV_SNAPSHOT_LEASE,
    apis.DROP_KV_SNAPSHOT_LEASE,
    apis.LIST_KV_SNAPSHOT_LEASES,
    apis.GET_FILESYSTEM_SECURITY_TOKEN,
    apis.GET_LAKE_SNAPSHOT,
    apis.LIST_TIERING_STATUSES,
    apis.LIST_TIERING_ROUNDS,
    apis.LIST_DAMAGE,
    apis.DESCRIBE_CLUSTER_CONFIGS,
    apis.GET_CLUSTER_HEALTH,
    apis.LIST_REMOTE_LOG_MANIFESTS,
    apis.GET_PRODUCER_OFFSETS,
)
_WRITE = (
    apis.INIT_WRITER,
    apis.PRODUCE_LOG,
    apis.PUT_KV,
    apis.CREATE_PARTITION,
    apis.DROP_PARTITION,
    apis.LAKE_TIERING_HEARTBEAT,
    apis.PREPARE_LAKE_TABLE_SNAPSHOT,
    apis.COMMIT_LAKE_TABLE_SNAPSHOT,
    apis.REGISTER_PRODUCER_OFFSETS,
    apis.DELETE_PRODUCER_OFFSETS,
)
_ADMIN = (
    apis.CREATE_DATABASE,
    apis.ALTER_DATABASE,
    apis.DROP_DATABASE,
    apis.CREATE_TABLE,
    apis.DROP_TABLE,
    apis.ALTER_TABLE,
    apis.CONTROL_TIERING,
    apis.SKIP_DAMAGE,
)

NEEDS: Mapping[Api, Access] = MappingProxyType(
    {
        api: access
        for access, calls in ((Access.READ, _READ), (Access.WRITE, _WRITE), (Access.ADMIN, _ADMIN))
        for api in calls
    }
)
"""The access for each call of :mod:`sluice.wire.apis`; a test checks that none is missing."""


OWNED: Mapping[Api, str] = MappingProxyType(
    {
        apis.SCAN_KV: "a scan is its user's alone",
        apis.ACQUIRE_KV_SNAPSHOT_LEASE: "a lease is its user's; an admin may add to it",
        apis.RENEW_KV_SNAPSHOT_LEASE: "a lease is its user's; an admin may renew it",
        apis.RELEASE_KV_SNAPSHOT_LEASE: "a lease is its user's; an admin may release it",
        apis.DROP_KV_SNAPSHOT_LEASE: "a lease is its user's; an admin may drop it",
    }
)
"""Calls on what belongs to one user, with the rule. docs/security.md shows both tables, and tests
check them."""


def required_access(api: Api) -> Access:
    """Returns the access that a call requires: ``ADMIN`` for a call that is not listed here."""
    return NEEDS.get(api, Access.ADMIN)
