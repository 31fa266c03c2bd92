"""All calls, each once: Fluss's api key, the messages, and the servers that serve it.

See docs/fluss/rpc.md#api-keys and docs/fluss/messages.md

Both transports and the server are driven by this table; nothing else knows method names or keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from google.protobuf.message import Message

from sluice.wire import fluss_api_pb2 as pb


class Role(Enum):
    """The server that serves a call; the value is the ``server_type`` of ApiVersions."""

    COORDINATOR = 1
    TABLET = 2


BOTH = frozenset(Role)
COORDINATOR = frozenset({Role.COORDINATOR})
TABLET = frozenset({Role.TABLET})

SERVICE = {Role.COORDINATOR: "fluss.CoordinatorService", Role.TABLET: "fluss.TabletService"}


@dataclass(frozen=True, slots=True)
class Api:
    """One call. ``idempotent``: sending it again after an unknown outcome changes nothing more."""

    key: int
    name: str
    request: type[Message]
    response: type[Message]
    roles: frozenset[Role]
    idempotent: bool
    max_version: int = 0
    """The newest version that Sluice supports; it supports all from 0."""

    def grpc_method(self, role: Role) -> str:
        return f"/{SERVICE[role]}/{self.name}"


def _api(
    key: int,
    name: str,
    roles: frozenset[Role],
    *,
    idempotent: bool,
    messages: str = "",
    max_version: int = 0,
) -> Api:
    messages = messages or name
    request, response = getattr(pb, f"{messages}Request"), getattr(pb, f"{messages}Response")
    return Api(key, name, request, response, roles, idempotent, max_version)


def _read(
    key: int, name: str, roles: frozenset[Role] = BOTH, messages: str = "", max_version: int = 0
) -> Api:
    return _api(key, name, roles, idempotent=True, messages=messages, max_version=max_version)


def _write(key: int, name: str, roles: frozenset[Role] = COORDINATOR, max_version: int = 0) -> Api:
    return _api(key, name, roles, idempotent=False, max_version=max_version)


API_VERSIONS = _read(1000, "ApiVersions")
CREATE_DATABASE = _write(1001, "CreateDatabase")
DROP_DATABASE = _write(1002, "DropDatabase")
LIST_DATABASES = _read(1003, "ListDatabases")
DATABASE_EXISTS = _read(1004, "DatabaseExists")
CREATE_TABLE = _write(1005, "CreateTable")
DROP_TABLE = _write(1006, "DropTable")
GET_TABLE_INFO = _read(1007, "GetTableInfo")
LIST_TABLES = _read(1008, "ListTables")
LIST_PARTITION_INFOS = _read(1009, "ListPartitionInfos")
TABLE_EXISTS = _read(1010, "TableExists")
GET_TABLE_SCHEMA = _read(1011, "GetTableSchema")
GET_METADATA = _read(1012, "GetMetadata", messages="Metadata")
# Sent again with the same writer id and batch sequence, a batch is stored once.
# From version 1 it may name a historical partition, and so may PutKv from 3.
PRODUCE_LOG = _api(1014, "ProduceLog", TABLET, idempotent=False, max_version=1)
FETCH_LOG = _read(1015, "FetchLog", TABLET)
# From version 1 the client knows kv format 2, from 2 the error code 72. With the same writer id and
# batch sequence, a batch is stored once here too.
PUT_KV = _write(1016, "PutKv", TABLET, max_version=3)
LOOKUP = _read(1017, "Lookup", TABLET, max_version=1)
LIST_OFFSETS = _read(1021, "ListOffsets", TABLET)
GET_LATEST_KV_SNAPSHOTS = _read(1023, "GetLatestKvSnapshots")
# From version 1 the client knows stored values with a time.
GET_KV_SNAPSHOT_METADATA = _read(1024, "GetKvSnapshotMetadata", max_version=1)
GET_FILESYSTEM_SECURITY_TOKEN = _read(1025, "GetFileSystemSecurityToken")
# A writer id that no client uses costs nothing.
INIT_WRITER = _read(1026, "InitWriter", TABLET)
COMMIT_LAKE_TABLE_SNAPSHOT = _write(1030, "CommitLakeTableSnapshot")
GET_LAKE_SNAPSHOT = _read(1032, "GetLakeSnapshot")
LIMIT_SCAN = _read(1033, "LimitScan", TABLET)
PREFIX_LOOKUP = _read(1034, "PrefixLookup", TABLET, max_version=1)
GET_DATABASE_INFO = _read(1035, "GetDatabaseInfo")
CREATE_PARTITION = _write(1036, "CreatePartition")
DROP_PARTITION = _write(1037, "DropPartition")
LAKE_TIERING_HEARTBEAT = _write(1042, "LakeTieringHeartbeat")
# From version 1 it may change the number of buckets.
ALTER_TABLE = _write(1044, "AlterTable", max_version=1)
DESCRIBE_CLUSTER_CONFIGS = _read(1045, "DescribeClusterConfigs")
# Each call writes a new offsets file; one that is never committed only takes space.
PREPARE_LAKE_TABLE_SNAPSHOT = _read(1052, "PrepareLakeTableSnapshot", COORDINATOR)
# Sent again it says that they exist, as the first call of another process would see it.
REGISTER_PRODUCER_OFFSETS = _write(1053, "RegisterProducerOffsets")
GET_PRODUCER_OFFSETS = _read(1054, "GetProducerOffsets", COORDINATOR)
DELETE_PRODUCER_OFFSETS = _write(1055, "DeleteProducerOffsets")
ACQUIRE_KV_SNAPSHOT_LEASE = _read(1056, "AcquireKvSnapshotLease", COORDINATOR)
RELEASE_KV_SNAPSHOT_LEASE = _read(1057, "ReleaseKvSnapshotLease", COORDINATOR)
DROP_KV_SNAPSHOT_LEASE = _read(1058, "DropKvSnapshotLease", COORDINATOR)
GET_TABLE_STATS = _read(1059, "GetTableStats", TABLET)
ALTER_DATABASE = _write(1060, "AlterDatabase")
SCAN_KV = _write(1061, "ScanKv", TABLET)
GET_CLUSTER_HEALTH = _read(1062, "GetClusterHealth")
LIST_REMOTE_LOG_MANIFESTS = _read(1063, "ListRemoteLogManifests", COORDINATOR)
LIST_KV_SNAPSHOTS = _read(1064, "ListKvSnapshots", COORDINATOR)
LIST_TIERING_STATUSES = _read(2001, "ListTieringStatuses")
RENEW_KV_SNAPSHOT_LEASE = _read(2002, "RenewKvSnapshotLease", COORDINATOR)
LIST_KV_SNAPSHOT_LEASES = _read(2003, "ListKvSnapshotLeases", COORDINATOR)
# Requests a state, not a change: a repetition changes nothing more.
CONTROL_TIERING = _read(2004, "ControlTiering", COORDINATOR)
LIST_TIERING_ROUNDS = _read(2005, "ListTieringRounds", COORDINATOR)
LIST_DAMAGE = _read(2006, "ListDamage", COORDINATOR)
# Names the damage: a repetition finds nothing to skip.
SKIP_DAMAGE = _write(2007, "SkipDamage", COORDINATOR)

APIS: tuple[Api, ...] = tuple(value for value in list(globals().values()) if type(value) is Api)
BY_KEY: dict[int, Api] = {api.key: api for api in APIS}
