"""What docs/airflow.md and docs/clean-up.md say of settings, parameters and connections is so."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.standard.operators.bash import BashOperator

from sluice.artifacts.iceberg import NEWEST
from sluice.cli.main import cli
from sluice.config import load_config
from sluice.errors import LakeNotWritable
from sluice.lake.storage.file_systems import FileSystems
from sluice.lake.storage.small_files import storage_errors
from sluice.rounds.values.reasons import reason_of
from sluice.storage import file_system
from sluice_airflow.config.connection import FlussConnection
from sluice_airflow.config.params import run_params
from sluice_airflow.config.preflight import Submission, find_obstacle
from sluice_airflow.provider_info import OPTIONS, get_provider_info
from sluice_airflow.tier.errors import tier_error
from tests.docs.blocks import ROOT, Page, claimed_blocks
from tests.docs.outputs import matches
from tests.support.clusters.s3_server import S3Server

pytestmark = pytest.mark.airflow
AIRFLOW = Page(ROOT / "docs/airflow.md")
CONNECTIONS, SETTINGS, PACKAGES, NO_PROGRAM, REFUSED = (
    block.content for block in claimed_blocks("docs/airflow.md", __file__)
)


def table(heading: str) -> dict[str, list[str]]:
    """The rows of the first table below a heading, by their first cell."""
    below = AIRFLOW.text.split(f"\n## {heading}\n")[1]
    end = next((n for n, line in enumerate(below.splitlines()) if line.startswith("## ")), None)
    rows = [line for line in below.splitlines()[:end] if line.startswith("| ")][2:]
    cells = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]
    return {first.strip("`"): rest for first, *rest in cells}


def test_every_setting_has_its_default_and_its_words() -> None:
    expected = {
        name: [f"`{default}`" if default else "", description]
        for name, (_, default, description) in OPTIONS.items()
    }
    assert table("Settings") == expected


def test_every_parameter_has_its_default() -> None:
    found = {name: row[0].strip("`") for name, row in table("Parameters of a run").items()}
    expected: dict[str, Any] = {name: param.value for name, param in run_params().items()}
    assert {name: json.loads(found[name]) for name in expected} == expected


def test_every_field_of_the_connection_is_named() -> None:
    named = {name.strip() for cell in table("Connections") for name in cell.split(",")}
    [form] = get_provider_info()["connection-types"]
    assert set(form["conn-fields"]) <= named


def test_the_connections_of_the_page_are_understood() -> None:
    script = f'{CONNECTIONS}\nprintf "%s\\0%s" "$AIRFLOW_CONN_FLUSS_DEFAULT" '
    script += '"$AIRFLOW_CONN_SPARK_DEFAULT"'
    printed = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, check=True)
    fluss, spark = (json.loads(text) for text in printed.stdout.split("\0"))
    connection = FlussConnection.parse(
        "fluss_default", fluss["host"], fluss["port"], fluss["extra"]
    )
    assert (fluss["conn_type"], spark["conn_type"]) == ("fluss", "spark")
    assert connection.bootstrap == "grpc://127.0.0.1:9123"
    assert connection.require_work_uri() == fluss["extra"]["work_uri"]
    assert connection.spark_conf()["spark.sluice.datalake.iceberg.warehouse"] == "/srv/lake"


def test_the_settings_of_a_driver_are_loaded() -> None:
    extra = {
        "transport": "fluss",
        "datalake": {"iceberg.type": "rest", "iceberg.s3.secret-access-key": "..."},
    }
    connection = FlussConnection.parse("fluss_default", "h", 9123, extra, "etl", "...")
    [(variable, content)] = connection.secret_environment().items()
    assert json.loads(SETTINGS) == json.loads(content)
    loaded = load_config(environment={variable: SETTINGS})
    assert (loaded.client.username, loaded.client.password) == ("etl", "...")
    assert loaded.datalake.iceberg["s3.secret-access-key"] == "..."


def test_the_packages_for_s3_are_of_one_iceberg() -> None:
    name, _, value = PACKAGES.strip().partition(" = ")
    runtime, bundle = value.split(",")
    newest = NEWEST.coordinates
    assert name in OPTIONS
    assert runtime == newest
    assert bundle == f"org.apache.iceberg:iceberg-aws-bundle:{newest.rpartition(':')[2]}"


def test_a_missing_spark_submit_is_the_error_that_the_page_shows(tmp_path: Path) -> None:
    connection = FlussConnection.parse(
        "fluss_default", "127.0.0.1", 1, {"work_uri": f"file://{tmp_path}/work"}
    )
    found = find_obstacle(connection, Submission(master="local[2]", binary="spark3-submit"))
    assert found is not None
    assert matches(NO_PROGRAM.splitlines(), [found.reason])


def test_a_lake_that_refuses_is_the_error_that_the_page_shows() -> None:
    """An S3 refuses a file, and the tier task raises what the driver reports of it."""
    with S3Server() as s3:
        s3.bucket("lake")
        s3.refused_methods = frozenset({"PUT", "POST"})
        uri = "s3://lake/shop/orders/data/00000-0.parquet"
        filesystem, path = file_system(uri, s3.options())
        with (
            pytest.raises(LakeNotWritable) as raised,
            storage_errors(f"write {uri}", FileSystems()),
            filesystem.open_output_stream(path) as stream,
        ):
            stream.write(b"PAR1")
    error = tier_error([("shop.orders", reason_of(raised.value))], 1)
    assert matches(REFUSED.splitlines(), [f"{type(error).__name__}: {error}"])


def test_the_extra_of_airflow_3_1_is_understood() -> None:
    [shown] = claimed_blocks("docs/versions.md", __file__)
    connection = FlussConnection.parse("fluss_default", "fluss", 9123, json.loads(shown.content))
    assert connection.require_work_uri() == "s3://bucket/work"
    assert connection.datalake == {"iceberg.warehouse": "s3://bucket/lake"}


def test_airflow_runs_a_clean_up_command_that_exists(tmp_path: Path) -> None:
    (tmp_path / "sluice.toml").touch()
    [shown] = claimed_blocks("docs/clean-up.md", __file__)
    code = shown.content.replace("/etc/", f"{tmp_path}/")
    task = eval(code, {"BashOperator": BashOperator})
    program, command, *arguments = shlex.split(task.bash_command)
    assert program == "sluice"
    with cli.commands[command].make_context(command, arguments) as context:
        assert (context.params["yes"], context.params["output_format"]) == (True, "json")
