"""A real Airflow in a folder of its own: started, asked over REST, followed to the end of a run."""

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
from sluice.testing.ports import held_port, port_of

ROOT = Path(__file__).resolve().parent.parent
DAG_ID = "sluice_lake_tiering"
PROGRAMS = ("airflow-api-server", "airflow-dag-processor", "airflow-scheduler")
LOOK_EVERY_S = 0.5
LOOK_S = 60.0
DATABASE_S = 300.0
Json = dict[str, Any]


class AirflowFailed(Exception):
    """Airflow does not do what the demo needs of it."""


class Airflow:
    """SQLite, LocalExecutor, one user with a generated password; listens on loopback only."""

    def __init__(
        self,
        home: Path,
        processes: Processes,
        settings: Mapping[str, str],
        python: str = sys.executable,
    ) -> None:
        """``python``: the interpreter that has Airflow installed."""
        self.home = home
        self._command = [python, "-m", "airflow"]
        self.user, self.password = "admin", secrets.token_urlsafe(12)
        self._processes = processes
        keeper = held_port()  # the API server comes to it much later, when there is a database
        weakref.finalize(self, keeper.close)
        self._port = port_of(keeper)
        self.url = f"http://127.0.0.1:{self._port}"
        self.environment = {**self._own_settings(), **settings}
        self._token = ""

    def _own_settings(self) -> dict[str, str]:
        return {
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
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
            # On a busy machine not every answer comes within Airflow's own five seconds.
            "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "30",
            "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(self.home.parent / "logs" / "airflow-tasks"),
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
            "SCARF_ANALYTICS": "false",
            "DO_NOT_TRACK": "1",
        }

    def prepare(self) -> None:
        """Begins to make the database, which takes some seconds."""
        self.home.mkdir(parents=True, exist_ok=True)
        passwords = self.home / "passwords.json"
        passwords.touch(mode=0o600)
        passwords.write_text(json.dumps({self.user: self.password}))
        self._processes.start("airflow-db", [*self._command, "db", "migrate"], self.environment)

    def start(self) -> None:
        """Starts the programs as soon as the database is there; returns before they answer."""
        self._processes.wait("airflow-db", timeout_s=DATABASE_S)
        for program in PROGRAMS:
            arguments = [program.removeprefix("airflow-")]
            if program == "airflow-scheduler":
                arguments.append("--skip-serve-logs")
            self._processes.start(program, [*self._command, *arguments], self.environment)

    def wait_until_ready(self, timeout_s: float, say: Callable[[str], None]) -> None:
        """Waits until the DAG can be triggered.

        :raises AirflowFailed, ProcessFailed: with what is missing.
        """
        deadline = time.monotonic() + timeout_s
        missing = "the API server"
        while time.monotonic() < deadline:
            self._processes.check(*PROGRAMS)
            missing = self._missing()
            if not missing:
                return
            say(f"waiting for {missing}")
            time.sleep(LOOK_EVERY_S)
        raise AirflowFailed(f"Airflow was not ready after {timeout_s:.0f} s: no {missing}")

    def _missing(self) -> str:
        try:
            if not self._token:
                login = {"username": self.user, "password": self.password}
                self._token = str(self._ask("POST", "/auth/token", login)["access_token"])
            errors = self._look("/api/v2/importErrors")["import_errors"]
            if errors:
                raise AirflowFailed(f"the DAG cannot be imported:\n{errors[0]['stack_trace']}")
            self._look(f"/api/v2/dags/{DAG_ID}")
            health = self._look("/api/v2/monitor/health")
            return "" if health["scheduler"]["status"] == "healthy" else "the scheduler"
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return "the DAG"
            raise AirflowFailed(_text(error)) from error
        except (urllib.error.URLError, OSError):
            return "the API server"

    def trigger(self, conf: Json) -> str:
        """Starts a run and answers its id."""
        try:
            run = self._ask(
                "POST", f"/api/v2/dags/{DAG_ID}/dagRuns", {"logical_date": None, "conf": conf}
            )
        except urllib.error.HTTPError as error:
            raise AirflowFailed(f"the run was not accepted: {_text(error)}") from error
        return str(run["dag_run_id"])

    def mark(self, run_id: str, state: str) -> None:
        """Marks a run as a user would in the UI: success, failed or queued."""
        self._ask("PATCH", _path(run_id), {"state": state})

    def look(self, run_id: str) -> tuple[str, list[Json]]:
        """The state of a run, and its task instances."""
        state = self._look(_path(run_id))["state"]
        tasks = self._look(f"{_path(run_id)}/taskInstances?limit=100")["task_instances"]
        return str(state), tasks

    def follow(self, run_id: str, timeout_s: float, say: Callable[[str], None]) -> None:
        """Waits for the end of a run, telling where its tasks stand.

        :raises AirflowFailed: it did not succeed; names the tasks and their reasons.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            self._processes.check(*PROGRAMS)
            state, tasks = self.look(run_id)
            say(_progress(tasks))
            if state == "success":
                return
            if state == "failed":
                raise AirflowFailed(self._reasons(run_id, tasks))
            time.sleep(LOOK_EVERY_S)
        raise AirflowFailed(f"run {run_id} did not end in {timeout_s:.0f} s: {_progress(tasks)}")

    def _reasons(self, run_id: str, tasks: list[Json]) -> str:
        path = _path(run_id)
        lines = ["the run failed"]
        for task in tasks:
            if task["state"] not in ("failed", "upstream_failed"):
                continue
            line = f"{_name(task)}: {task['state']}"
            entry = f"{path}/taskInstances/{task['task_id']}/xcomEntries/failure"
            try:
                answer = self._look(f"{entry}?map_index={task['map_index']}")
                line += f": {_reason(answer['value'])}"
            except urllib.error.HTTPError:
                pass  # most tasks leave no reason of their own
            lines.append(line)
        return "\n".join(lines)

    def _look(self, path: str) -> Json:
        """What Airflow says there. Its SQLite gives up on a lock that others hold for five seconds,
        as on a busy machine: such an answer is asked for again.
        """
        deadline = time.monotonic() + LOOK_S
        while True:
            try:
                return self._ask("GET", path)
            except urllib.error.HTTPError as error:
                if error.code < 500 or time.monotonic() > deadline:
                    raise
            time.sleep(LOOK_EVERY_S)

    def _ask(self, method: str, path: str, body: Json | None = None) -> Json:
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


def _path(run_id: str) -> str:
    return f"/api/v2/dags/{DAG_ID}/dagRuns/{run_id}"


def _name(task: Json) -> str:
    index = f"[{task['map_index']}]" if task["map_index"] >= 0 else ""
    return str(task["task_id"]) + index


def _reason(failure: object) -> str:
    """What a tier task leaves as its XCom ``failure``, as one line to read."""
    if not isinstance(failure, dict):
        return str(failure)
    return "{table}: {kind}: {reason}".format_map({"table": "", "kind": "", **failure})


def _progress(tasks: list[Json]) -> str:
    done = sum(task["state"] in ("success", "failed", "skipped") for task in tasks)
    now = sorted(_name(task) for task in tasks if task["state"] == "running")
    return f"{done} of {len(tasks)} tasks done" + (f", running: {', '.join(now)}" if now else "")


def _text(error: urllib.error.HTTPError) -> str:
    return f"{error.code} {error.reason}: {error.read().decode(errors='replace')[:1000]}"


def spark_environment() -> dict[str, str]:
    """What Spark needs to find this Python and loopback."""
    return {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }


__all__ = ["Airflow", "AirflowFailed", "ProcessFailed", "spark_environment"]
