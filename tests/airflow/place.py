"""Airflow beside a real embedded cluster, for tests that drive both."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa

from sluice.client import Client
from sluice.formats.types.types import schema_from_arrow
from sluice.model import TableDescriptor, TablePath, TieringStatus

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LONG_MS = 3_600_000
"""Before it a claim is not taken back, however slow the test in which nobody keeps it."""


def wait_until(done: Callable[[], bool], timeout_s: float, what: str, look_s: float = 0.05) -> None:
    """Looks every ``look_s`` seconds; fails with what was waited for."""
    deadline = time.monotonic() + timeout_s
    while not done():
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s} s"
        time.sleep(look_s)


def airflow_home(home: Path, driver: Path) -> dict[str, str]:
    """Makes an Airflow's home folder and database; answers the environment that names them.

    :param driver: script that stands for spark-submit.
    """
    binary = home / "spark-submit"
    binary.write_text(f'#!/bin/sh\nexec {sys.executable} {driver} "$@"\n')
    binary.chmod(0o755)
    ours = {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__TEST_CONNECTION": "Enabled",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "AIRFLOW__SLUICE__SPARK_BINARY": str(binary),
        "AIRFLOW__SLUICE__TIER_RETRY_DELAY_SECONDS": "0",
        "AIRFLOW__SLUICE__HEARTBEAT_INTERVAL_SECONDS": "1",
        "AIRFLOW_CONN_SPARK_DEFAULT": '{"conn_type": "spark", "host": "local[1]"}',
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "plugins", ROOT / "spark_jobs"))),
        "PYTHONWARNINGS": "ignore",
    }
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("AIRFLOW", "SLUICE_"))}
    environment = {**kept, **ours}
    shutil.copyfile(new_database(environment), home / "airflow.db")
    return environment


def new_database(environment: dict[str, str]) -> Path:
    """A new database of this Airflow, made once for a checkout: it takes 7 CPU seconds."""
    folder = ROOT / ".cache/airflow"
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / f"{version('apache-airflow')}.db"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            with tempfile.TemporaryDirectory(dir=folder) as home:
                new = Path(home) / "airflow.db"
                there = {
                    "AIRFLOW_HOME": home,
                    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{new}",
                }
                done = subprocess.run(
                    [sys.executable, "-m", "airflow", "db", "migrate"],
                    env={**environment, **there},
                    cwd=home,
                    capture_output=True,
                    text=True,
                    timeout=600,
                )
                assert done.returncode == 0, done.stderr[-4000:]
                new.replace(made)  # whole, or not there
    return made


def results_of(run: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What the tier tasks of a run left of each table that they tiered."""
    return _by_table(run, "results")


def failures_of(run: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What the tier tasks of a run left of each table that failed."""
    return _by_table(run, "failures")


def settled_of(run: dict[str, Any]) -> dict[str, dict[str, str]]:
    """What the settle tasks of a run reported, by table."""
    found = {n: x for n, x in run["xcoms"].items() if n.startswith("per_application.settle")}
    return {one["table"]: one for values in found.values() for one in values["verdicts"]}


def claimed_in(run: dict[str, Any]) -> list[dict[str, Any]]:
    """The tables that acquire_lease claimed."""
    packs = run["xcoms"]["acquire_lease"]["return_value"]
    return [table for pack in packs for table in pack["tables"]]


def only(by_table: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """That of the only table."""
    [one] = by_table.values()
    return one


def _by_table(run: dict[str, Any], key: str) -> dict[str, dict[str, Any]]:
    found = {n: x for n, x in run["xcoms"].items() if n.startswith("per_application.tier")}
    return {name: one for values in found.values() for name, one in values.get(key, {}).items()}


class AirflowProcess:
    """The worker beside us: one question and one answer at a time."""

    def __init__(self, home: Path, environment: dict[str, str]) -> None:
        self.environment = environment
        self.log = home / "worker.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, HERE / "worker.py"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                cwd=home,
                text=True,
            )

    def ask(self, ask: str, **request: Any) -> dict[str, Any]:
        """Sends a question; fails with the end of the worker's log if it has no answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"ask": ask, **request}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "the worker ended"}
        assert "error" not in answer, f"{answer['error']}\n{self.log.read_text()[-4000:]}"
        return answer

    def ask_and_wait(self, ask: str, **request: Any) -> int:
        """Sends a question that the worker does not survive; answers its exit code."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"ask": ask, **request}) + "\n")
        self._process.stdin.close()  # a worker that survives ends by itself
        try:
            return self._process.wait(500)
        finally:
            self._process.kill()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


@dataclass
class Place:
    """A cluster, a client of it, a work folder, and Airflow beside them."""

    airflow: AirflowProcess
    client: Client
    address: str
    work: Path

    @property
    def lake(self) -> Path:
        """Where the connection says that the lake is; driver.py writes nothing there."""
        return self.work.with_name("lake")

    def table(self, name: str, rows: int = 3, freshness: str = "1 s") -> TablePath:
        """A lake table with some rows, waiting to be tiered; driver.py reads its name."""
        path = TablePath("shop", name)
        data = pa.table({"id": pa.array(range(rows), pa.int64())})
        descriptor = TableDescriptor(
            schema=schema_from_arrow(data.schema),
            bucket_count=1,
            properties={"table.datalake.enabled": "true", "table.datalake.freshness": freshness},
        )
        self.client.admin.create_table(path, descriptor)
        with self.client.log_writer(path) as writer:
            writer.write(data)
        return path

    def status(self, path: TablePath) -> TieringStatus:
        [status] = self.client.statuses.list(path)
        return status

    def wait(self, *paths: TablePath) -> None:
        """Until they are due; from then on their freshness is a day.

        What a round leaves Scheduled is so however late it is looked at.
        """
        what = f"{', '.join(map(str, paths))} to be Pending"
        wait_until(lambda: all(self.status(p).status == "Pending" for p in paths), 60, what)
        for path in paths:
            self.client.admin.set_options(path, {"table.datalake.freshness": "1d"})

    def nothing_is_held(self) -> None:
        """No claim of any table, and no lease of any run."""
        assert [s.path for s in self.client.statuses.list() if s.status == "Tiering"] == []
        assert self.client.leases.all() == []

    def connection(self, **extra: Any) -> dict[str, str]:
        """The environment that names this cluster to Airflow."""
        host, port = self.address.removeprefix("grpc://").split(":")
        content = {
            "conn_type": "fluss",
            "host": host,
            "port": int(port),
            "extra": {
                "work_uri": f"file://{self.work}",
                "datalake": {"iceberg.type": "hadoop", "iceberg.warehouse": str(self.lake)},
                **extra,
            },
        }
        return {"AIRFLOW_CONN_FLUSS_DEFAULT": json.dumps(content)}

    def started(self, running: Future[dict[str, Any]]) -> Path:
        """The file that the driver of a run writes when it begins, and works on for long."""

        def look() -> bool:
            assert not running.done(), f"it ended before: {running.result()}"
            with suppress(FileNotFoundError):  # the checks of a run make this folder and remove it
                return any(file.read_text() for file in self.work.rglob("started"))
            return False

        wait_until(look, 400, "a driver")
        [found] = self.work.rglob("started")
        return found

    def run(
        self,
        conf: dict[str, Any] | None = None,
        logical_date: str | None = None,
        *,
        file: str | None = None,
        run_type: str = "manual",
        **environment: str,
    ) -> dict[str, Any]:
        """One run of the DAG, with these variables over the usual ones.

        :param file: the DAG file, if it is not ours.
        :param run_type: ``manual`` or ``scheduled``.
        """
        return self.airflow.ask(
            "run",
            conf=conf,
            logical_date=logical_date,
            file=file,
            run_type=run_type,
            environment={**self.connection(), **environment},
        )
