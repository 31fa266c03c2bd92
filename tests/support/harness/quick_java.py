"""Java as tests start it: few threads, the simple compiler, and classes from an archive.

``python -m tests.support.harness.quick_java`` makes a folder with a ``java`` that adds options for
the programs it knows, and class-data archives of them. ``use()`` makes it the Java of this process
and of all that it starts. The archives are valid for one Java and one set of jars: the folder is
named for both. Without the folder tests run the same, with two to three times the CPU time a start.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sluice.artifacts.java import java, pyspark_jars
from sluice.driver.lakes.jvm import Jvm
from sluice.errors import ConfigurationError
from tests.support.fluss.fluss_jars import LAKE_PLUGIN, SERVER, default_folder, fetch_jars

ROOT = Path(__file__).resolve().parents[3]
PLACE = ROOT / ".cache/quick-java"
JARS = ROOT / ".cache/jars"
WORKLOAD_TIMEOUT_S = 300
PROGRAMS = (
    "org.apache.spark.launcher.Main",
    "org.apache.spark.deploy.SparkSubmit",
    "py4j.GatewayServer",
    "org.apache.fluss.shaded.zookeeper3.org.apache.zookeeper.server.ZooKeeperServerMain",
    "org.apache.fluss.server.coordinator.CoordinatorServer",
    "org.apache.fluss.server.tablet.TabletServer",
)
_MAKING = "QUICK_JAVA_MAKES_ARCHIVES"
# A variable such as JAVA_TOOL_OPTIONS would do, but has Java say so on each standard error.
_SHIM = """#!/bin/sh
home=${{0%/bin/java}}
for word in "$@"; do
  case $word in
    {programs})
      archive=$home/archives/$word.jsa
      if [ -n "${{{making}:-}}" ]; then
        exec {java} -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xlog:disable \\
          -XX:ArchiveClassesAtExit="$archive" "$@"
      fi
      exec {java} -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto -Xlog:disable \\
        -Xlog:all=error:stderr -XX:SharedArchiveFile="$archive" "$@" ;;
  esac
done
exec {java} "$@"
"""


def use() -> None:
    """Makes it the Java of this process and its children, if it has been made."""
    if (home := folder()).is_dir():
        os.environ["JAVA_HOME"] = str(home)


def folder() -> Path:
    """Where it is, for this Java and these jars, if it is."""
    if "JAVA_HOME" in os.environ and Path(os.environ["JAVA_HOME"]).parent == PLACE:
        return Path(os.environ["JAVA_HOME"])
    known = hashlib.sha256(Path(__file__).read_bytes())
    real = Path(shutil.which(java()) or java()).resolve()
    for path in (real, *sorted(_jars())):
        if path.is_file():
            known.update(f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}\n".encode())
    return PLACE / known.hexdigest()[:16]


def _jars() -> Iterator[Path]:
    yield from pyspark_jars().glob("*.jar")
    yield from JARS.glob("*.jar")
    yield from (default_folder() / jar.name for jar in (SERVER, LAKE_PLUGIN))


def make() -> None:
    """Makes it, unless it is there; others that make it at the same time wait."""
    PLACE.mkdir(parents=True, exist_ok=True)
    with (PLACE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with contextlib.suppress(ConfigurationError):  # said by the tests that need them
            fetch_jars()
        if (made := folder()).is_dir():
            return
        print("Java's class-data archives for tests (once for these jars)", flush=True)
        for old in PLACE.iterdir():
            if old.is_dir():
                shutil.rmtree(old)
        home = Path(tempfile.mkdtemp(dir=PLACE))
        _write_home(home)
        _archive(home)
        home.rename(made)


def _write_home(home: Path) -> None:
    """A Java home like the real one, but for its ``java``."""
    real = Path(shutil.which(java()) or java()).resolve()
    for path in real.parents[1].iterdir():
        if path.name != "bin":
            (home / path.name).symlink_to(path)
    (home / "archives").mkdir()
    (home / "bin").mkdir()
    for tool in real.parent.iterdir():
        if tool.name != "java":
            (home / "bin" / tool.name).symlink_to(tool)
    shim = home / "bin/java"
    shim.write_text(_SHIM.format(programs=" | ".join(PROGRAMS), java=real, making=_MAKING))
    shim.chmod(0o755)


def _archive(home: Path) -> None:
    """Runs each kind of program once. A missing archive costs time, and nothing else."""
    environment = {**os.environ, "JAVA_HOME": str(home), _MAKING: "1", "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory() as temporary:
        running = {}
        for name in WORKLOADS:
            work = Path(temporary) / name
            work.mkdir()
            with (work / "log").open("wb") as log:
                running[name] = subprocess.Popen(
                    [sys.executable, "-m", "tests.support.harness.quick_java", name, str(work)],
                    env=environment,
                    cwd=work,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        for name, process in running.items():
            try:
                code = process.wait(WORKLOAD_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                code = process.wait()
            if code:
                said = (Path(temporary) / name / "log").read_text(errors="replace")[-2000:]
                print(f"no archive of {name} (exit code {code}): {said}", file=sys.stderr)


# -- what the programs are to have loaded when they end


def spark(work: Path) -> None:
    """A session like that of the tests, writing and reading an Iceberg table."""
    from tests.support.clusters.spark_session import start_session

    session = start_session(work / "warehouse")
    for key, value in {"": "SparkCatalog", ".type": "hadoop", ".warehouse": f"{work}/lake"}.items():
        value = f"org.apache.iceberg.spark.{value}" if not key else value
        session.conf.set(f"spark.sql.catalog.lake{key}", value)
    session.sql("CREATE TABLE lake.db.t (n BIGINT, text STRING) USING iceberg")
    session.sql("INSERT INTO lake.db.t VALUES (1, 'a'), (2, 'b')")
    session.sql("SELECT count(*), max(text) FROM lake.db.t GROUP BY n ORDER BY 1").collect()
    session.sql("SELECT * FROM lake.db.t.files").collect()
    process = session.sparkContext._gateway.proc
    session.stop()
    process.stdin.close()
    process.wait(WORKLOAD_TIMEOUT_S)


def tier(work: Path) -> None:
    """A table of the embedded server is tiered once, without Spark."""
    import pyarrow as pa

    from sluice.client import connect
    from sluice.config import ClientConfig, Config, DatalakeConfig, ServerConfig
    from sluice.driver.local import tier_once
    from sluice.formats.types.types import schema_from_arrow
    from sluice.model import TableDescriptor, TablePath
    from sluice.server.cluster import EmbeddedCluster

    path, rows = TablePath("db", "t"), pa.table({"n": pa.array([1, 2], pa.int64())})
    properties = {"table.datalake.enabled": "true", "table.datalake.freshness": "0s"}
    server = ServerConfig(data_dir=str(work / "data"), listen="grpc://127.0.0.1:0")
    with EmbeddedCluster(server) as cluster, connect(cluster.address) as client:
        client.admin.create_database("db")
        client.admin.create_table(
            path, TableDescriptor(schema_from_arrow(rows.schema), properties=properties)
        )
        with client.log_writer(path) as writer:
            writer.write(rows)
        lake = DatalakeConfig("iceberg", {"type": "hadoop", "warehouse": str(work / "lake")})
        with Jvm(str(JARS)) as jvm:
            tier_once(Config(client=ClientConfig(cluster.address), datalake=lake), path, jvm=jvm)
            jvm.gateway.shutdown()
            assert jvm._process.stdin is not None
            jvm._process.stdin.close()
            jvm._process.wait(WORKLOAD_TIMEOUT_S)


def fluss(work: Path) -> None:
    """The servers of a real Fluss, stopped by the signal that lets them end."""
    from sluice.client import connect
    from tests.support.fluss.real_fluss import RealFluss

    with RealFluss(work / "fluss") as servers:
        with connect(servers.bootstrap) as client:
            client.admin.create_database("db")
        for process in servers._processes.values():
            process.terminate()
        for process in servers._processes.values():
            process.wait(WORKLOAD_TIMEOUT_S)


WORKLOADS = {"spark": spark, "tier": tier, "fluss": fluss}


def main(arguments: list[str]) -> int:
    if arguments:
        name, work = arguments
        WORKLOADS[name](Path(work))
    else:
        make()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
