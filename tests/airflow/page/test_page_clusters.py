"""The clusters that the page keeps open, by real connections of Airflow."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sluice.client import connect
from tests.airflow.page_process import connection
from tests.airflow.place import HERE, Place

pytestmark = pytest.mark.airflow


@pytest.mark.slow
def test_what_the_page_keeps_open_and_for_how_long(
    airflow_environment: dict[str, str], embedded: str, tmp_path: Path
) -> None:
    with connect(embedded) as client:
        shop = Place(None, client, embedded, tmp_path / "work")  # type: ignore[arg-type]
    environment = {
        **airflow_environment,
        "AIRFLOW_CONN_TWO": connection(shop),
        "AIRFLOW__SECRETS__BACKEND": "tests.airflow.page_secrets.Waiting",
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.airflow.page_clusters"],
        env=environment,
        cwd=HERE.parent.parent,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    names = [each[0] for each in said]
    assert names == ["idle", "gone", "meanwhile", "dags", "states", "ends"], done.stdout
    assert all(all(each) for each in said), said
