"""The commands of the README, by hand: create, append, look, tier, look again, read with Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.programs.processes import ServerProcess, served, sluice

SCHEMA = "id BIGINT NOT NULL, item STRING, price DECIMAL(10, 2)"
NOBODY = "grpc://127.0.0.1:1"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with served(tmp_path_factory.mktemp("server") / "data") as running:
        yield running


@pytest.fixture
def cli(server: ServerProcess) -> Callable[..., Any]:
    def run(*arguments: str, fails: int = 0) -> str:
        done = sluice(*arguments, SLUICE_CLIENT_BOOTSTRAP=server.address)
        assert done.returncode == fails, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr if fails else done.stdout

    return run


def test_a_table_can_be_made_filled_and_seen(cli: Callable[..., Any], tmp_path: Path) -> None:
    made = cli("create-table", "shop.seen", "--schema", SCHEMA, "--buckets", "2")
    assert "2 buckets, will be tiered as Iceberg" in made
    (tmp_path / "a.csv").write_text("id,item,price\n1,pen,1.20\n2,,7.50\n")
    assert "2 rows appended" in cli("append", "shop.seen", str(tmp_path / "a.csv"))
    tables = json.loads(cli("tables", "shop", "--format", "json"))
    (seen,) = (table for table in tables if table["table"] == "shop.seen")
    assert (seen["buckets"], seen["columns"], seen["kind"]) == (2, 3, "log")
    assert "shop.seen" in cli("tables")
    assert "shop.seen" in cli("status", "shop.seen")


def test_a_table_is_made_like_a_file_with_partitions(
    cli: Callable[..., Any], tmp_path: Path
) -> None:
    rows = pa.table({"country": ["DE", "FR", "DE"], "n": [1, 2, 3]})
    pq.write_table(rows, tmp_path / "v.parquet")
    file = str(tmp_path / "v.parquet")
    cli("create-table", "shop.visits", "--like", file, "--partition-by", "country")
    refused = cli("append", "shop.visits", file, fails=1)
    assert "PartitionNotExists" in refused
    assert "3 rows appended" in cli("append", "shop.visits", file, "--create-partitions")
    tables = json.loads(cli("tables", "shop", "--format", "json"))
    (seen,) = (table for table in tables if table["table"] == "shop.visits")
    assert seen["partitions"] == 2


def test_content_that_does_not_fit_is_a_failure_and_another_kind_of_file_wrong_usage(
    cli: Callable[..., Any], tmp_path: Path
) -> None:
    cli("create-table", "shop.strict", "--schema", SCHEMA)
    (tmp_path / "a.csv").write_text("id,item,price\nten,pen,1.20\n")
    assert "'ten'" in cli("append", "shop.strict", str(tmp_path / "a.csv"), fails=1)
    (tmp_path / "a.json").write_text("{}")
    told = cli("append", "shop.strict", str(tmp_path / "a.json"), fails=2)
    assert "expected a file with the suffix .parquet, .csv, .jsonl or .ndjson" in told


def test_a_table_that_exists_is_refused_or_left_as_it_is(cli: Callable[..., Any]) -> None:
    cli("create-table", "shop.twice", "--schema", SCHEMA)
    refused = cli("create-table", "shop.twice", "--schema", SCHEMA, fails=1)
    assert refused.startswith("sluice: TableAlreadyExist: ")
    cli("create-table", "shop.twice", "--schema", SCHEMA, "--if-not-exists")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("append", "shop.none", __file__), "shop.none"),
        (("tables", "nowhere"), "nowhere"),
        (("status", "shop.none"), "shop.none"),
    ],
)
def test_what_is_not_there_is_named(
    cli: Callable[..., Any], arguments: tuple[str, ...], told: str
) -> None:
    refused = cli(*arguments, fails=1)
    assert refused.startswith("sluice: ")
    assert "NotExist" in refused
    assert told in refused


@pytest.mark.spark
def test_tier_brings_rows_to_the_lake_once(
    cli: Callable[..., Any],
    lake_sql: Callable[[Path, str], list[Any]],
    tmp_path: Path,
) -> None:
    lake = tmp_path / "lake"
    tier = ("tier", "shop.orders", "--warehouse", str(lake), "--wait", "1min")
    cli("create-table", "shop.orders", "--schema", SCHEMA, "--buckets", "2", "--freshness", "1s")
    (tmp_path / "a.csv").write_text("id,item,price\n1,pen,1.20\n2,,7.50\n")
    cli("append", "shop.orders", str(tmp_path / "a.csv"))
    first = cli(*tier)
    assert first.startswith("shop.orders: committed to the lake: 2 rows, ")
    assert first.count("\n") == 1, "one line"
    assert "lake snapshot id" in first
    rows = lake_sql(lake, "SELECT id, item, price FROM lake.shop.orders ORDER BY id")
    assert [(row.id, row.item, str(row.price)) for row in rows] == [
        (1, "pen", "1.20"),
        (2, None, "7.50"),
    ]
    (status,) = json.loads(cli("status", "shop.orders", "--format", "json"))
    assert status["tiering_epoch"] >= 1
    assert status["last_tiered_ms"] > 0
    again = json.loads(cli(*tier, "--format", "json"))
    assert again["outcome"] == "nothing_new"
    assert lake_sql(lake, "SELECT count(*) AS n FROM lake.shop.orders")[0].n == 2


@pytest.mark.slow
@pytest.mark.spark
def test_a_lake_that_cannot_be_written_is_one_line_with_kind_and_reason(
    server: ServerProcess, cli: Callable[..., Any], tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    (lake / "shop").write_text("a file where the folder of the database should be")
    cli("create-table", "shop.blocked", "--schema", SCHEMA, "--freshness", "1s")
    (tmp_path / "a.csv").write_text("id,item,price\n1,pen,1.20\n")
    cli("append", "shop.blocked", str(tmp_path / "a.csv"))
    told = cli("tier", "shop.blocked", "--warehouse", str(lake), "--wait", "1min", fails=1)
    assert "sluice: LakeNotWritable: " in told
    failing = sluice(
        "status", "shop.blocked", "--format", "json", SLUICE_CLIENT_BOOTSTRAP=server.address
    )
    assert failing.returncode == 1, "a table is failing"
    (status,) = json.loads(failing.stdout)
    assert status["failures"] == 1
    assert "not a directory" in status["last_error"]


def test_a_server_that_is_down_is_told_by_append_too(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    done = sluice(
        *("append", "shop.t", str(tmp_path / "a.csv"), "--bootstrap", NOBODY),
        SLUICE_CLIENT_RETRY_TIMEOUT_MS="100",
    )
    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
