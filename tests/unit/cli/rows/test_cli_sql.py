"""`sluice sql` as far as it goes without Spark; tests/spark has the rest."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from sluice.cli.main import cli
from sluice.cli.rows.sql import _print, explained
from sluice.errors import QueryFailed
from tests.support.harness.findings import finding
from tests.support.programs.processes import sluice

SYSTEM = "the system tables are sys.lake_tiering_status and sys.lake_tiering_rounds"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "missing argument 'QUERY'"),
        (("SELECT 1", "--bootstrap", "127.0.0.1:9123"), "write grpc://127.0.0.1:9123"),
        (("SELECT 1", "--limit", "0"), "'0' is not a whole number, 1 to 1000000"),
        (("SELECT 1", "--timeout", "long"), "'long' is not a duration"),
        (("SELECT 1", "--format", "xml"), "'xml' is not one of"),
    ],
)
def test_wrong_arguments_are_told_before_spark_starts(arguments: tuple[str], told: str) -> None:
    result = CliRunner().invoke(cli, ["sql", *arguments])
    assert result.exit_code == 2
    assert told in result.output


@pytest.mark.parametrize("package", ["pyspark", "pyspark_sluice"])
def test_without_spark_it_says_what_to_install(package: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; from sluice.cli.main import main; main()"
    command = [sys.executable, "-c", code, "sql", "SELECT 1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 2
    assert f"{package} is not installed: pip install 'fluss-sluice[spark]'" in done.stderr


@pytest.mark.parametrize("command", [("sql", "SELECT 1"), ("clean", "a.b"), ("repair", "a.b")])
def test_a_missing_java_is_named(tmp_path: Path, command: tuple[str, ...]) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    places = {"JAVA_HOME": str(tmp_path / "nowhere"), "TMPDIR": str(temporary)}
    lake = () if command[0] == "sql" else ("--warehouse", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as cluster:
        places["SLUICE_CLIENT_BOOTSTRAP"] = f"grpc://127.0.0.1:{cluster.getsockname()[1]}"
        done = sluice(*command, *lake, **places)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    named = f"Java 17 or newer is needed, but JAVA_HOME={tmp_path}/nowhere has no bin/java: install"
    assert named in line
    with finding():
        assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "has_lake", "line"),
    [
        (
            "`shop`.`orders`",
            False,
            f"no table shop.orders: {SYSTEM}; lake tables are lake.DATABASE.TABLE,"
            " with --warehouse PATH or a lake in --config FILE",
        ),
        (
            "`shop`.`orders`",
            True,
            f"no table shop.orders: {SYSTEM}; did you mean lake.shop.orders?",
        ),
        (
            "`lake`.`shop`.`ordres`",
            True,
            f"no table lake.shop.ordres: {SYSTEM}; lake tables are lake.DATABASE.TABLE",
        ),
    ],
)
def test_an_unknown_table_names_the_tables_that_there_are(
    name: str, has_lake: bool, line: str
) -> None:
    lake = {"type": "hadoop", "warehouse": "/lake"} if has_lake else {}
    advice = "Verify the spelling and correctness of the schema and catalog."
    by_spark = f"[TABLE_OR_VIEW_NOT_FOUND] The table or view {name} cannot be found. {advice}"
    assert str(explained(QueryFailed(by_spark), lake)) == line
    other = QueryFailed("[PARSE_SYNTAX_ERROR] Syntax error at or near end of input.")
    assert explained(other, lake) is other


def test_a_query_of_the_lake_without_a_lake_names_the_option() -> None:
    by_spark = QueryFailed(
        "[REQUIRES_SINGLE_PART_NAMESPACE] spark_catalog requires a single-part namespace, but got"
        " `lake`.`shop`. SQLSTATE: 42K05"
    )
    assert str(explained(by_spark, {})) == (
        "no lake is configured: give --warehouse PATH, or --config FILE with [datalake]"
    )
    assert explained(by_spark, {"type": "hadoop"}) is by_spark
    assert str(explained(by_spark, {"type": "jdbc"})) == (
        "no catalog lake: a JDBC catalog stores its name, so write"
        " `fluss-iceberg-catalog`.DATABASE.TABLE"
    )


@pytest.mark.parametrize(
    ("options", "name"),
    [({}, "`fluss-iceberg-catalog`"), ({"name": "shops"}, "shops")],
)
def test_a_jdbc_catalog_has_its_own_name(options: dict[str, str], name: str) -> None:
    lake = {"type": "jdbc", "uri": "u", "warehouse": "w", **options}
    by_spark = "[TABLE_OR_VIEW_NOT_FOUND] The table or view `lake`.`shop`.`orders` cannot be found"
    assert str(explained(QueryFailed(by_spark), lake)).endswith(
        f"a JDBC catalog stores its name: write {name}.shop.orders"
    )


ROWS = pa.table(
    {
        "n": pa.array([1234, None], pa.int64()),
        "ok": pa.array([True, None]),
        "at": pa.array([1_500, None], pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC")),
        "local": pa.array([0, None], pa.timestamp("us")),
        "words": pa.array([["a", "b"], None]),
        "text": pa.array(["x, 'y'", None]),
        "raw": pa.array([b"\x01\xff", None]),
    }
)


def test_rows_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    _print(ROWS.slice(0, 1), "json")
    assert json.loads(capsys.readouterr().out) == [
        {
            "n": 1234,
            "ok": True,
            "at": "1970-01-01T00:00:01.500000Z",
            "local": "1970-01-01T00:00:00.000000",
            "words": ["a", "b"],
            "text": "x, 'y'",
            "raw": "01ff",
        }
    ]


def test_rows_as_csv(capsys: pytest.CaptureFixture[str]) -> None:
    _print(ROWS, "csv")
    assert capsys.readouterr().out.splitlines() == [
        "n,ok,at,local,words,text,raw",
        "1234,true,1970-01-01T00:00:01.500000Z,1970-01-01T00:00:00.000000,"
        '"[""a"", ""b""]","x, \'y\'",01ff',
        ",,,,,,",
    ]


def test_rows_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    _print(ROWS, "table")
    heading, _, row, *_ = capsys.readouterr().out.splitlines()
    assert heading.split() == ["n", "ok", "at", "local", "words", "text", "raw"]
    assert "1234  yes  1970-01-01 00:00:01.500Z  1970-01-01 00:00:00" in row


@pytest.mark.parametrize(
    ("output_format", "printed"), [("table", "done\n"), ("json", "[]\n"), ("csv", "")]
)
def test_an_answer_without_columns(
    output_format: str, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _print(pa.table({}), output_format)
    assert capsys.readouterr().out == printed
