"""Calls about the cluster as a whole: its settings, its health, its remote logs.

See docs/fluss/messages.md#calls-about-the-cluster
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sluice.config import ServerConfig
from sluice.errors import PartitionNotExists, UnknownTableOrBucket
from sluice.model import TableBucket
from sluice.server.coordinator.catalog.catalog import Catalog
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Api
from sluice.wire.listeners.handlers import Handler
from sluice.wire.messages import values

_NUMBERS = {
    "default.bucket.number": "default_bucket_count",
    "kv.scanner.max-per-bucket": "kv_scanner_max_per_bucket",
    "kv.scanner.max-per-server": "kv_scanner_max_per_server",
    "kv.snapshot.num-retained": "kv_snapshot_num_retained",
}
_BYTES = {
    "kv.rocksdb.block.cache-size": "kv_block_cache_bytes",
    "kv.scanner.max-batch-size": "kv_scanner_max_batch_bytes",
    "log.segment.file-size": "segment_bytes",
    "netty.server.max-request-size": "max_message_bytes",
}
_TIMES = {
    "auto-partition.check.interval": "auto_partition_check_interval_ms",
    "kv.scanner.expiration-interval": "kv_scanner_expiration_interval_ms",
    "kv.scanner.ttl": "kv_scanner_ttl_ms",
    "kv.snapshot.interval": "kv_snapshot_interval_ms",
    "kv.snapshot.lease.expiration-check-interval": "kv_snapshot_lease_check_interval_ms",
    "netty.connection.max-idle-time": "idle_timeout_ms",
}
_INITIAL = "INITIAL_SERVER_CONFIG"
"""The source of a setting that was there when the server started: nothing changes one later."""


def fluss_settings(
    config: ServerConfig, lake_format: str | None, lake_options: Mapping[str, str]
) -> dict[str, str]:
    """The server's settings under Fluss's names, without those that Fluss does not have.

    :param lake_options: those that tiered tables show, so without secrets.
    """
    found = {name: f"{getattr(config, ours)}" for name, ours in _NUMBERS.items()}
    found |= {name: f"{getattr(config, ours)}b" for name, ours in _BYTES.items()}
    found |= {name: f"{getattr(config, ours)}ms" for name, ours in _TIMES.items()}
    found["default.replication.factor"] = "1"
    if lake_format is not None:
        found["datalake.format"] = lake_format
    found |= {name.removeprefix("table."): value for name, value in lake_options.items()}
    return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class ClusterService:
    """Handlers of these calls. Stateless."""

    _catalog: Catalog
    _refuses: Callable[[TableBucket], bool]
    """Whether a bucket's leader refuses its calls because of damage."""
    _settings: Mapping[str, str]

    def handlers(self) -> Mapping[Api, Handler]:
        """The handlers of both roles."""
        return {
            apis.DESCRIBE_CLUSTER_CONFIGS: self.describe_cluster_configs,
            apis.GET_CLUSTER_HEALTH: self.get_cluster_health,
        }

    def coordinator_handlers(self) -> Mapping[Api, Handler]:
        return {apis.LIST_REMOTE_LOG_MANIFESTS: self.list_remote_log_manifests}

    def describe_cluster_configs(
        self,
        request: pb.DescribeClusterConfigsRequest,  # noqa: ARG002
    ) -> pb.DescribeClusterConfigsResponse:
        response = pb.DescribeClusterConfigsResponse()
        for name, value in self._settings.items():
            response.configs.add(config_key=name, config_value=value, config_source=_INITIAL)
        return response

    def get_cluster_health(
        self,
        request: pb.GetClusterHealthRequest,  # noqa: ARG002
    ) -> pb.GetClusterHealthResponse:
        """Counts replicas: each bucket has one, which leads it."""
        buckets = active = 0
        for entry in self._catalog.tables():
            for bucket in entry.buckets():
                buckets += 1
                active += not self._refuses(bucket)
        return pb.GetClusterHealthResponse(
            num_replicas=buckets,
            in_sync_replicas=buckets,
            num_leader_replicas=buckets,
            active_leader_replicas=active,
            status=values.HEALTH_GREEN if active == buckets else values.HEALTH_RED,
        )

    def list_remote_log_manifests(
        self, request: pb.ListRemoteLogManifestsRequest
    ) -> pb.ListRemoteLogManifestsResponse:
        """Returns none, because this server copies no log segments to remote storage.

        :raises UnknownTableOrBucket, PartitionNotExists: there is no such table or partition.
        """
        if self._catalog.find(request.table_id) is None:
            raise UnknownTableOrBucket(f"no table has the id {request.table_id}")
        partition_id = request.partition_id if request.HasField("partition_id") else None
        if not self._catalog.has_partition(request.table_id, partition_id):
            raise PartitionNotExists(
                f"table id {request.table_id} has no partition with the id {partition_id}"
            )
        return pb.ListRemoteLogManifestsResponse()
