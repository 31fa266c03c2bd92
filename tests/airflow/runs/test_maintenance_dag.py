"""The DAG of the maintenance as Airflow loads it, and its task without a Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from sluice.rounds.records.maintenance import TableReport, newest_runs, read_outcome, request_uri
from sluice.rounds.upkeep.conversion import Conversion
from sluice.rounds.upkeep.health import TableHealth
from sluice.rounds.upkeep.maintenance import MaintenanceReport, table_report
from sluice_airflow.config.arguments import MaintenanceArguments
from sluice_airflow.outcomes.maintenance_report import (
    LINE_MAX,
    LINES_MAX,
    problems_text,
    sorted_reports,
    summary_line,
    summary_of,
)
from tests.airflow.place import HERE, ROOT, AirflowProcess, Place
from tests.airflow.scheduled.test_own_dags import shapes
from tests.docs.blocks import Page, claimed_blocks
from tests.support.programs.living import lives

pytestmark = pytest.mark.airflow
PAGE = "docs/airflow-maintenance.md"
LOG, OWN, OPERATOR = (
    block.content for block in claimed_blocks("docs/airflow-maintenance.md", __file__)
)
TASK = "maintain_tables"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "dags"
    folder.mkdir()
    return folder


def test_the_file_of_the_repository(airflow: AirflowProcess) -> None:
    found = airflow.ask("shapes", folder=str(ROOT / "dags/sluice_lake_maintenance.py"))
    dag = found["sluice_lake_maintenance"]
    shown = dag["dag"]
    assert (shown["schedule"], shown["catchup"], shown["max_active_runs"]) == ("@daily", False, 1)
    assert "`fluss_default`" in shown["doc_md"]
    [task] = dag["tasks"].values()
    assert (task["retries"], task["execution_timeout"], task["pool"]) == (1, 21600, "default_pool")
    assert {name: one["default"] for name, one in dag["params"].items()} == {
        "tables": ["*"],
        "dry_run": False,
        "spark_conf": {},
    }
    for param in dag["params"].values():
        assert param["title"]
        assert param["description"]


def test_settings_come_from_the_section(airflow: AirflowProcess) -> None:
    ours = {
        "AIRFLOW__SLUICE__MAINTENANCE_SCHEDULE": "none",
        "AIRFLOW__SLUICE__MAINTENANCE_RETRIES": "3",
        "AIRFLOW__SLUICE__MAINTENANCE_TIMEOUT_SECONDS": "0",
    }
    path = str(ROOT / "dags/sluice_lake_maintenance.py")
    [dag] = airflow.ask("shapes", folder=path, environment=ours).values()
    [task] = dag["tasks"].values()
    assert (dag["dag"]["schedule"], task["retries"], task["execution_timeout"]) == (None, 3, None)


def test_dags_of_ones_own(airflow: AirflowProcess, files: Path) -> None:
    found = shapes(airflow, files, OWN, OPERATOR)
    own = found["maintain_shop"]
    assert own["dag"]["schedule"] == "0 3 * * *"
    assert own["params"]["tables"]["default"] == ["shop.*"]
    assert own["tasks"][TASK]["fluss_conn_id"] == "fluss_shop"
    tasks = found["nightly_maintenance"]["tasks"]
    assert tasks["report"]["upstream"] == ["maintain"]
    assert (tasks["maintain"]["retries"], tasks["maintain"]["execution_timeout"]) == (1, 21600)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("tabels=['a.b']", "lake_maintenance_dag: no argument 'tabels'; did you mean 'tables'"),
        ("max_tables=3", "lake_maintenance_dag: no argument 'max_tables'"),
        ("params={'dry_run': True}", "params: 'dry_run' is a parameter of its own"),
        ("tables='a.b'", "tables: expected a list, found 'a.b'; write tables=['a.b']"),
        ("maintenance_retries='2'", "maintenance_retries: expected a whole number, 0 or more"),
        ("datalake='iceberg'", "datalake: expected a dict, found a str; write datalake={"),
    ],
)
def test_a_wrong_argument_is_an_import_error(
    airflow: AirflowProcess, files: Path, arguments: str, said: str
) -> None:
    content = (
        "from sluice_airflow.maintenance import lake_maintenance_dag  # dag\n"
        f"lake_maintenance_dag({arguments})\n"
    )
    with pytest.raises(AssertionError) as error:
        shapes(airflow, files, content)
    assert said in str(error.value)


def test_the_page_names_all_arguments() -> None:
    rows = (
        Page(ROOT / "docs/airflow-maintenance.md")
        .text.split("\n## Arguments\n")[1]
        .split("\n## ")[0]
        .splitlines()
    )
    cells = [row.split(" | ")[0] for row in rows if row.startswith("| `")]
    shown = {name.strip("`| ") for cell in cells for name in cell.split(", ")}
    assert shown == {*MaintenanceArguments.__annotations__, "dag_id", "schedule"}


MAPPED = """
from sluice_airflow.operators.maintain import SluiceMaintainOperator
with dag:
    SluiceMaintainOperator.partial(task_id="each").expand(tables=[["shop.a"], ["shop.b"]])
"""


def own_file(files: Path, more: str = "") -> str:
    """A DAG file whose task is tried again at once."""
    path = files / "own.py"
    path.write_text(
        "from datetime import timedelta\n"
        "from sluice_airflow.maintenance import lake_maintenance_dag\n"
        "at_once = {'retry_delay': timedelta(0)}\n"
        f"dag = lake_maintenance_dag('own', schedule=None, default_args=at_once)\n{more}"
    )
    return str(path)


@pytest.mark.slow
def test_a_retry_maintains_what_a_killed_driver_has_left(place: Place, files: Path) -> None:
    submit = files / "spark-submit"
    submit.write_text(f'#!/bin/sh\nexec {sys.executable} {HERE / "maintenance_driver.py"} "$@"\n')
    submit.chmod(0o755)
    seen = len(place.airflow.log.read_text())
    file = own_file(files, MAPPED)
    run = place.run(file=file, AIRFLOW__SLUICE__SPARK_BINARY=str(submit))
    log = place.airflow.log.read_text()[seen:]
    assert run["state"] == "success", log[-6000:]
    assert run["tries"][TASK] == 2
    assert "the maintenance ended early at table shop.b: the Spark driver ended" in log
    report = run["xcoms"][TASK]["report"]
    assert (report["tables"], report["needed"], report["problems"]) == (2, 2, 0)
    assert report["numbers"]["orphans_removed"] == 6
    assert report["folder"].endswith("/maintenance")
    tasks = newest_runs(str(place.work))
    found = {one.map_index: one for task in tasks for one in task.runs}
    assert {index: one.task_id for index, one in found.items()} == {-1: TASK, 0: "each", 1: "each"}
    assert len(tasks) == 3, "instances of a mapped task do not write the same file"
    assert len({one.folder for one in found.values()}) == 3
    noted = found[-1]
    names = place.work / noted.folder / "run.json"
    assert (noted.dag_id, json.loads(names.read_text())["dag_id"]) == ("own", "own")
    assert noted.run_id == json.loads(names.read_text())["run_id"]
    assert f"/dags/own/runs/{noted.run_id}/tasks/{TASK}?try_number=2" in unquote(noted.url)
    assert (noted.folder, noted.applied) == (names.parent.name, True)
    assert noted.ended_ms is not None
    assert noted.began_ms <= noted.ended_ms
    request = request_uri(f"file://{place.work}", noted.folder, noted.attempt)
    assert read_outcome(request).has_ended, "of the second try"
    asked = {index: requests_in(place.work / one.folder) for index, one in found.items()}
    assert [one["done"] for one in asked[-1]] == [[], ["shop.a"]]
    assert [one["tables"] for one in (*asked[0], *asked[1])] == [["shop.a"], ["shop.b"]]


def requests_in(folder: Path) -> list[dict[str, Any]]:
    """What the tries of one task instance asked for."""
    files = sorted(folder.rglob("*-request.json"), key=lambda path: path.stat().st_mtime_ns)
    return [json.loads(path.read_text()) for path in files]


def test_an_unknown_key_of_a_run(place: Place, files: Path) -> None:
    seen = len(place.airflow.log.read_text())
    run = place.run({"table": "shop.a"}, file=own_file(files))
    assert (run["state"], run["tries"]) == ("failed", {TASK: 1}), "no retry helps"
    said = "conf of this run: unknown key 'table'; did you mean 'tables'"
    assert said in place.airflow.log.read_text()[seen:]
    assert not list(place.work.rglob("*-request.json"))


@pytest.mark.slow
def test_a_task_that_is_stopped_ends_its_driver(
    airflow_environment: dict[str, str], tmp_path: Path
) -> None:
    """Airflow calls on_kill in a signal handler while the task waits for spark-submit."""
    submit = tmp_path / "spark-submit"
    submit.write_text(
        f"#!/bin/sh\nsleep 600 &\necho $! > {tmp_path}/new\n"
        f"mv {tmp_path}/new {tmp_path}/driver\nwait\n"
    )
    submit.chmod(0o755)
    code = (
        "import threading, time\n"
        "from pathlib import Path\n"
        "from sluice_airflow.operators.maintain import SluiceMaintainOperator\n"
        "task = SluiceMaintainOperator(task_id='maintain')\n"
        "def stop():\n"
        f"    while not Path({str(tmp_path / 'driver')!r}).exists(): time.sleep(0.05)\n"
        "    task.on_kill()\n"
        "threading.Thread(target=stop).start()\n"
        "print('said:', task._run_driver({}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**airflow_environment, "AIRFLOW__SLUICE__SPARK_BINARY": str(submit)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    said = "said: Airflow stopped the task and its Spark driver"
    assert done.stdout.splitlines()[-1] == said, done.stderr[-3000:]
    assert not lives(int((tmp_path / "driver").read_text()))


@pytest.mark.slow
def test_reports_that_cannot_be_read_keep_no_driver_running(place: Place, files: Path) -> None:
    """At the time limit. Airflow stops the driver only if that is the error that it sees."""
    submit = files / "spark-submit"
    submit.write_text(
        '#!/bin/sh\nfor uri; do :; done\nbase="${uri#file://}"\n'
        'echo "no report" > "${base%request.json}table-1.json"\n'
        f"echo $$ > {files}/driver\nexec sleep 600\n"
    )
    submit.chmod(0o755)
    seen = len(place.airflow.log.read_text())
    run = place.run(
        file=own_file(files),
        AIRFLOW__SLUICE__SPARK_BINARY=str(submit),
        AIRFLOW__SLUICE__MAINTENANCE_TIMEOUT_SECONDS="5",
        AIRFLOW__SLUICE__MAINTENANCE_RETRIES="0",
    )
    log = place.airflow.log.read_text()[seen:]
    assert run["state"] == "failed"
    assert "no report of what was done before the time limit: " in log, log[-6000:]
    assert not lives(int((files / "driver").read_text()))


def report(name: str, **values: Any) -> TableReport:
    return table_report(MaintenanceReport(name, **values), applied=True)


def test_the_lines_of_the_page() -> None:
    needy = TableHealth(equality_files=4)
    done = Conversion(files_removed=4, rows=16)
    stock = report("shop.stock", before=needy, after=TableHealth(), conversion=done)
    reports = sorted_reports([report("shop.orders", after=TableHealth()), stock])
    lines = [one.line for one in reports]
    lines.append(summary_line(summary_of(reports, "", applied=True)))
    assert lines == LOG.splitlines()


def test_problems_come_first_and_each_is_named() -> None:
    healthy, broken = report("a.a"), report("a.c", error="LakeNotWritable: gone")
    poor = report("a.b", before=TableHealth(equality_files=1), notes=["one", "token=abc123secret"])
    again = [report("a.a", error="before"), healthy, broken, poor]
    found = sorted_reports(again, ["abc123secret"])
    assert [one.table for one in found] == ["a.b", "a.c", "a.a"]
    text = problems_text(found, "the driver was lost")
    assert "abc123secret" not in text
    assert text.splitlines()[:3] == [
        "the driver was lost",
        "2 of 3 tables could not be maintained completely",
        "a.b: one",
    ]
    assert text.splitlines()[-1] == "a.c: LakeNotWritable: gone"
    assert problems_text([healthy]) == ""
    summary = summary_of(found, "file:///work", applied=True)
    assert summary_line(summary) == "3 tables, 1 with a need, 2 with a problem"


def test_the_xcom_has_a_bound() -> None:
    many = [report(f"shop.{number:05d}", error="x" * 2000) for number in range(5000)]
    summary = summary_of(many, "file:///work", applied=True)
    assert len(json.dumps(summary)) < LINES_MAX * LINE_MAX + 1000
    assert (summary["tables"], summary["lines_left_out"]) == (5000, 4950)
