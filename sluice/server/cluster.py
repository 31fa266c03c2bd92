"""The embedded cluster: a server in this process, from its configuration to its end."""

from __future__ import annotations

from pathlib import Path

import structlog

from sluice.clock import Clock, SystemClock
from sluice.config import DatalakeConfig, ServerConfig
from sluice.did_you_mean import did_you_mean
from sluice.errors import ConfigurationError
from sluice.model import TableBucket, TablePath
from sluice.server.components import NO_LAKE, Components
from sluice.server.listen_addresses import listen_addresses
from sluice.server.listeners import ListenerSecurity, check_free
from sluice.server.tablet.buckets.files import LogFiles

_LAKE_FORMATS = ("iceberg", NO_LAKE)

_log = structlog.get_logger("sluice.server")


class EmbeddedCluster:
    """Coordinator and tablet in one process, with one or several listeners. Start it once.

    The format of ``datalake`` decides how rows are bucketed, and clients get its options with
    tiered tables. ``files`` writes logs and KV snapshots to disk; tests may pass their own
    implementation.
    """

    def __init__(
        self,
        config: ServerConfig,
        clock: Clock | None = None,
        *,
        datalake: DatalakeConfig | None = None,
        files: LogFiles | None = None,
    ) -> None:
        """Checks the configuration; opens no file of the data directory yet.

        :param datalake: its format is ``iceberg``, or ``none`` for a server without a lake; by
            default ``iceberg``, without options.
        :raises ConfigurationError: the data directory is not set, an address or the lake's format
            is not allowed, or a file of TLS or users cannot be used.
        """
        datalake = datalake or DatalakeConfig()
        if datalake.format not in _LAKE_FORMATS:
            raise ConfigurationError(
                f"datalake.format={datalake.format!r} is not supported by this server: use iceberg,"
                " or none for a server without a lake"
                f"{did_you_mean(datalake.format, _LAKE_FORMATS)}"
            )
        if not config.data_dir:
            raise ConfigurationError("server.data_dir is not set: set it, or pass --data-dir")
        self._security = ListenerSecurity.of(config)
        self._listen = listen_addresses(
            config.listen,
            insecure=config.insecure,
            tls=self._security.tls is not None,
            tokens=self._security.tokens is not None,
            advertised=config.advertised_listeners,
        )
        self._config = config
        self._clock = clock or SystemClock()
        self._datalake = datalake
        self._files = files or LogFiles()
        self._parts: Components | None = None
        self._addresses: tuple[str, ...] = ()
        self.metrics_address = ""
        """The URL of the metrics, set by ``start``; empty without metrics."""

    @property
    def address(self) -> str:
        """The first address with its bound port. Call ``start`` first."""
        return self.addresses[0]

    @property
    def addresses(self) -> tuple[str, ...]:
        """grpc://HOST:PORT or fluss://HOST:PORT of the coordinator for each listener."""
        assert self._addresses, "not started"
        return self._addresses

    def start(self) -> str:
        """Opens the data directory, recovers from a crash, and listens; returns the first address.

        :raises DataDirLocked, UnknownDataDirFormat, DataDirError: the directory cannot be used.
        :raises LogStorageError, StorageError: its files are damaged beyond what a crash explains.
        :raises ConfigurationError: an address cannot be bound.
        """
        assert self._parts is None, "started already"
        if not Path(
            self._config.data_dir
        ).exists():  # do not create it for a server that cannot start
            for place in self._listen:
                check_free(place)
        parts = Components(self._config, self._clock, self._datalake, self._files)
        try:
            self._addresses = parts.start(self._listen, self._security)
        except BaseException:
            parts.stop(0, None)
            raise
        self._parts = parts
        self.metrics_address = parts.metrics_address
        _log.info(
            "server started",
            addresses=self.addresses,
            data_dir=str(parts.data_dir.root),
            coordinator_epoch=parts.tiering.coordinator_epoch,
            tables=len(parts.catalog.tables()),
        )
        return self.address

    def stop(self, grace_s: float = 5, within_s: float | None = None) -> bool:
        """Waits at most ``grace_s`` for calls in progress, then syncs and closes everything.

        :param within_s: time for all of this; what then is left is recovered at the next start, for
            which this process must have ended. None: no limit.
        :return: whether everything was closed.
        """
        parts, self._parts = self._parts, None
        if parts is None:
            return True
        ended = parts.stop(grace_s, within_s)
        _log.info("server stopped", addresses=self.addresses)
        return ended

    def take_kv_snapshots(self, path: TablePath) -> dict[TableBucket, int]:
        """Takes a KV snapshot of each changed bucket of a table; returns the new ids by bucket.

        :raises TableNotExist: the table does not exist.
        :raises FlussError: as `KvSnapshotter.take`.
        """
        assert self._parts is not None, "not started"
        self._parts.wait_for_snapshots()
        table, take = self._parts.catalog.table(path), self._parts.kv_snapshotter.take
        taken = {bucket: take(bucket) for bucket in table.buckets()}
        return {bucket: number for bucket, number in taken.items() if number is not None}

    def __enter__(self) -> EmbeddedCluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
