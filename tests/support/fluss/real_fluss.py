"""Runs an Apache Fluss cluster on loopback, for tests and demos.

    with RealFluss(Path("a/folder")) as fluss:
        connect(fluss.bootstrap)

ZooKeeper, one coordinator and one tablet server start in about 5 s and use about 0.6 GB of memory.
All files, logs included, are in the given folder. The servers are killed when the object stops, and
by a watchdog when this process dies.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

import click

from sluice.artifacts.java import java, pyspark_jars
from sluice.errors import FlussError, NetworkError, SluiceError
from sluice.stop_signals import StopSignals
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from tests.support.fluss.fluss_jars import VERSION, jar_names, server_jars
from tests.support.fluss.native_call import NativeCall
from tests.support.network.ports import held_port, port_of

ZOOKEEPER, COORDINATOR, TABLET = "zookeeper", "coordinator", "tablet"
_MAIN = {
    ZOOKEEPER: "org.apache.fluss.shaded.zookeeper3.org.apache.zookeeper.server.ZooKeeperServerMain",
    COORDINATOR: "org.apache.fluss.server.coordinator.CoordinatorServer",
    TABLET: "org.apache.fluss.server.tablet.TabletServer",
}
_LOGGING = """status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{HH:mm:ss.SSS} %-5p %c{1} %m%n%ex{8}
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
"""
# Ends with the pipe from its parent, however the parent died, and takes the servers along.
_WATCHDOG = """import os, signal, sys
groups = set()
for line in sys.stdin:
    groups ^= {int(line)}
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass
"""
_BIND_ATTEMPTS = 3
_POLL_S = 0.05
_END_S = 120
"""How long a killed process may take to end on a busy machine."""


class RealFlussNotStarted(SluiceError):
    """A server did not start; the message ends with the last lines of its log."""


class _PortTaken(Exception):
    """Another process took a port between its choice and its use."""


class RealFluss:
    """An Apache Fluss cluster: ZooKeeper, a coordinator and a tablet server. Not thread-safe.

    :param home: folder for configuration, data and logs, created if missing. A cluster that used
        the folder before continues with its data.
    :param jars: folder with the jars; by default they are downloaded into ``default_folder()``.
    :param version: of Fluss; the jars of others than the default must be in the folder.
    :param lake: whether to use the Iceberg plugin with a Hadoop catalog in ``warehouse``.
    :param conf: server options that override the ones set here, such as ``kv.snapshot.interval``.
    :param tablet_heap_mb: heap of the tablet server; coordinator and ZooKeeper have small heaps.
    :param heaps_mb: other heaps, by the names of the servers.
    """

    def __init__(
        self,
        home: Path,
        jars: Path | None = None,
        *,
        version: str = VERSION,
        lake: bool = True,
        conf: Mapping[str, str] | None = None,
        tablet_heap_mb: int = 512,
        heaps_mb: Mapping[str, int] | None = None,
        start_timeout_s: float = 90,
    ) -> None:
        self.home = home.resolve()
        self.warehouse = self.home / "warehouse"
        self.remote_dir = self.home / "remote"
        self.data_dir = self.home / "data"
        self._jars = jars
        self._version = version
        self._lake = lake
        self._conf = dict(conf or {})
        self._heap_mb = {ZOOKEEPER: 64, COORDINATOR: 192, TABLET: tablet_heap_mb} | dict(
            heaps_mb or {}
        )
        self._start_timeout_s = start_timeout_s
        self._ports: dict[str, int] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._log_starts: dict[str, int] = {}
        self._watchdog: subprocess.Popen[str] | None = None

    @property
    def bootstrap(self) -> str:
        """Address for clients, ``fluss://127.0.0.1:PORT``; the same after a restart."""
        return f"fluss://127.0.0.1:{self.coordinator_port}"

    @property
    def coordinator_port(self) -> int:
        return self._ports[COORDINATOR]

    @property
    def tablet_port(self) -> int:
        return self._ports[TABLET]

    def log_file(self, server: str) -> Path:
        """Log of ``zookeeper``, ``coordinator`` or ``tablet``."""
        return self.home / f"{server}.log"

    def start(self) -> str:
        """Starts servers that do not run, and returns ``bootstrap`` when a table can be created.

        :raises ConfigurationError: the jars are missing and cannot be downloaded.
        :raises RealFlussNotStarted: a server ended, or was not ready in time.
        """
        self._jars = server_jars(self._version, self._jars, lake=self._lake)
        for attempt in range(_BIND_ATTEMPTS):
            if not self._ports:
                self._ports = self._kept_ports()
            self._write_configuration()
            try:
                for server in _MAIN:
                    self._launch(server)
                    if server == ZOOKEEPER:
                        self._wait(server, lambda: _accepts(self._ports[ZOOKEEPER]))
                self._wait(COORDINATOR, self._coordinator_is_ready)
                self._wait(TABLET, self._buckets_are_served)
            except _PortTaken as error:
                self.stop()
                self._ports = {}
                if attempt + 1 == _BIND_ATTEMPTS:
                    raise RealFlussNotStarted(f"Fluss found no free ports: {error}") from error
            except BaseException:
                self.stop()
                raise
            else:
                break
        return self.bootstrap

    def stop(self) -> None:
        """Kills the servers and keeps data and logs. A second call does nothing."""
        for server in reversed(_MAIN):
            self._kill(server)
        self._end_watchdog()

    def kill_tablet(self) -> None:
        """Kills the tablet server like a crash: nothing is closed or flushed.

        With one replica, Fluss loses acknowledged rows after the last checkpoint of its high
        watermark (every 200 ms here, 5 s by default), because it restarts as a follower and
        truncates its log.
        """
        self._kill(TABLET)

    def start_tablet(self) -> None:
        """Starts the tablet server again, and returns when it leads all its buckets.

        :raises RealFlussNotStarted: the server ended, was not ready in time, or its port is in use.
            It does not run then and can be started again.
        """
        self._start_again(TABLET, self._buckets_are_served)

    def kill_coordinator(self) -> None:
        self._kill(COORDINATOR)

    def start_coordinator(self) -> None:
        """Starts the coordinator again, and returns when it leads. Its epoch stays 0 in 0.9.1.

        :raises RealFlussNotStarted: as ``start_tablet``.
        """
        self._start_again(COORDINATOR, self._coordinator_is_ready)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _kept_ports(self) -> dict[str, int]:
        """Ports that stay reserved while this object exists, even while a server is down."""
        keepers = {server: held_port() for server in _MAIN}
        for keeper in keepers.values():
            weakref.finalize(self, keeper.close)
        return {server: port_of(keeper) for server, keeper in keepers.items()}

    # ---- files ----

    def _write_configuration(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "log4j2.properties").write_text(_LOGGING)
        (self.home / "zoo.cfg").write_text(
            f"dataDir={self.home}/zookeeper\nclientPort={self._ports[ZOOKEEPER]}\n"
            "clientPortAddress=127.0.0.1\nmaxClientCnxns=0\nadmin.enableServer=false\n"
            "tickTime=2000\n"
        )
        common = {
            "zookeeper.address": f"127.0.0.1:{self._ports[ZOOKEEPER]}",
            "zookeeper.client.session-timeout": "10s",  # a restart waits for the old session
            "log.replica.high-watermark.checkpoint-interval": "200ms",  # see kill_tablet
            "default.bucket.number": "4",
            "default.replication.factor": "1",
            "data.dir": str(self.data_dir),
            "remote.data.dir": str(self.remote_dir),
        }
        if self._lake:
            common |= {
                "datalake.enabled": "true",
                "datalake.format": "iceberg",
                "datalake.iceberg.type": "hadoop",
                "datalake.iceberg.warehouse": str(self.warehouse),
            }
            self._link_plugin()
        for server, own in ((COORDINATOR, {}), (TABLET, {"tablet-server.id": "0"})):
            listen = {"bind.listeners": f"FLUSS://127.0.0.1:{self._ports[server]}"}
            options = common | self._conf | listen | own
            folder = self.home / f"conf-{server}"
            folder.mkdir(exist_ok=True)
            lines = (f"{key}: {value}\n" for key, value in options.items())
            (folder / "server.yaml").write_text("".join(lines))

    def _link_plugin(self) -> None:
        assert self._jars is not None
        folder = self.home / "plugins" / "iceberg"
        folder.mkdir(parents=True, exist_ok=True)
        _, plugin = jar_names(self._version)
        wanted = [self._jars / plugin]
        for pattern in ("hadoop-client-api-*", "hadoop-client-runtime-*", "jcl-over-slf4j-*"):
            wanted += pyspark_jars().glob(f"{pattern}.jar")
        for jar in wanted:
            link = folder / jar.name
            link.unlink(missing_ok=True)
            link.symlink_to(jar.resolve())

    @property
    def class_path(self) -> str:
        """The classes of Fluss's servers, and ZooKeeper's own commands."""
        assert self._jars is not None
        path: list[Path] = []  # Spark's logging goes first: the server's jar has an older slf4j
        for pattern in ("slf4j-api-*", "log4j-api-*", "log4j-core-*", "log4j-slf4j2-impl-*"):
            path += pyspark_jars().glob(f"{pattern}.jar")
        path.append(self._jars / jar_names(self._version)[0])
        return ":".join(map(str, path))

    def _command(self, server: str) -> list[str]:
        config = self.home / "zoo.cfg" if server == ZOOKEEPER else self.home / f"conf-{server}"
        return [
            java(), f"-Xmx{self._heap_mb[server]}m", "-XX:+UseSerialGC",
            *(["-XX:TieredStopAtLevel=1"] if server == ZOOKEEPER else []),
            "--add-opens=java.base/java.nio=ALL-UNNAMED",  # for Arrow
            f"-Dlog4j2.configurationFile={self.home / 'log4j2.properties'}",
            "-cp", self.class_path, _MAIN[server],
            *([] if server == ZOOKEEPER else ["--configDir"]), str(config),
        ]  # fmt: skip

    # ---- processes ----

    def _start_again(self, server: str, ready: Callable[[], bool]) -> None:
        """Starts a server again on its old port, which clients know."""
        try:
            self._launch(server)
            self._wait(server, ready)
        except _PortTaken as error:
            self._kill(server)
            raise RealFlussNotStarted(
                f"another process uses port {self._ports[server]} of the Fluss {server} server,"
                f" which did not run: {error}"
            ) from error
        except BaseException:
            self._kill(server)
            raise

    def _launch(self, server: str) -> None:
        if server in self._processes:
            return
        self._watch()
        with self.log_file(server).open("ab") as log:
            self._log_starts[server] = log.tell()
            process = subprocess.Popen(
                self._command(server),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.home,
                env=os.environ | {"FLUSS_PLUGINS_DIR": str(self.home / "plugins")},
                start_new_session=True,
            )
        self._processes[server] = process
        self._tell_watchdog(process.pid)

    def _kill(self, server: str) -> None:
        process = self._processes.pop(server, None)
        if process is None:
            return
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(_END_S)
        self._tell_watchdog(process.pid)

    def _watch(self) -> None:
        """Starts a watchdog for all running servers, also after an earlier watchdog has died."""
        if self._watchdog is not None and self._watchdog.poll() is None:
            return
        self._end_watchdog()
        self._watchdog = subprocess.Popen(
            [sys.executable, "-S", "-c", _WATCHDOG],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for process in self._processes.values():
            self._tell_watchdog(process.pid)

    def _tell_watchdog(self, group: int) -> None:
        """Adds a process group to the watchdog or removes it; does nothing if the watchdog died."""
        if self._watchdog is not None and self._watchdog.stdin is not None:
            with suppress(BrokenPipeError):
                self._watchdog.stdin.write(f"{group}\n")
                self._watchdog.stdin.flush()

    def _end_watchdog(self) -> None:
        if self._watchdog is not None and self._watchdog.stdin is not None:
            with suppress(BrokenPipeError):  # data that was not sent raises again here
                self._watchdog.stdin.close()
            self._watchdog.wait(_END_S)
        self._watchdog = None

    # ---- readiness ----

    def _wait(self, server: str, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + self._start_timeout_s
        while True:
            for name, process in self._processes.items():
                if process.poll() is not None:
                    end = self._log_end(name)
                    if "Address already in use" in end or "BindException" in end:
                        raise _PortTaken(end.strip().rpartition("\n")[2])
                    raise RealFlussNotStarted(
                        f"the Fluss {name} server exited with code {process.returncode};"
                        f" the last lines of {self.log_file(name)}:\n{end}"
                    )
            try:
                if ready():
                    return
                last = "not ready"
            except FlussError as error:
                last = str(error)
            if time.monotonic() > deadline:
                raise RealFlussNotStarted(
                    f"the Fluss {server} server was not ready within {self._start_timeout_s} s"
                    f" ({last});"
                    f" the last lines of {self.log_file(server)}:\n{self._log_end(server)}"
                )
            time.sleep(_POLL_S)

    def _log_end(self, server: str) -> str:
        """The end of the server's log since its last start."""
        with self.log_file(server).open("rb") as log:
            log.seek(self._log_starts.get(server, 0))
            return log.read().decode(errors="replace")[-3000:]

    def _coordinator_is_ready(self) -> bool:
        """Whether the coordinator leads (error 65 before) and knows a running tablet server."""
        with NativeCall(self.coordinator_port, timeout_s=5) as coordinator:
            coordinator.call(apis.LIST_DATABASES, pb.ListDatabasesRequest())
            known = coordinator.call(apis.GET_METADATA, pb.MetadataRequest()).tablet_servers
        ports = {node.port for node in known}
        return TABLET not in self._processes or self.tablet_port in ports

    def _buckets_are_served(self) -> bool:
        """Whether the tablet server leads every bucket of every table."""
        with (
            NativeCall(self.coordinator_port, timeout_s=5) as coordinator,
            NativeCall(self.tablet_port, timeout_s=5) as tablet,
        ):
            if not tablet.call(apis.GET_METADATA, pb.MetadataRequest()).tablet_servers:
                return False
            databases = coordinator.call(apis.LIST_DATABASES, pb.ListDatabasesRequest())
            for database in databases.database_name:
                listed = coordinator.call(
                    apis.LIST_TABLES, pb.ListTablesRequest(database_name=database)
                )
                for table in listed.table_name:
                    path = pb.PbTablePath(database_name=database, table_name=table)
                    if not _serves(coordinator, tablet, path):
                        return False
        return True


def _serves(coordinator: NativeCall, tablet: NativeCall, path: pb.PbTablePath) -> bool:
    request = pb.MetadataRequest(table_path=[path])
    found = coordinator.call(apis.GET_METADATA, request).table_metadata[0]
    logs = [(None, found.bucket_metadata)]
    if not found.bucket_metadata:
        listed = coordinator.call(
            apis.LIST_PARTITION_INFOS, pb.ListPartitionInfosRequest(table_path=path)
        )
        request.partitions_id.extend(p.partition_id for p in listed.partitions_info)
        partitions = coordinator.call(apis.GET_METADATA, request).partition_metadata
        logs = [(p.partition_id, p.bucket_metadata) for p in partitions]
    for partition_id, buckets in logs:
        answer = tablet.call(
            apis.LIST_OFFSETS,
            pb.ListOffsetsRequest(
                follower_server_id=-1,
                offset_type=1,
                table_id=found.table_id,
                partition_id=partition_id,
                bucket_id=[b.bucket_id for b in buckets],
            ),
        )
        if any(bucket.error_code for bucket in answer.buckets_resp):
            return False
    return True


def _accepts(port: int) -> bool:
    try:
        NativeCall(port, timeout_s=1).close()
    except NetworkError:
        return False
    return True


@click.command()
@click.option(
    "--home", type=click.Path(path_type=Path), required=True, help="Folder for all files."
)
@click.option(
    "--version",
    default=VERSION,
    show_default=True,
    help="Version of Fluss; the jars of another one must be in the folder of jars.",
)
@click.option("--lake/--no-lake", default=True, help="Load the Iceberg plugin (default).")
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="Server option; repeatable.")
def main(home: Path, version: str, lake: bool, conf: tuple[str, ...]) -> None:
    """Run an Apache Fluss cluster on loopback ports until Ctrl+C."""
    wrong = [option for option in conf if "=" not in option]
    if wrong:
        raise click.UsageError(f"--conf {wrong[0]}: expected KEY=VALUE")
    options = {key: value for key, _, value in (option.partition("=") for option in conf)}
    end = StopSignals()
    try:
        with RealFluss(home, version=version, lake=lake, conf=options) as fluss:
            click.echo(fluss.bootstrap)
            end.wait()
    except SluiceError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
