"""Starts an Airflow in its own folder, triggers runs over REST, and waits for their end."""

from __future__ import annotations

import base64
import json
import os
import secrets
import sys
import time
import urllib.error
import urllib.request
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from demo.processes import Processes, ProcessFailed
from tests.support.network.ports import held_port, port_of

ROOT = Path(__file__).resolve().parent.parent
DAG_ID = "sluice_lake_tiering"
PROGRAMS = ("airflow-api-server", "airflow-dag-processor", "airflow-scheduler")
TRIGGERER = "airflow-triggerer"
SERVES_LOGS = ("airflow-scheduler", TRIGGERER)
POLL_INTERVAL_S = 0.5
RETRY_GET_S = 60.0
DATABASE_TIMEOUT_S = 300.0
Json = dict[str, Any]


class AirflowFailed(Exception):
    """Airflow did not start, or a run failed."""


class Airflow:
    """An Airflow with SQLite and LocalExecutor, on loopback, with a generated password."""

    def __init__(
        self,
        home: Path,
        processes: Processes,
        settings: Mapping[str, str],
        python: str = sys.executable,
        *,
        triggerer: bool = False,
    ) -> None:
        """:param python: the interpreter that has Airflow installed.
        :param triggerer: starts a triggerer, which runs keep_claims.
        """
        self.dag_id = DAG_ID
        self.home = home
        self._programs = (*PROGRAMS, TRIGGERER) if triggerer else PROGRAMS
        self._command = [python, "-m", "airflow"]
        self.user, self.password = "admin", secrets.token_urlsafe(12)
        self._processes = processes
        keeper = (
            held_port()
        )  # keeps the port until the API server starts, after the database exists
        weakref.finalize(self, keeper.close)
        self._port = port_of(keeper)
        self.url = f"http://127.0.0.1:{self._port}"
        self.environment = {**self._own_settings(), **settings}
        self._token = ""
        self._creates_database = True

    def _own_settings(self) -> dict[str, str]:
        return {
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
            "AIRFLOW__SLUICE__MAINTENANCE_SCHEDULE": "none",
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__CORE__FERNET_KEY": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{self.user}:admin",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self.home / "passwords.json"),
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self._port),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API__SECRET_KEY": secrets.token_hex(16),
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self.home}/airflow.db",
            "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.1",
            # A busy machine exceeds Airflow's default of five seconds.
            "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "30",
            "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(self.home.parent / "logs" / "airflow-tasks"),
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
            "SCARF_ANALYTICS": "false",
            "DO_NOT_TRACK": "1",
        }

    def prepare(self, *, has_database: bool = False) -> None:
        """Starts to create the database, which takes some seconds.

        :param has_database: it is there, at this Airflow's version.
        """
        self.home.mkdir(parents=True, exist_ok=True)
        passwords = self.home / "passwords.json"
        passwords.touch(mode=0o600)
        passwords.write_text(json.dumps({self.user: self.password}))
        self._creates_database = not has_database
        if has_database:
            # The first program writes one, and the others would read it half written.
            (self.home / "airflow.cfg").touch()
        else:
            self._processes.start("airflow-db", [*self._command, "db", "migrate"], self.environment)

    def start(self) -> None:
        """Starts the programs once the database exists. Returns before they answer."""
        if self._creates_database:
            self._processes.wait("airflow-db", timeout_s=DATABASE_TIMEOUT_S)
        for program in self._programs:
            self.start_program(program)

    def start_program(self, program: str) -> None:
        """Starts one of the programs, such as ``airflow-scheduler``."""
        arguments = [program.removeprefix("airflow-")]
        if program in SERVES_LOGS:
            arguments.append("--skip-serve-logs")
        self._processes.start(program, [*self._command, *arguments], self.environment)

    def wait_until_ready(self, timeout_s: float, say: Callable[[str], None]) -> None:
        """Waits until the DAG can be triggered.

        :raises AirflowFailed, ProcessFailed: names the missing part.
        """
        deadline = time.monotonic() + timeout_s
        missing = "the API server"
        while time.monotonic() < deadline:
            self._processes.check(*self._programs)
            missing = self._missing()
            if not missing:
                return
            say(f"waiting for {missing}")
            time.sleep(POLL_INTERVAL_S)
        raise AirflowFailed(
            f"Airflow was not ready after {timeout_s:.0f} s: still waiting for {missing}"
        )

    def _missing(self) -> str:
        try:
            if not self._token:
                login = {"username": self.user, "password": self.password}
                self._token = str(self._send("POST", "/auth/token", login)["access_token"])
            errors = self._get("/api/v2/importErrors")["import_errors"]
            if errors:
                raise AirflowFailed(f"Airflow cannot import the DAG:\n{errors[0]['stack_trace']}")
            self._get(self.dag_path)
            health = self._get("/api/v2/monitor/health")
            wanted = ("scheduler", "triggerer") if TRIGGERER in self._programs else ("scheduler",)
            absent = [f"the {name}" for name in wanted if health[name]["status"] != "healthy"]
            return " and ".join(absent)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return "the DAG"
            raise AirflowFailed(_error_text(error)) from error
        except (urllib.error.URLError, OSError):
            return "the API server"

    @property
    def token(self) -> str:
        """Logs the user in, as a cookie `_token` or a Bearer token; empty until it is ready."""
        return self._token

    @property
    def dag_path(self) -> str:
        """Path of the DAG in the REST API."""
        return f"/api/v2/dags/{self.dag_id}"

    def run_path(self, run_id: str) -> str:
        """Path of a run in the REST API."""
        return f"{self.dag_path}/dagRuns/{run_id}"

    def trigger(self, conf: Json) -> str:
        """Triggers a run and returns its id."""
        try:
            run = self._send(
                "POST", f"{self.dag_path}/dagRuns", {"logical_date": None, "conf": conf}
            )
        except urllib.error.HTTPError as error:
            raise AirflowFailed(f"Airflow did not accept the run: {_error_text(error)}") from error
        return str(run["dag_run_id"])

    def pause(self, paused: bool) -> None:
        """Pauses or unpauses the DAG, like a user in the UI."""
        self._send("PATCH", self.dag_path, {"is_paused": paused})

    def mark(self, run_id: str, state: str) -> None:
        """Marks a run as success, failed or queued, like a user in the UI."""
        self._send("PATCH", self.run_path(run_id), {"state": state})

    def run_state(self, run_id: str) -> tuple[str, list[Json]]:
        """Returns the state of a run and its task instances."""
        state = self._get(self.run_path(run_id))["state"]
        tasks = self._get(f"{self.run_path(run_id)}/taskInstances?limit=100")["task_instances"]
        return str(state), tasks

    def follow(self, run_id: str, timeout_s: float, say: Callable[[str], None]) -> None:
        """Waits for the end of a run and shows the progress of its tasks.

        :raises AirflowFailed: the run did not succeed. Names the tasks and their reasons.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            self._processes.check(*self._programs)
            state, tasks = self.run_state(run_id)
            say(_progress(tasks))
            if state == "success":
                return
            if state == "failed":
                raise AirflowFailed(self._reasons(run_id, tasks))
            time.sleep(POLL_INTERVAL_S)
        raise AirflowFailed(f"run {run_id} did not end in {timeout_s:.0f} s: {_progress(tasks)}")

    def _reasons(self, run_id: str, tasks: list[Json]) -> str:
        path = self.run_path(run_id)
        lines = ["the run failed"]
        for task in tasks:
            if task["state"] not in ("failed", "upstream_failed"):
                continue
            line = f"{_task_name(task)}: {task['state']}"
            entry = f"{path}/taskInstances/{task['task_id']}/xcomEntries/failures"
            try:
                answer = self._get(f"{entry}?map_index={task['map_index']}")
                reasons = _failures(answer["value"]).values()
                line += "".join(f"\n  {_reason_text(one)}" for one in reasons)
            except urllib.error.HTTPError:
                pass  # only tier tasks have this XCom
            lines.append(line)
        return "\n".join(lines)

    def _get(self, path: str) -> Json:
        """Sends a GET request, and repeats it after a server error.

        On a busy machine, Airflow's SQLite fails if its lock is held for five seconds.
        """
        deadline = time.monotonic() + RETRY_GET_S
        while True:
            try:
                return self._send("GET", path)
            except urllib.error.HTTPError as error:
                if error.code < 500 or time.monotonic() > deadline:
                    raise
            time.sleep(POLL_INTERVAL_S)

    def _send(self, method: str, path: str, body: Json | None = None) -> Json:
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        with urllib.request.urlopen(request, timeout=60) as answer:
            content = json.loads(answer.read())
        assert isinstance(content, dict), path
        return content


def _failures(value: object) -> Json:
    """The failures of a tier task by table; the REST API may return them as a JSON text."""
    found = json.loads(value) if isinstance(value, str) else value
    return found if isinstance(found, dict) else {}


def _run_path(run_id: str) -> str:
    return f"/api/v2/dags/{DAG_ID}/dagRuns/{run_id}"


def _task_name(task: Json) -> str:
    index = f"[{task['map_index']}]" if task["map_index"] >= 0 else ""
    return str(task["task_id"]) + index


def _reason_text(failure: object) -> str:
    """Formats one of the XCom ``failures`` of a tier task as one line."""
    if not isinstance(failure, dict):
        return str(failure)
    return "{table}: {kind}: {reason}".format_map({"table": "", "kind": "", **failure})


def _progress(tasks: list[Json]) -> str:
    done = sum(task["state"] in ("success", "failed", "skipped") for task in tasks)
    now = sorted(_task_name(task) for task in tasks if task["state"] == "running")
    return f"{done} of {len(tasks)} tasks done" + (f", running: {', '.join(now)}" if now else "")


def _error_text(error: urllib.error.HTTPError) -> str:
    return f"{error.code} {error.reason}: {error.read().decode(errors='replace')[:1000]}"


def spark_environment() -> dict[str, str]:
    """Returns the variables with which Spark finds this Python and listens on loopback."""
    return {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }


__all__ = ["Airflow", "AirflowFailed", "ProcessFailed", "spark_environment"]
