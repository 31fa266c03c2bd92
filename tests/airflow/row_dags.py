"""DAGs of the rows of the failure matrix: the tiering DAG with other settings, in one Airflow."""

from __future__ import annotations

import copy
import os
import signal
import time
import urllib.error
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import create_engine, text

from sluice.client import Client, connect
from sluice.model import TablePath
from tests.airflow.live import SQL_ALCHEMY_CONN, Live
from tests.airflow.place import Place, wait_until
from tests.support.harness.findings import finding
from tests.support.programs.living import lives, living
from tests.support.programs.processes import ServerProcess
from tests.unit.server.kv_support import KvCaller
from tests.unit.server.support import Caller

ARMED = """
from pathlib import Path

from sluice import failpoints

armed = Path({path!r})
if armed.exists():
    failpoints._armed.update(failpoints.parse(armed.read_text()))
"""
FILE = '''"""The tiering DAG with the arguments of tests."""

from datetime import timedelta

from airflow.sdk import DAG

from sluice_airflow.dag import lake_tiering_dag
from sluice_airflow.group import lake_tiering_group
'''
BUILT = """
{dag_id} = lake_tiering_dag({dag_id!r}{arguments})
"""
PRELOAD = "import sluice_airflow.dag\n"
"""A plugin: the scheduler imports the package, so that its forks, the tasks, need not."""
KEYED = {"table.datalake.enabled": "true", "table.datalake.freshness": "1 s"}
SERVER = {
    "SLUICE_SERVER_TIERING_CHECK_INTERVAL_MS": "200",
    "SLUICE_SERVER_KV_SNAPSHOT_INTERVAL_MS": "1000",
}
BEGAN = "UPDATE dag_run SET start_date = :start WHERE dag_id = :dag_id AND run_id = :run_id"
ROW_S = 240.0
LOOK_S = 0.5
END_S = 60.0
"""So long may a process live on after the end of its run."""


@dataclass(frozen=True)
class RowDag:
    """The tiering DAG of some rows.

    :param arguments: source text of arguments of ``lake_tiering_dag``.
    :param is_armed: whether the row stops its tasks at a failpoint.
    :param source: text that builds the DAG, in place of ``lake_tiering_dag``.
    """

    dag_id: str
    arguments: str = ""
    is_armed: bool = False
    source: str = BUILT

    def text(self) -> str:
        """The part of a DAG file that builds it."""
        arguments = f", {self.arguments}" if self.arguments else ""
        return self.source.format(dag_id=self.dag_id, arguments=arguments)


@contextmanager
def served_row(live: Live, dag_id: str) -> Iterator[tuple[Row, ServerProcess]]:
    """A row whose DAG tiers a cluster of its own, in a process that may be killed.

    It stays for what runs after the row: a failure callback that waits for it stops the reading of
    DAG files.
    """
    server = live.servers[dag_id]
    server.start()
    with connect(server.address) as client:
        client.admin.create_database("shop")
        yield Row(live, dag_id, _place(server, client)), server


def servers_of(folder: Path, dag_ids: Iterable[str]) -> dict[str, ServerProcess]:
    """Servers that have an address each, and are not started yet."""
    found = {}
    for dag_id in dag_ids:
        (folder / dag_id).mkdir()
        found[dag_id] = ServerProcess(folder / dag_id / "data", SERVER)
    return found


def connections_of(servers: Mapping[str, ServerProcess]) -> dict[str, str]:
    """The variables that name them to Airflow, as connections fluss_DAG."""
    found = {}
    for dag_id, server in servers.items():
        [value] = _place(server).connection().values()
        found[f"AIRFLOW_CONN_FLUSS_{dag_id.upper()}"] = value
    return found


def _place(server: ServerProcess, client: Client | None = None) -> Place:
    none: Any = None
    return Place(none, client or none, server.address, server.data_dir.with_name("work"))


def write_dags(folder: Path, dags: Iterable[RowDag]) -> dict[str, str]:
    """Writes the DAG files; returns the variables that name their folder to Airflow.

    To read a file takes seconds, so most DAGs share one, and Airflow reads them seldom. After ten
    minutes it would take them for deleted.
    A failpoint is armed for all tasks of a file, so a DAG that needs one has its own.
    """
    folder.mkdir()
    plugins = folder.with_name("plugins")
    plugins.mkdir()
    (plugins / "preload.py").write_text(PRELOAD)
    shared = FILE
    for dag in dags:
        if dag.is_armed:
            armed = ARMED.format(path=str(_armed(folder, dag.dag_id)))
            (folder / f"{dag.dag_id}.py").write_text(FILE + armed + dag.text())
        else:
            shared += dag.text()
    (folder / "shared.py").write_text(shared)
    return {
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder),
        "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "300",
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(plugins),
        "AIRFLOW__CORE__LAZY_LOAD_PLUGINS": "False",
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "120",
        "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "300",
    }


def wait_for_dags(live: Live, dags: Iterable[RowDag]) -> None:
    """Until Airflow knows them all."""
    for dag in dags:
        row = Row(live, dag.dag_id)
        live.wait(row.is_known, f"the DAG {dag.dag_id}")


class Row(Live):
    """One row: a DAG, the cluster that it tiers, and what may be left of its runs."""

    def __init__(self, live: Live, dag_id: str, place: Place | None = None) -> None:
        """:param place: another cluster than that of ``live``."""
        airflow = copy.copy(live.airflow)
        airflow.dag_id = dag_id
        place = place or live.place
        timeout_ms = live.tiering_timeout_ms
        super().__init__(airflow, place, live.processes, live.clock, timeout_ms, live.cluster)
        self.stopping = live.stopping
        self._dags = Path(airflow.environment["AIRFLOW__CORE__DAGS_FOLDER"])

    def is_known(self) -> bool:
        """Whether Airflow has read the DAG file."""
        try:
            self.airflow._get(self.airflow.dag_path)
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return False
        return True

    def wait(self, done: Callable[[], bool], what: str) -> None:
        # Several rows wait at the same time, and each look is a call of Airflow's API.
        def ended() -> bool:
            assert not self.stopping.is_set(), f"{what}: the session ends"
            return done()

        wait_until(ended, ROW_S, what, LOOK_S)

    # -- tables

    def tables(self, *names: str, rows: int = 1) -> list[TablePath]:
        """Log tables that are due."""
        paths = [self.place.table(name, rows=rows) for name in names]
        self.place.wait(*paths)
        return paths

    def keyed(self, *names: str) -> list[TablePath]:
        """Tables with a primary key and a KV snapshot each, which are due: a run leases them."""
        caller = Caller(self.place.address)
        paths = [TablePath("shop", name) for name in names]
        for path in paths:
            KvCaller(caller, path, properties=KEYED).put((1, "text", 1))
            self.cluster.take_kv_snapshots(path)
        caller.transport.close()
        self.place.wait(*paths)
        return paths

    def go(self, path: TablePath) -> None:
        """Lets the driver of a table of the kind "held" commit."""
        (self.place.work / f"{path}-go").touch()

    def is_tiered(self, *paths: TablePath) -> None:
        """By one round each; the next one is a day away, and no failure is counted."""
        for path in paths:
            assert self.place.client.admin.lake_snapshot(path) is not None
            status = self.place.status(path)
            found = (status.status, status.failures, status.stopped, status.last_error)
            assert found == ("Scheduled", 0, None, None), path

    def is_due_again(self, *paths: TablePath) -> None:
        """At once, and no failure is counted."""
        for path in paths:
            status = self.place.status(path)
            found = (status.status, status.failures, status.last_error)
            assert found == ("Pending", 0, None), (path, found)

    def stops_of(self, *paths: TablePath) -> list[str | None]:
        """Why the last rounds of tables that are due again were stopped, by a user or a run."""
        self.is_due_again(*paths)
        return [self.place.status(path).stopped for path in paths]

    def working(self, path: TablePath) -> list[psutil.Process]:
        """Waits for the driver of a table of the kind "busy"; the driver and its child."""
        found: list[str] = []

        def look() -> bool:
            files = [file for folder in self._folders(path) for file in folder.glob("started")]
            found[:] = [word for file in files for word in file.read_text().split()]
            return len(found) == 2

        self.wait(look, f"the driver of {path}")
        return [psutil.Process(int(pid)) for pid in found]

    def held(self, path: TablePath) -> psutil.Process:
        """Waits for the driver of a table of the kind "held"."""
        return self.driver(f"{path}-slept")

    # -- tasks

    def instances(self, run_id: str) -> dict[str, dict[str, Any]]:
        """The task instances by TASK[INDEX], as the REST API has them."""
        found = self.airflow.run_state(run_id)[1]
        return {f"{one['task_id']}[{one['map_index']}]": one for one in found}

    def states(self, run_id: str, task: str) -> list[str]:
        """Those of the instances of a task."""
        found = self.tasks(run_id).items()
        return sorted(state for name, state in found if name.startswith(f"{task}["))

    def tries(self, run_id: str, task: str) -> list[int]:
        """How often each instance of a task was tried."""
        found = self.instances(run_id).items()
        return [one["try_number"] for name, one in found if name.startswith(f"{task}[")]

    def log(self, run_id: str, task: str) -> str:
        """What all instances and tries of a task have logged."""
        root = Path(self.airflow.environment["AIRFLOW__LOGGING__BASE_LOG_FOLDER"])
        files = root.rglob(f"run_id={run_id}/task_id={task}/**/*")
        return "\n".join(path.read_text() for path in sorted(files) if path.is_file())

    def arm(self, failpoint: str) -> None:
        """Stops the tasks of this DAG that reach the failpoint from now on."""
        _armed(self._dags, self.airflow.dag_id).write_text(f"{failpoint}=stop")

    def stopped(self, run_id: str, name: str) -> psutil.Process:
        """Waits until the task TASK[INDEX] is stopped there; no later one is stopped."""
        found: list[psutil.Process] = []

        def look() -> bool:
            pid = self.instances(run_id).get(name, {}).get("pid")
            found[:] = [psutil.Process(pid)] if pid and lives(pid) else []
            return bool(found) and found[0].status() == psutil.STATUS_STOPPED

        self.wait(look, f"{name} to be stopped")
        _armed(self._dags, self.airflow.dag_id).unlink()
        return found[0]

    def runs(self, state: str) -> list[str]:
        """The ids of the runs of this DAG that are in that state."""
        found = self.airflow._get(f"{self.airflow.dag_path}/dagRuns?state={state}")["dag_runs"]
        return [run["dag_run_id"] for run in found]

    def began_before(self, run_id: str, ago: timedelta) -> None:
        """Sets the start of a run back, so that Airflow takes it for so much older.

        A real time would have to be longer than a busy machine needs until the row may go on.
        """
        url = self.airflow.environment[SQL_ALCHEMY_CONN]
        start: Any = datetime.now(UTC) - ago
        if url.startswith("sqlite"):
            start = start.strftime("%Y-%m-%d %H:%M:%S.%f")  # as Airflow writes it there
        where = {"start": start, "dag_id": self.airflow.dag_id, "run_id": run_id}
        engine = create_engine(url)
        with engine.begin() as connection:
            found = connection.execute(text(BEGAN), where)
            assert found.rowcount == 1
        engine.dispose()

    def restart(self, program: str, how: signal.Signals) -> None:
        """Ends one of Airflow's programs, such as ``airflow-scheduler``, and starts it again.

        With all that it has started, as if its container ended: a worker that outlives a scheduler
        holds the connection to the database, and with it the locks of the dead one.
        """
        self.end(program, how)
        self.begin(program)

    def end(self, program: str, how: signal.Signals) -> None:
        """Ends one of Airflow's programs, with all that it has started."""
        process = self.processes._started[program]
        for one in self.processes.alive():
            with suppress(ProcessLookupError, psutil.NoSuchProcess):
                if os.getsid(one.pid) == process.pid:
                    one.send_signal(how)
        process.wait(END_S)

    def begin(self, program: str) -> None:
        """Starts a program that has ended, and waits until the API server answers."""
        self.airflow.start_program(program)
        self.wait(self._answers, "the API server to answer")

    def _answers(self) -> bool:
        try:
            return self.is_known()
        except urllib.error.HTTPError:
            raise
        except OSError:  # it does not listen yet
            return False

    # -- what is left

    def is_claimed(self, path: TablePath) -> bool:
        return self.place.status(path).status == "Tiering"

    def has_lease(self, run_id: str, opened: str = "open_job") -> bool:
        """:param opened: the task that has named the lease."""
        lease_id = self.xcom(run_id, opened)
        return lease_id in [one.lease_id for one in self.place.client.leases.all()]

    def nothing_is_left(self, run_id: str, *paths: TablePath, opened: str = "open_job") -> None:
        """No claim of a table, no lease of the run, no process of a task or a driver.

        :param opened: the task that has named the lease.
        """
        lease_id = self.xcom(run_id, opened)
        with finding():
            wait_until(lambda: not self._processes(run_id), END_S, f"the processes of {run_id}")
            held = [path for path in paths if self.is_claimed(path)]
            assert held == []
            assert self.place.client.tiering.claims_of(lease_id) == []
            assert not self.has_lease(run_id, opened)

    def _processes(self, run_id: str) -> list[int]:
        """Tasks, drivers, and the children of drivers, which inherit the names of the run."""
        pids = [one["pid"] for one in self.instances(run_id).values() if one["pid"]]
        names = {"AIRFLOW_CTX_DAG_ID": self.airflow.dag_id, "AIRFLOW_CTX_DAG_RUN_ID": run_id}
        of_run = living(lambda env: names.items() <= dict(env).items())
        return [pid for pid in pids if lives(pid)] + [one.pid for one in of_run]


def _armed(dags: Path, dag_id: str) -> Path:
    return dags / f"{dag_id}.failpoint"


def kill(*processes: psutil.Process | int) -> None:
    """SIGKILL of all of them, one right after the other."""
    for process in processes:
        os.kill(process if isinstance(process, int) else process.pid, signal.SIGKILL)


def pause(seconds: float) -> None:
    """For what has no event: that something goes on, or does not happen."""
    time.sleep(seconds)
