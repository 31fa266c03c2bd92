"""Fluss's own tiering job on Flink, in one Java process with a local Flink cluster."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Protocol, Self

import psutil

from sluice.artifacts.java import java, pyspark_jars
from sluice.client import Client
from sluice.model import TablePath
from tests.support.fluss.fluss_jars import LAKE_PLUGIN, fetch_jars

HOME, JARS = "FLINK_HOME", "FLINK_JARS"
"""Environment variables: Flink's folder, and a folder with Fluss's two jars for it. Without
FLINK_HOME, the second folder has Flink's jars too."""
_NEEDED = {
    "Flink": ("flink-clients-*.jar", "flink-dist-*.jar"),
    "Fluss's connector": ("fluss-flink-1.*.jar",),
    "Fluss's tiering job": ("fluss-flink-tiering-*.jar",),
}
_MAIN = "org.apache.fluss.flink.tiering.FlussLakeTieringEntrypoint"
_LOGGING = ("slf4j-api-2*", "log4j-slf4j2-impl-*", "log4j-core-*", "log4j-api-*")
"""Jars of Spark without which the job would not log why a round failed. They come first: Flink has
an older slf4j-api."""
_HADOOP = ("hadoop-client-api-*", "hadoop-client-runtime-*", "jcl-over-slf4j-*")
_POLL = "1s"
"""How often the job asks for a table. By default 30 s, in which it would only wait."""
_HEAP = "2g"
_LOOK_S = 0.2
_TIERED_S = 600


def default_folder() -> Path:
    return Path(__file__).resolve().parents[1] / ".cache" / "flink"


def flink_jars() -> tuple[list[Path], str]:
    """The jars of Flink and of the tiering job; or none, and which are missing."""
    folder = Path(os.environ.get(JARS) or default_folder())
    found = sorted(folder.glob("*.jar"))
    if home := os.environ.get(HOME):
        found = [*sorted((Path(home) / "lib").glob("*.jar")), *found]
    missing = [
        what
        for what, patterns in _NEEDED.items()
        if not any(fnmatch(jar.name, pattern) for jar in found for pattern in patterns)
    ]
    if not missing:
        return found, ""
    return [], (
        f"no jars of {', '.join(missing)} in {folder}; run"
        f" `mvn -q -f bench/flink.xml package -Dinto={folder}`, or set {JARS} to a folder that has"
        f" them ({HOME} may name an unpacked Flink)"
    )


def _of_spark(patterns: Sequence[str]) -> list[Path]:
    """Jars of the installed PySpark."""
    return [jar for pattern in patterns for jar in pyspark_jars().glob(f"{pattern}.jar")]


class Cluster(Protocol):
    """What the job tiers: a real Fluss, or an embedded server."""

    @property
    def bootstrap(self) -> str: ...

    @property
    def warehouse(self) -> Path: ...


class FlinkJob:
    """Runs the job until the ``with`` block ends."""

    def __init__(
        self, cluster: Cluster, jars: Sequence[Path], log: Path, heap: str = _HEAP
    ) -> None:
        self._cluster, self._jars, self._log, self._heap = cluster, jars, log, heap
        self._process: subprocess.Popen[bytes] | None = None
        self._idle = 0.0

    def __enter__(self) -> Self:
        path = [*_of_spark(_LOGGING), *self._jars, fetch_jars() / LAKE_PLUGIN.name]
        path += _of_spark(_HADOOP)
        command = [
            java(), f"-Xmx{self._heap}", "--add-opens=java.base/java.nio=ALL-UNNAMED",
            "--add-opens=java.base/java.util=ALL-UNNAMED",
            "--add-opens=java.base/java.lang=ALL-UNNAMED", "-Dlog4j2.level=WARN",
            "-cp", os.pathsep.join(map(str, path)), _MAIN,
            "--fluss.bootstrap.servers", self._cluster.bootstrap.removeprefix("fluss://"),
            "--datalake.format", "iceberg", "--datalake.iceberg.type", "hadoop",
            "--datalake.iceberg.warehouse", str(self._cluster.warehouse),
            "--fluss.tiering.poll.table.interval", _POLL,
        ]  # fmt: skip
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(60)

    def has_ended(self) -> bool:
        assert self._process is not None
        return self._process.poll() is not None

    def said(self) -> str:
        """What the job has logged: warnings and errors."""
        return self._log.read_text(errors="replace")

    def cpu_s(self) -> float:
        """CPU seconds since the job started."""
        assert self._process is not None
        times = psutil.Process(self._process.pid).cpu_times()
        return float(times.user + times.system)

    def measure_idle(self, seconds: float = 10.0) -> float:
        """CPU seconds a second that the job spends on waiting, which :meth:`spent` leaves out."""
        before = self.cpu_s()
        time.sleep(seconds)
        self._idle = (self.cpu_s() - before) / seconds
        return self._idle

    def spent(self, client: Client, path: TablePath, begin: Callable[[], object]) -> float:
        """CPU seconds of the job until the lake has all of a table, less those of waiting.

        :param begin: gives the job its work. It is part of the time, in which the job may wait.
        """
        began = time.monotonic()
        before, deadline = self.cpu_s(), began + _TIERED_S
        begin()
        ends = client.admin.list_offsets(path)
        while True:
            snapshot = client.admin.lake_snapshot(path)
            tiered = {b.bucket: end for b, end in snapshot.offsets.items()} if snapshot else {}
            if tiered == ends:
                return self.cpu_s() - before - self._idle * (time.monotonic() - began)
            if self.has_ended() or time.monotonic() > deadline:
                said = self.said()[-3000:]
                raise SystemExit(f"Flink did not tier {path}: {tiered} of {ends}\n{said}")
            time.sleep(_LOOK_S)
