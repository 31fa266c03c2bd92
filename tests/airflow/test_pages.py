"""What docs/airflow.md and docs/clean-up.md say of settings, parameters and connections is so."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.standard.operators.bash import BashOperator

from sluice.cli.main import cli
from sluice_airflow.connection import FlussConnection
from sluice_airflow.dag import params
from sluice_airflow.provider_info import OPTIONS, get_provider_info
from tests.docs.blocks import ROOT, Block, Page

pytestmark = pytest.mark.airflow
AIRFLOW = Page(ROOT / "docs/airflow.md")
HERE = "tests/airflow/test_pages.py"


def block(page: Page) -> Block:
    """The one block that this file runs."""
    [found] = [each for each in page.blocks if each.comment("run by") == HERE]
    return found


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
    expected: dict[str, Any] = {name: param.value for name, param in params().items()}
    assert {name: json.loads(found[name]) for name in expected} == expected


def test_every_field_of_the_connection_is_named() -> None:
    named = {name.strip() for cell in table("Connections") for name in cell.split(",")}
    [form] = get_provider_info()["connection-types"]
    assert set(form["conn-fields"]) <= named


def test_the_connections_of_the_page_are_understood() -> None:
    script = f'{block(AIRFLOW).content}\nprintf "%s\\0%s" "$AIRFLOW_CONN_FLUSS_DEFAULT" '
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


def test_airflow_runs_a_clean_up_command_that_exists(tmp_path: Path) -> None:
    (tmp_path / "sluice.toml").touch()
    shown = block(Page(ROOT / "docs/clean-up.md")).content.replace("/etc/", f"{tmp_path}/")
    task = eval(shown, {"BashOperator": BashOperator})
    program, command, *arguments = shlex.split(task.bash_command)
    assert program == "sluice"
    with cli.commands[command].make_context(command, arguments) as context:
        assert (context.params["yes"], context.params["output_format"]) == (True, "json")
