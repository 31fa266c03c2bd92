"""A real Airflow beside a cluster, as the demo starts it; driver.py stands for spark-submit.

Its database is SQLite, or a PostgreSQL of the test's own.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import urllib.error
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Lock
from typing import Any

import psutil
import pytest

from demo.airflow import Airflow
from demo.processes import Processes
from sluice.client import connect
from sluice.clock import SystemClock
from sluice.config import ServerConfig
from sluice.model import TablePath
from sluice.server.cluster import EmbeddedCluster
from tests.airflow.place import LONG_MS, AirflowProcess, Place, new_database, wait_until
from tests.support.clusters.postgres import running_postgres
from tests.support.programs.processes import ServerProcess

SQLITE, POSTGRES = "sqlite", "postgres"
DATABASES = [
    SQLITE,
    pytest.param(POSTGRES, marks=[pytest.mark.long, pytest.mark.xdist_group(POSTGRES)]),
]
"""Parameters of a fixture that starts an Airflow: the tests of a module run on each."""
SQL_ALCHEMY_CONN = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"
WAIT_FOR_LOCK = {
    f"AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS{mode}": "tests.airflow.sqlite_wait.CONNECT_ARGS"
    for mode in ("", "_ASYNC")
}
REFUSED_PAUSES_S = (0.5, 1.0, 2.0, 4.0)
"""Between the tries of a change that the database has refused."""
TIMEOUT_S = 400
LOOK_S = 0.25
"""Each look is one or two calls of Airflow's API."""
POOL = "lake"
SLOTS = 4
PACK_MAX = 3
"""So many tables of one row share a Spark application. A table of three rows has its own."""
TIER = "per_application.tier"
SETTLE = "per_application.settle"
DROP = "drop_lease"


class HurriedClock(SystemClock):
    """The time of day, of which a test lets some pass at once."""

    passed_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.passed_ms

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.passed_ms / 1000


class OneWriter(Airflow):
    """Sends one change at a time: on SQLite, several triggers at once hold each other up.

    A change is sent again if the API server failed: SQLite refuses one of two transactions that
    wait for each other at once, however long they may wait. Nothing is left of a refused one.
    """

    _writing = Lock()

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        if method == "GET":
            return super()._send(method, path, body)
        with self._writing:
            for pause_s in REFUSED_PAUSES_S:
                try:
                    return super()._send(method, path, body)
                except urllib.error.HTTPError as error:
                    if error.code != 500:
                        raise
                    time.sleep(pause_s)
            return super()._send(method, path, body)


class Live:
    """The running Airflow and the cluster that it tiers; one for the whole module."""

    def __init__(
        self,
        airflow: Airflow,
        place: Place,
        processes: Processes,
        clock: HurriedClock,
        tiering_timeout_ms: int,
        cluster: EmbeddedCluster,
    ) -> None:
        self.airflow, self.place, self.processes = airflow, place, processes
        self.cluster = cluster
        self.stopping = Event()
        self.servers: dict[str, ServerProcess] = {}
        """Clusters of rows that kill their own, by the DAG that tiers them."""
        self.clock, self.tiering_timeout_ms = clock, tiering_timeout_ms

    def trigger(self, *tables: str) -> str:
        return self.airflow.trigger({"tables": list(tables)})

    def state(self, run_id: str) -> str:
        return self.airflow.run_state(run_id)[0]

    def tasks(self, run_id: str) -> dict[str, str]:
        instances = self.airflow.run_state(run_id)[1]
        return {f"{t['task_id']}[{t['map_index']}]": str(t["state"]) for t in instances}

    def tiers(self, run_id: str) -> list[str]:
        """The states of the tier tasks."""
        tasks = self.tasks(run_id).items()
        return [state for name, state in tasks if name.startswith("per_application.tier")]

    def wait(self, done: Callable[[], bool], what: str) -> None:
        wait_until(done, TIMEOUT_S, what, LOOK_S)

    def ended(self, run_id: str) -> str:
        """Waits until the run and all of its tasks have ended."""
        ends = {"success", "failed", "skipped", "upstream_failed", "removed"}
        self.wait(lambda: self.state(run_id) in ("success", "failed"), f"{run_id} to end")
        self.wait(lambda: set(self.tasks(run_id).values()) <= ends, "its tasks to end")
        return self.state(run_id)

    def task(self, run_id: str, name: str, state: str) -> None:
        """Waits until that task of the run has the state."""
        self.wait(lambda: self.tasks(run_id).get(f"{name}[-1]") == state, f"{name} to be {state}")

    def pool(self, slots: int, name: str = POOL, *, include_deferred: bool = False) -> None:
        """Sets the slots of a pool; by default, of the one in which the tier tasks run."""
        mask = "?update_mask=slots&update_mask=include_deferred"
        pool = {"pool": name, "slots": slots, "include_deferred": include_deferred}
        self.airflow._send("PATCH", f"/api/v2/pools/{name}{mask}", pool)

    def stay_claimed(self, *paths: TablePath) -> None:
        """For longer than the time after which a worker is taken for lost.

        That time passes in steps, in each of which the heartbeats of three seconds come.
        """
        for _ in range(5):
            self.clock.passed_ms += self.tiering_timeout_ms * 3 // 10
            time.sleep(3)
            self.are_claimed(*paths)

    def are_claimed(self, *paths: TablePath) -> None:
        for path in paths:
            status = self.place.status(path)
            assert (status.status, status.failures) == ("Tiering", 0), status.last_error

    def has_result(self, path: TablePath) -> bool:
        """Whether a driver has tiered the table."""
        return any(list(folder.glob("result-*.json")) for folder in self._folders(path))

    def logs(self, task: str) -> str:
        root = Path(self.airflow.environment["AIRFLOW__LOGGING__BASE_LOG_FOLDER"])
        files = root.rglob(f"*task_id={task}/**/*")
        return "\n".join(path.read_text() for path in files if path.is_file())

    def program_log(self, name: str) -> str:
        """What one of Airflow's programs has printed."""
        return self.processes.log(name).read_text()

    def triggerer_is_alive(self) -> bool:
        return self.airflow._get("/api/v2/monitor/health")["triggerer"]["status"] == "healthy"

    def driver(self, marker: str) -> psutil.Process:
        """The driver that has written its process id into that file."""
        found: list[Path] = []

        def look() -> bool:
            found[:] = [p for p in self.place.work.rglob(marker) if p.read_text()]
            return bool(found)

        self.wait(look, f"a driver to write {marker}")
        return psutil.Process(int(found[0].read_text()))

    def pack(self, *names: str) -> list[TablePath]:
        """At most three tables that are due, and share one Spark application."""
        assert len(names) <= PACK_MAX
        paths = [self.place.table(name, rows=1) for name in names]
        self.place.wait(*paths)
        return paths

    def _task_path(self, run_id: str, task: str) -> str:
        return f"{self.airflow.run_path(run_id)}/taskInstances/{task}"

    def mark_tier(self, run_id: str, state: str) -> None:
        """Marks the first tier task as success or failed, like a user in the UI."""
        path = self._task_path(run_id, TIER)
        self.airflow._send("PATCH", f"{path}/0", {"new_state": state})

    def clear_tier(self, run_id: str, index: int = 0) -> list[str]:
        """Clears a tier task and what follows it, like a user in the UI.

        :returns: the cleared tasks. Airflow clears the setups of a task with it.
        """
        found = self.airflow._send(
            "POST",
            f"{self.airflow.dag_path}/clearTaskInstances",
            {
                "dry_run": False,
                "dag_run_id": run_id,
                "task_ids": [[TIER, index]],
                "only_failed": False,
                "include_downstream": True,
                "reset_dag_runs": True,
            },
        )
        return [f"{one['task_id']}[{one['map_index']}]" for one in found["task_instances"]]

    def shown(self, run_id: str, index: int, task_id: str = TIER) -> tuple[str, str]:
        """The label of a mapped task, and the tables among its rendered fields."""
        task = self.airflow._get(f"{self._task_path(run_id, task_id)}/{index}")
        return task["rendered_map_index"], task["rendered_fields"]["tables"]

    def account(self, run_id: str) -> dict[str, str]:
        """What became of each table of a run that has ended, as drop_lease says."""
        value = self.xcom(run_id, DROP, "account")
        found: dict[str, Any] = json.loads(value) if isinstance(value, str) else value
        return {one["table"]: one["became"] for one in found["tables"]}

    def xcom(self, run_id: str, task: str, key: str = "return_value") -> Any:
        """What a task of the run that is not mapped has left."""
        path = f"{self._task_path(run_id, task)}/xcomEntries/{key}"
        return self.airflow._get(f"{path}?map_index=-1&deserialize=true")["value"]

    def commands(self, path: TablePath) -> int:
        """How many drivers have begun the table."""
        return sum(len(list(folder.glob("command-*"))) for folder in self._folders(path))

    def _folders(self, path: TablePath) -> list[Path]:
        """Those of the table's rounds."""
        plans = self.place.work.rglob("plan.json")
        return [p.parent for p in plans if json.loads(p.read_text())["table"] == str(path)]


@contextmanager
def running_live(
    folder: Path,
    airflow_environment: dict[str, str],
    *,
    tiering_timeout_ms: int = LONG_MS,
    tiering_backoff_ms: int = 0,
    triggerer: bool = False,
    database: str = SQLITE,
    connections: Callable[[Place], Mapping[str, str]] = lambda _place: {},
    **more: str,
) -> Iterator[Live]:
    """Starts a cluster and an Airflow, and ends them.

    :param database: which one Airflow has, of DATABASES.
    :param tiering_timeout_ms: by default Airflow says what became of a task, not the server.
    :param connections: variables that name more connections to Airflow.
    :param more: variables of Airflow, over the usual ones.
    """
    (folder / "logs").mkdir()
    usual = {k: v for k, v in os.environ.items() if not k.startswith(("AIRFLOW", "SLUICE_"))}
    processes = Processes(folder / "logs", usual)
    config = ServerConfig(
        data_dir=str(folder / "data"),
        listen="grpc://127.0.0.1:0",
        tiering_backoff_ms=tiering_backoff_ms,
        tiering_check_interval_ms=200,
        tiering_timeout_ms=tiering_timeout_ms,
    )
    clock = HurriedClock()
    with ExitStack() as stack:
        if database == POSTGRES:
            more = {**more, SQL_ALCHEMY_CONN: stack.enter_context(running_postgres())}
        else:
            more = {**WAIT_FOR_LOCK, **more}
        cluster = stack.enter_context(EmbeddedCluster(config, clock))
        client = stack.enter_context(connect(cluster.address))
        client.admin.create_database("shop")
        none: AirflowProcess = None  # type: ignore[assignment]
        place = Place(none, client, cluster.address, folder / "work")
        settings = {**place.connection(), **_settings(airflow_environment), **more}
        settings |= connections(place)
        airflow = OneWriter(folder / "home", processes, settings, triggerer=triggerer)
        try:
            (folder / "home").mkdir()
            if database == SQLITE:
                shutil.copyfile(new_database(airflow_environment), folder / "home/airflow.db")
            airflow.prepare(has_database=database == SQLITE)
            airflow.start()
            airflow.wait_until_ready(TIMEOUT_S, lambda _: None)
            airflow._send("POST", "/api/v2/pools", {"name": POOL, "slots": SLOTS})
            yield Live(airflow, place, processes, clock, tiering_timeout_ms, cluster)
        finally:
            processes.stop_all()


def _settings(environment: dict[str, str]) -> dict[str, str]:
    return {
        **{k: v for k, v in environment.items() if k.startswith("AIRFLOW__SLUICE__")},
        "AIRFLOW__SLUICE__SCHEDULE": "none",
        "AIRFLOW__SLUICE__TIER_RETRIES": "0",
        "AIRFLOW__SLUICE__POOL": POOL,
        "AIRFLOW__SLUICE__POOL_SLOTS": str(SLOTS),
        "AIRFLOW__SLUICE__ROWS_PER_APPLICATION": str(PACK_MAX),
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "2",
        "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "2",
        "AIRFLOW__API_AUTH__JWT_ISSUER": "these tests",  # Airflow 3.1 signs nothing without one
        "AIRFLOW_CONN_SPARK_DEFAULT": environment["AIRFLOW_CONN_SPARK_DEFAULT"],
        "PYTHONPATH": environment["PYTHONPATH"],
    }
