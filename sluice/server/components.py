"""The parts of the embedded cluster: coordinator, tablet, storage and listeners, connected."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import structlog

from sluice.clock import Clock, SystemClock
from sluice.config import DatalakeConfig, ServerConfig
from sluice.errors import StorageError
from sluice.model import TableInfo
from sluice.scans import ScanLimits
from sluice.server.coordinator.calls.catalog_calls import CoordinatorService
from sluice.server.coordinator.calls.cluster_calls import ClusterService, fluss_settings
from sluice.server.coordinator.calls.kv_snapshot_calls import KvSnapshotService
from sluice.server.coordinator.calls.lease_calls import LeaseService
from sluice.server.coordinator.calls.producer_offsets import ProducerOffsets
from sluice.server.coordinator.calls.tiering_calls import TieringService
from sluice.server.coordinator.catalog.catalog import Catalog
from sluice.server.coordinator.catalog.descriptor_rules import Defaults
from sluice.server.coordinator.catalog.lake_rules import ServerLake
from sluice.server.coordinator.leases.kv_snapshots import KvSnapshots
from sluice.server.coordinator.leases.leases import KvSnapshotLeases
from sluice.server.coordinator.leases.store import SqliteLeaseStore
from sluice.server.coordinator.tiering.auto_partitioner import AutoPartitioner
from sluice.server.coordinator.tiering.lake_lag import LakeLag
from sluice.server.coordinator.tiering.lake_options import lake_options
from sluice.server.coordinator.tiering.lake_snapshots import LakeSnapshots
from sluice.server.coordinator.tiering.tiering import Tiering
from sluice.server.data_dir import DataDir
from sluice.server.listen_addresses import ListenAddress
from sluice.server.listeners import Listener, ListenerSecurity
from sluice.server.log_ends import StoredLogEnds
from sluice.server.metadata import MetadataService, Servers, api_versions
from sluice.server.storage.database import Database
from sluice.server.tablet.buckets.files import LogFiles
from sluice.server.tablet.buckets.replicas import Replicas
from sluice.server.tablet.buckets.routing import with_routing_checked
from sluice.server.tablet.calls.damage_calls import DamageService
from sluice.server.tablet.calls.kv_calls import KvService
from sluice.server.tablet.calls.log_calls import TabletService
from sluice.server.tablet.calls.scan_calls import ScanService
from sluice.server.tablet.calls.stats_calls import StatsService
from sluice.server.tablet.kv.auto_increment import AutoIncrement
from sluice.server.tablet.kv.manager import KvManager
from sluice.server.tablet.kv.scan_manager import ScannerManager
from sluice.server.tablet.kv.snapshotter import KvSnapshotter
from sluice.server.tablet.kv.store import KvResources
from sluice.server.tablet.kv.tablet import Environment
from sluice.server.tablet.logs.fetch import Fetcher
from sluice.server.tablet.logs.manager import LogManager
from sluice.server.tablet.logs.retention import DEFAULT_TTL, LogRetention, Needs
from sluice.server.time_limit import TimeLimit
from sluice.server.writer_ids import StoredWriterIds
from sluice.wire import apis
from sluice.wire.apis import Api, Role
from sluice.wire.listeners.handlers import Handler, Handlers

if TYPE_CHECKING:
    from sluice.server.metrics import Metrics

_FORWARDED = (apis.LIST_TIERING_STATUSES,)
"""Calls to the tablet server that the coordinator answers, so that no copy is stale."""

NO_LAKE = "none"
"""The value of ``datalake.format`` for a server without a lake."""

HANDLERS_S = 1.0
"""Time for handlers that still run after the grace period, if a stop has a limit."""

_log = structlog.get_logger("sluice.server")


class Components:
    """The components of a started cluster."""

    def __init__(
        self, config: ServerConfig, clock: Clock, datalake: DatalakeConfig, files: LogFiles
    ) -> None:
        self._config = config
        self._clock = clock
        lake_format = None if datalake.format == NO_LAKE else datalake.format
        lake = ServerLake(lake_format, datalake.enabled != "false")
        self._defaults = Defaults(config.default_bucket_count, lake)
        self._lake_options = lake_options(datalake)
        self._files = files
        self._listeners: list[Listener] = []
        self._stopping = threading.Event()
        self._snapshot_starter = threading.Thread(
            target=self._begin_snapshots, name="kv-snapshots-begin", daemon=True
        )
        self._metrics = _metrics_of(config)
        self.data_dir = DataDir.open(config.data_dir)
        try:
            self._database = Database(self.data_dir.database)
        except BaseException:
            self.data_dir.close()
            raise
        try:
            self.catalog = Catalog(self._database, clock)
            self.tiering = Tiering(
                self._database,
                clock,
                config.tiering_timeout_ms,
                config.tiering_backoff_ms,
                on_ended=lambda ended: self._metrics.ended(ended) if self._metrics else None,
            )
            self._lake = LakeSnapshots(self.data_dir.lake, self._database, self.catalog, clock)
            self._leases, self._kv_snapshots = self._leased_snapshots(config, clock)
            self._logs = self._log_manager()
            self.tiering_service = TieringService(
                self.catalog, self.tiering, LakeLag(self._lake, self._logs.beyond, clock)
            )
            self._replicas = Replicas(self.catalog)
            self._lease_calls = LeaseService(self.catalog, self._leases, self._kv_snapshots)
            self._snapshot_calls = KvSnapshotService(self.catalog, self._kv_snapshots)
            self._producers = ProducerOffsets(self._database, clock)
            self._kv = self._kv_manager(config, files)
            self._damage_calls = DamageService(self.catalog, self._logs, self._kv)
            self._cluster_calls = ClusterService(
                self.catalog,
                self._damage_calls.refuses,
                fluss_settings(config, lake_format, self._lake_options),
            )
            self.auto_partitioner = AutoPartitioner(
                self.catalog, self._lake, self._logs.drop_within, self._drop_data, clock
            )
            self.scanners = _scanner_manager(self._kv, clock, config)
            self.retention = self._retention()
            self._fetcher = Fetcher(
                self.catalog,
                self._logs,
                self._replicas,
                clock,
                max_bytes=config.max_message_bytes,
                waiting_max=config.max_workers // 2,
            )
        except BaseException:
            self._database.close()
            self.data_dir.close()
            raise

    def _leased_snapshots(
        self, config: ServerConfig, clock: Clock
    ) -> tuple[KvSnapshotLeases, KvSnapshots]:
        """Leases and KV snapshots know each other: what is leased is kept."""
        leases = KvSnapshotLeases(
            SqliteLeaseStore(self._database),
            clock,
            self.catalog.has_partition,
            lambda: self._kv_snapshots.retain(),
        )
        snapshots = KvSnapshots(
            self.data_dir.remote / "kv",
            self._database,
            self.catalog,
            num_retained=max(config.kv_snapshot_num_retained, 1),
            is_leased=leases.is_leased,
        )
        return leases, snapshots

    def _log_manager(self) -> LogManager:
        return LogManager(
            self.data_dir.log,
            self.catalog,
            self._lake.offsets,
            self._files,
            self._config.segment_bytes,
            self._clock,
            StoredLogEnds(self._database),
            self._kv_snapshots.covered,
            is_same_boot=self.data_dir.is_same_boot,
        )

    def _kv_manager(self, config: ServerConfig, files: LogFiles) -> KvManager:
        resources = KvResources(
            block_cache_bytes=config.kv_block_cache_bytes,
            write_buffer_bytes=config.kv_write_buffer_bytes,
            open_max=config.kv_max_open_tablets,
        )
        environment = Environment(
            resources,
            files,
            self._kv_snapshots,
            config.max_message_bytes,
            AutoIncrement(self._database.reserve_numbers),
            self._clock,
        )
        manager = KvManager(self.data_dir.kv, self.catalog, self._logs, self._replicas, environment)
        self.kv_snapshotter = KvSnapshotter(
            self.catalog,
            manager,
            self._kv_snapshots,
            resources,
            files,
        )
        return manager

    def _retention(self) -> LogRetention:
        since_ms, is_first = self._database.first_value("log_ttl_since_ms", self._clock.now_ms())
        tables = self.catalog.tables()
        if is_first and tables:
            _log.warning(
                "this version deletes log segments that are older than table.log.ttl, counted from"
                " now on; set it to 0 for tables that must keep their log",
                tables=len(tables),
                default=DEFAULT_TTL,
            )
        needs = Needs(
            self._lake.offsets, self._kv_snapshots.oldest_offset, self.scanners.oldest_offset
        )
        return LogRetention(self.catalog, self._logs, needs, self._clock, since_ms)

    def _drop_data(self, info: TableInfo, partition_id: int | None) -> None:
        """Deletes what is stored of a dropped table or partition: users before what they use."""
        for holder in (self._replicas, self._kv, self._logs, self._kv_snapshots, self._leases):
            holder.drop_table(info, partition_id)

    def start(self, listen: Sequence[ListenAddress], security: ListenerSecurity) -> tuple[str, ...]:
        """Starts all components, then listens; returns the bound addresses."""
        self._logs.start(self._config.sync_interval_ms)
        self.data_dir.record_boot()
        self._writer_ids = StoredWriterIds(self._database, self._logs.highest_writer_id())
        self._kv.start()
        self.scanners.start(self._config.kv_scanner_expiration_interval_ms)
        self._leases.start(self._config.kv_snapshot_lease_check_interval_ms)
        tables = [entry.info for entry in self.catalog.tables()]
        self.tiering.start(tables, self._config.tiering_check_interval_ms)
        self._lake.start()
        self.catalog.create_default_database()
        self.auto_partitioner.start(self._config.auto_partition_check_interval_ms)
        self._listeners = [
            Listener(place, self._handlers, self._config, security) for place in listen
        ]
        for listener in self._listeners:
            listener.start()
        if self._metrics is not None:
            self._metrics.start(self.tiering_service.statuses, self._lease_calls.sizes)
        self._snapshot_starter.start()
        self.retention.start(self._config.log_ttl_check_interval_ms)
        return tuple(listener.address for listener in self._listeners)

    @property
    def metrics_address(self) -> str:
        return "" if self._metrics is None else self._metrics.address

    def _begin_snapshots(self) -> None:
        """Deletes leftover snapshot files, then starts the snapshotter; slow with many buckets."""
        try:
            self._kv_snapshots.tidy_up(self._stopping.is_set)
        except (StorageError, OSError) as error:
            # A folder may disappear while it is listed, because its table was dropped. Each later
            # snapshot and the next start try again.
            _log.error("old KV snapshots were not deleted", error=str(error))
        if not self._stopping.is_set():
            self.kv_snapshotter.start(self._config.kv_snapshot_interval_ms)

    def wait_for_snapshots(self) -> None:
        """Waits until leftover snapshot files are deleted, if their deletion has started."""
        if self._snapshot_starter.ident is not None:
            self._snapshot_starter.join()

    def stop(self, grace_s: float, within_s: float | None) -> bool:
        """Returns whether everything has ended. If not, the next start recovers what was left.

        In the order of its worth: answers to calls, synced logs, closed stores, closed logs. The
        sync precedes work in the background, as a KV snapshot can take longer than the limit.
        """
        limit = TimeLimit(within_s, SystemClock())
        self._fetcher.stop()
        self._stopping.set()
        handlers_s = None if within_s is None else HANDLERS_S
        idle = self._stop_listeners(limit, grace_s, handlers_s)
        unsynced = self._logs.sync_all(limit)
        idle.append(
            limit.run(
                lambda: self._metrics.stop() if self._metrics is not None else None,
                self.retention.stop,
                self.auto_partitioner.stop,
                self.tiering.stop,
                self._leases.stop,
                self.wait_for_snapshots,
                self.kv_snapshotter.stop,
                self.scanners.stop,
            )
        )
        # A store that is still in use, or that is not closed, catches up from its log.
        left = [not all(idle) or self._kv.stop(limit) > 0, self._logs.stop(limit) > 0]
        if not any(left):  # else a thread may still write there
            self._database.close()
            self.data_dir.close()
        if unsynced or any(left):
            _log.warning(
                "the stop took too long, so some stores and logs were not closed: the next start"
                " recovers them, and nothing acknowledged is lost unless the power fails before"
                " the system has written it",
                unsynced_logs=unsynced,
            )
        return not unsynced and not any(left)

    def _stop_listeners(
        self, limit: TimeLimit, grace_s: float, handlers_s: float | None
    ) -> list[bool]:
        """Stops all listeners at once; returns for each whether its handlers have ended."""
        ended: dict[Listener, bool] = dict.fromkeys(self._listeners, False)

        def stop(listener: Listener) -> None:
            ended[listener] = listener.stop(grace_s, handlers_s)

        limit.each(self._listeners, stop, len(self._listeners))
        return list(ended.values())

    def _handlers(self, servers: Callable[[], Servers], more: Mapping[Api, Handler]) -> Handlers:
        """The handlers of both roles; ``more`` holds calls of one kind of listener."""
        metadata = MetadataService(
            self.catalog,
            self._lake,
            self.tiering.coordinator_epoch,
            self.data_dir.remote.as_uri(),
            servers,
            self._lake_options,
        )
        coordinator = CoordinatorService(
            self.catalog,
            self.tiering,
            self._lake,
            self._drop_data,
            self._logs.sync,
            self._defaults,
            self.auto_partitioner,
        )
        kv = KvService(
            self.catalog,
            self._kv,
            self._writer_ids,
            max_batch_rows=self._config.max_batch_rows,
            max_bytes=self._config.max_message_bytes,
        )
        tablet = TabletService(
            self.catalog,
            self._logs,
            self._fetcher,
            kv,
            ScanService(self.scanners),
            self._replicas,
            self._writer_ids,
            self._clock,
            max_batch_rows=self._config.max_batch_rows,
            max_bytes=self._config.max_message_bytes,
        )
        whole = self._cluster_calls
        both = {
            **metadata.handlers(),
            **self._snapshot_calls.handlers(),
            **whole.handlers(),
            **more,
        }
        coordinators = {
            **both,
            **coordinator.handlers(),
            **self.tiering_service.handlers(),
            **self._snapshot_calls.coordinator_handlers(),
            **whole.coordinator_handlers(),
            **self._producers.handlers(),
            **self._lease_calls.handlers(),
            **self._damage_calls.handlers(),
        }
        forwarded = {api: coordinators[api] for api in _FORWARDED if api in coordinators}
        stats = StatsService(self.catalog, self._logs, self._kv, self._replicas)
        of_buckets = with_routing_checked(self.catalog, {**tablet.handlers(), **stats.handlers()})
        tablets = {**both, **of_buckets, **forwarded}
        return {
            Role.COORDINATOR: _with_versions(Role.COORDINATOR, coordinators),
            Role.TABLET: _with_versions(Role.TABLET, tablets),
        }


def _metrics_of(config: ServerConfig) -> Metrics | None:
    """The metrics if configured, else None, because their library is slow to load."""
    if not config.metrics:
        return None
    from sluice.server.metrics import Metrics

    return Metrics(config)


def _scanner_manager(stores: KvManager, clock: Clock, config: ServerConfig) -> ScannerManager:
    limits = ScanLimits(
        ttl_ms=config.kv_scanner_ttl_ms,
        per_bucket_max=config.kv_scanner_max_per_bucket,
        per_server_max=config.kv_scanner_max_per_server,
        batch_bytes_max=config.kv_scanner_max_batch_bytes,
        replay_bytes_max=config.kv_scanner_max_replay_bytes,
    )
    return ScannerManager(stores, clock, limits, message_bytes_max=config.max_message_bytes)


def _with_versions(role: Role, calls: Mapping[Api, Handler]) -> Mapping[Api, Handler]:
    assert all(role in api.roles for api in calls)
    return {**calls, apis.API_VERSIONS: api_versions(role, calls)}
