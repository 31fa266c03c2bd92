"""Two Airflows with the same settings tier one cluster and share one work folder."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sluice_airflow.acquire.acquire import acquire
from sluice_airflow.config.connection import FlussConnection
from sluice_airflow.config.deployment import lease_of_run
from sluice_airflow.outcomes.settle import drop
from tests.airflow.place import HERE, AirflowProcess, Place, airflow_home
from tests.docs.blocks import claimed_blocks

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

MINUTE = "2026-01-01T00:00:00+00:00"
"""The logical date of a scheduled run: equal in every Airflow."""


@pytest.fixture
def other(tmp_path: Path) -> Iterator[AirflowProcess]:
    """A second Airflow, with a database of its own."""
    home = tmp_path / "other"
    home.mkdir()
    process = AirflowProcess(home, airflow_home(home, HERE / "driver.py"))
    yield process
    process.close()


def test_each_airflow_has_its_own_runs(place: Place, other: AirflowProcess) -> None:
    """The same DAG, the same run id, no deployment id: one's end leaves the other's claims."""
    other.ask("shape", environment=place.connection())
    assert other.ask("variables")["keys"] == [], "the DAG file makes no id"
    here = place.run(logical_date=MINUTE)
    there = other.ask("run", logical_date=MINUTE, environment=place.connection())
    assert here["run_id"] == there["run_id"]
    mine, theirs = (run["xcoms"]["open_job"]["return_value"] for run in (here, there))

    assert other.ask("variables")["keys"] == ["sluice_deployment_id"]

    path = place.table("ok", freshness="50 ms")
    place.wait(path)
    connection = FlussConnection(place.address, work_uri=f"file://{place.work}")
    [entry] = acquire(place.client, connection, mine, ["*"], 10)
    assert drop(place.client, f"file://{place.work}", theirs) == []
    assert place.status(path).status == "Tiering"
    [verdict] = drop(place.client, f"file://{place.work}", mine)
    assert verdict.table == entry["table"]


def test_each_task_that_names_a_run_has_a_lease_of_its_own() -> None:
    connection = FlussConnection("grpc://127.0.0.1:1", deployment_id="here")
    tasks = ("open_job", "open_hot", "hot.open_job", "cold.open_job", "cold.open_again")
    leases = {lease_of_run(connection, "lake", MINUTE, task) for task in tasks}
    assert len(leases) == len(tasks)
    assert lease_of_run(connection, "lake", MINUTE) in leases, "that of a DAG with one"


@pytest.mark.long
def test_an_airflow_keeps_its_id(place: Place) -> None:
    """Made by the first run, read by the later ones; a name in the connection comes first."""
    made = owner(place.run())
    assert made.startswith("airflow-")
    assert owner(place.run(**place.connection(deployment_id="default"))) == made
    assert owner(place.run(AIRFLOW_VAR_SLUICE_DEPLOYMENT_ID="east")) == "east"
    assert owner(place.run(**place.connection(deployment_id="west 1"))) == "west-1"
    delete(place)
    assert owner(place.run()) != made


def delete(place: Place) -> None:
    """As the page says of a copied database."""
    [shown] = claimed_blocks("docs/airflow.md", __file__)
    environment = place.airflow.environment
    words = [sys.executable, "-m", *shlex.split(shown.content)]
    subprocess.run(words, env=environment, check=True, capture_output=True, timeout=120)


def owner(run: dict[str, Any]) -> str:
    prefix, _, rest = run["xcoms"]["open_job"]["return_value"].partition("-")
    assert prefix == "sluice"
    return rest[:-37]  # a dash and a UUID
