"""A real Airflow that has the wheel alone: its DAG tiers two tables by spark-submit."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

from demo.airflow import DAG_ID, Airflow
from demo.processes import Processes
from sluice.artifacts.iceberg import installed_iceberg
from sluice.client import Client, connect
from sluice.config import ServerConfig
from sluice.formats.types.types import schema_from_arrow
from sluice.model import TableDescriptor, TablePath
from sluice.server.cluster import EmbeddedCluster
from tests.docs.blocks import Command, claimed
from tests.support.programs.built_wheel import Environment
from tests.support.programs.installed import JARS

pytestmark = [pytest.mark.slow, pytest.mark.airflow, pytest.mark.spark]

README = claimed("README.md", __file__)
READY_S, RUN_S = 300, 500
NAMES = ("orders", "visits")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    config = ServerConfig(data_dir=str(tmp_path / "data"), listen="fluss://127.0.0.1:0")
    with EmbeddedCluster(config) as running:
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


def script(commands: Sequence[Command]) -> list[str]:
    """The lines for Airflow of a page, without the one that installs the wheel."""
    install, *lines = [command.text for command in commands]
    assert re.fullmatch(r"pip install .*\[airflow\]['\"]", install), install
    return lines


def run_lines(environment: Environment, home: Path, lines: Sequence[str]) -> dict[str, str]:
    """Runs them before Airflow has started, and returns the connections that they export."""
    (home / "airflow/dags").mkdir(parents=True)
    later = ("airflow ", "sluice jars fetch ")
    at_once = [line for line in lines if not line.startswith(later)]
    done = subprocess.run(
        ["bash", "-euc", "\n".join([*at_once, "env -0 > exported"])],
        cwd=home,
        env={**environment.variables, "AIRFLOW_HOME": str(home / "airflow")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    exported = (home / "exported").read_text().split("\0")
    return dict(each.split("=", 1) for each in exported if each.startswith("AIRFLOW_CONN_"))


def readme_for(address: str, home: Path) -> list[str]:
    """The README's lines with another cluster, Spark, lake and work folder."""
    parts = urlsplit(address)
    lines = "\0".join(script(README))
    for shown, meant in (
        ("spark://spark.example:7077", "local[1]"),
        ("fluss.example", str(parts.hostname)),
        ("9123", str(parts.port)),
        ("s3://bucket/sluice", (home / "work").as_uri()),
        ('"rest"', '"hadoop"'),
        ('"iceberg.uri": "http://catalog.example:8181"', f'"iceberg.warehouse": "{home}/lake"'),
    ):
        assert shown in lines, shown
        lines = lines.replace(shown, meant)
    return lines.split("\0")


@pytest.mark.parametrize(
    "commands",
    [
        pytest.param(claimed("docs/airflow.md", __file__), id="airflow.md"),
        pytest.param(claimed("docs/package-index.md", __file__), id="package-index.md"),
    ],
)
def test_the_lines_of_a_page_lay_down_the_dag(
    airflow_alone: Environment, tmp_path: Path, commands: list[Command]
) -> None:
    run_lines(airflow_alone, tmp_path, script(commands))
    assert "lake_tiering_dag" in (tmp_path / f"airflow/dags/{DAG_ID}.py").read_text()


def test_the_dag_of_the_wheel_tiers_two_tables(
    airflow_alone: Environment,
    server: EmbeddedCluster,
    tmp_path: Path,
    lake_sql: Callable[[Path, str], list[Any]],
) -> None:
    with connect(server.address) as client:
        client.admin.create_database("shop")
        for name in NAMES:
            make_table(client, name)
    connections = run_lines(airflow_alone, tmp_path, readme_for(server.address, tmp_path))
    dags = tmp_path / "airflow/dags"
    home = str(airflow_alone.home)
    with (dags / f"{DAG_ID}.py").open("a") as file:
        file.write(f"\nimport sluice\n\nassert sluice.__file__.startswith({home!r})\n")
    (tmp_path / "logs").mkdir()
    # not in the checkout, which `python -m airflow` would import from
    processes = Processes(tmp_path / "logs", airflow_alone.variables, cwd=tmp_path)
    wanted = {
        **connections,
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True",
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(tmp_path / "plugins"),
        "AIRFLOW__SLUICE__SCHEDULE": "none",
        "AIRFLOW__SLUICE__TIER_RETRIES": "0",
        "AIRFLOW__SLUICE__JARS": f"{JARS}/{installed_iceberg().name}",
    }
    try:
        airflow = Airflow(tmp_path / "airflow", processes, wanted, airflow_alone.python)
        airflow.prepare()
        airflow.start()
        airflow.wait_until_ready(READY_S, lambda _: None)
        for line in script(README):
            if line.startswith("airflow "):
                done = airflow_alone.run(*line.split(), cwd=tmp_path, **airflow.environment)
                assert done.returncode == 0, done.stdout + done.stderr
        conf = {"tables": ["shop.*"], "spark_conf": {"spark.ui.enabled": "false"}}
        airflow.follow(airflow.trigger(conf), RUN_S, lambda _: None)
    finally:
        processes.stop_all()
    for name in NAMES:
        [row] = lake_sql(tmp_path / "lake", f"SELECT count(*), sum(id) FROM lake.shop.{name}")
        assert tuple(row) == (100, 4950)
