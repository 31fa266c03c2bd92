"""A real Airflow that has the wheel alone: its DAG tiers two tables by spark-submit."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

from demo.airflow import DAG_ID, Airflow
from demo.processes import Processes
from sluice.artifacts.iceberg import installed_iceberg
from sluice.client import Client, connect
from sluice.formats.types import schema_from_arrow
from sluice.model import TableDescriptor, TablePath
from tests.docs.blocks import claimed
from tests.support.built_wheel import ROOT, Environment
from tests.support.processes import ServerProcess, served

pytestmark = [pytest.mark.slow, pytest.mark.airflow, pytest.mark.spark]

JARS = os.environ.get("SLUICE_TIERING_JARS") or str(ROOT / ".cache/jars")
READY_S, RUN_S = 300, 500
NAMES = ("orders", "visits")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with served(tmp_path / "data") as running:
        yield running


def make_table(client: Client, name: str) -> None:
    rows = pa.table({"id": pa.array(range(100), pa.int64())})
    descriptor = TableDescriptor(
        schema=schema_from_arrow(rows.schema),
        bucket_count=1,
        properties={"table.datalake.enabled": "true", "table.datalake.freshness": "1 s"},
    )
    client.admin.create_table(TablePath("shop", name), descriptor)
    with client.log_writer(TablePath("shop", name)) as writer:
        writer.write(rows)


def settings(address: str, home: Path, dags: Path) -> dict[str, str]:
    """What a user sets: two connections, the jar, and where the DAG file lies."""
    parts = urlsplit(address)
    extra = {
        "work_uri": (home / "work").as_uri(),
        "datalake": {
            "format": "iceberg",
            "iceberg.type": "hadoop",
            "iceberg.warehouse": str(home / "lake"),
        },
    }
    fluss = {"conn_type": "fluss", "host": parts.hostname, "port": parts.port, "extra": extra}
    return {
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(home / "plugins"),
        "AIRFLOW_CONN_FLUSS_DEFAULT": json.dumps(fluss),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[1]"}),
        "AIRFLOW__SLUICE__SCHEDULE": "none",
        "AIRFLOW__SLUICE__TIER_RETRIES": "0",
        "AIRFLOW__SLUICE__JARS": f"{JARS}/{installed_iceberg().name}",
    }


def lines_of_the_page(environment: Environment, home: Path) -> str:
    """What they lay down as the DAG file. Others try their first line and the fetch of jars."""
    page = "docs/package-index.md"
    install, dag, fetch, files = [command.text for command in claimed(page, __file__)]
    assert install == "pip install 'fluss-sluice[airflow]'"
    assert fetch.startswith("sluice jars fetch ")
    (home / "page/dags").mkdir(parents=True)
    subprocess.run(
        ["bash", "-euc", f"{dag}\n{files}"],
        cwd=home,
        env={**environment.variables, "AIRFLOW_HOME": str(home / "page")},
        timeout=120,
        check=True,
    )
    return (home / f"page/dags/{DAG_ID}.py").read_text()


def test_the_dag_of_the_wheel_tiers_two_tables(
    airflow_alone: Environment,
    server: ServerProcess,
    tmp_path: Path,
    lake_sql: Callable[[Path, str], list[Any]],
) -> None:
    with connect(server.address) as client:
        client.admin.create_database("shop")
        for name in NAMES:
            make_table(client, name)
    dags = tmp_path / "dags"
    dags.mkdir()
    laid_down = lines_of_the_page(airflow_alone, tmp_path)
    home = str(airflow_alone.home)
    check = f"\nimport sluice\n\nassert sluice.__file__.startswith({home!r})\n"
    (dags / f"{DAG_ID}.py").write_text(laid_down + check)
    (tmp_path / "logs").mkdir()
    # not in the checkout, which `python -m airflow` would import from
    processes = Processes(tmp_path / "logs", airflow_alone.variables, cwd=tmp_path)
    wanted = settings(server.address, tmp_path, dags)
    try:
        airflow = Airflow(tmp_path / "airflow", processes, wanted, airflow_alone.python)
        airflow.prepare()
        airflow.start()
        airflow.wait_until_ready(READY_S, lambda _: None)
        conf = {"tables": ["shop.*"], "spark_conf": {"spark.ui.enabled": "false"}}
        airflow.follow(airflow.trigger(conf), RUN_S, lambda _: None)
    finally:
        processes.stop_all()
    for name in NAMES:
        [row] = lake_sql(tmp_path / "lake", f"SELECT count(*), sum(id) FROM lake.shop.{name}")
        assert tuple(row) == (100, 4950)
