"""A standalone Spark cluster of the installed pyspark: a master, and workers that a test may kill.

Every process that comes from it, executors and their Pythons too, has a variable with the name of
the cluster. What still lives when the block ends is killed by it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
import urllib.request
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sluice.artifacts.java import pyspark_jars
from tests.support.programs.living import living
from tests.support.programs.processes import environment, wait_for

MARK = "SLUICE_TEST_CLUSTER"
QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Each process lives for a test."""
WORKER_MEMORY = "1g"
EXECUTOR_MEMORY = "700m"
_ADDRESS = re.compile(r"Starting Spark master at (spark://\S+)")
_UI = re.compile(r"Bound MasterWebUI to .* and started at (http://\S+)")
_START_S = 120.0


class SparkCluster:
    """A master and two workers of one core each.

    The workers' environment has no PYTHONPATH, so their Pythons know what is installed, and what an
    application sends or says.
    """

    def __init__(self, home: Path, workers: int = 2) -> None:
        self._home, self._count = home, workers
        self._id = uuid.uuid4().hex
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: dict[str, subprocess.Popen[bytes]] = {}
        self.address = self._ui = ""

    def __enter__(self) -> SparkCluster:
        self._home.mkdir(parents=True, exist_ok=True)
        try:
            log = self._home / "master.log"
            self._master = self._start("master", ["--port", "0", "--webui-port", "0"])
            self.address = self._said(log, _ADDRESS)
            self._ui = self._said(log, _UI)
            self.complete()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def complete(self) -> None:
        """Starts a worker for each that was lost, and waits until all can be used."""
        while len(self._workers) < self._count:
            name = f"worker-{uuid.uuid4().hex[:8]}"
            folder = str(self._home / name)
            words = ["--port", "0", "--webui-port", "0", "--cores", "1"]
            words += ["--memory", WORKER_MEMORY, "--work-dir", folder, self.address]
            self._workers[name] = self._start(name, words)
        wait_for(f"{self._count} workers", lambda: self._alive() == self._count, _START_S)

    def _alive(self) -> int:
        with urllib.request.urlopen(f"{self._ui}/json/", timeout=30) as answer:
            workers = json.load(answer)["workers"]
        return Counter(worker["state"] for worker in workers)["ALIVE"]

    def _start(self, name: str, words: Sequence[str]) -> subprocess.Popen[bytes]:
        kind = "master.Master" if name == "master" else "worker.Worker"
        spark = pyspark_jars().parent
        variables = environment(
            {
                MARK: self._id,
                "SPARK_HOME": str(spark),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_DAEMON_MEMORY": "256m",
                "SPARK_DAEMON_JAVA_OPTS": f"{QUICK} -Dspark.master.rest.enabled=false",
            }
        )
        variables.pop("PYTHONPATH", None)
        with (self._home / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [f"{spark}/bin/spark-class", f"org.apache.spark.deploy.{kind}"]
                + ["--host", "127.0.0.1", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=variables,
                start_new_session=True,
            )

    def _said(self, log: Path, what: re.Pattern[str]) -> str:
        def found() -> re.Match[str] | None:
            assert self._master is not None
            assert self._master.poll() is None, f"the master ended:\n{log.read_text()[-3000:]}"
            return what.search(log.read_text())

        wait_for(f"{what.pattern} in {log}", found, _START_S)
        match = found()
        assert match is not None
        return match[1]

    def lose_a_worker(self) -> None:
        """Kills a worker, its executors and their Pythons at once, as if a machine was lost."""
        name, process = next(iter(self._workers.items()))
        folder = str(self._home / name)
        process.send_signal(signal.SIGSTOP)  # it starts no executor meanwhile
        doomed = [p.pid for p in self._processes() if folder in self._folder(p.pid)]
        for pid in [process.pid, *doomed]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(30)
        del self._workers[name]
        assert doomed, "the worker had no executor"

    def _folder(self, pid: int) -> str:
        """Executors work in a folder of their worker, and their Pythons too."""
        try:
            return str(Path(f"/proc/{pid}/cwd").readlink())
        except OSError:
            return ""

    def _processes(self) -> list[Any]:
        return living(lambda variables: variables.get(MARK) == self._id)

    def close(self) -> None:
        deadline = time.monotonic() + 30
        while found := self._processes():
            for process in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
            for child in (self._master, *self._workers.values()):
                if child is not None:
                    child.wait(30)
            assert time.monotonic() < deadline, f"cannot end {found}"


def tasks_by_executor(events: Path) -> Counter[str]:
    """How many tasks each executor has finished well, by an application's event log."""
    return Counter(
        event["Task Info"]["Executor ID"]
        for event in _events(events, "SparkListenerTaskEnd")
        if event["Task End Reason"]["Reason"] == "Success"
    )


def lost_tasks(events: Path) -> int:
    """How many tasks have ended with their executors."""
    ends = _events(events, "SparkListenerTaskEnd")
    return sum(event["Task End Reason"]["Reason"] == "ExecutorLostFailure" for event in ends)


def executors_of(events: Path) -> int:
    """How many executors an application got."""
    return len(_events(events, "SparkListenerExecutorAdded"))


def _events(folder: Path, kind: str) -> list[Mapping[str, Any]]:
    [file] = [path for path in folder.rglob("*") if path.is_file() and "app-" in path.name]
    found = [json.loads(line) for line in file.read_text().splitlines()]
    return [event for event in found if event["Event"] == kind]
