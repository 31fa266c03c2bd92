"""`sluice create-table`: what it says of a table that the lake will not take as it is thought."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sluice.cli.main import cli
from sluice.cli.tables.create_table import notes
from sluice.client import connect
from sluice.config import ServerConfig
from sluice.model import Column, Schema, TableDescriptor, TableInfo, TablePath
from sluice.model import types as t
from sluice.server.cluster import EmbeddedCluster

NOTE = (
    "note: columns opens and closes have the type TIME (Spark: it cannot read the table; other"
    " engines can)\n"
)


def test_columns_of_time_are_noted_where_the_table_is_tiered(tmp_path: Path) -> None:
    def create(name: str, schema: str, *options: str) -> Result:
        return CliRunner().invoke(
            cli,
            ["create-table", f"shop.{name}", "--schema", schema, *options]
            + ["--bootstrap", cluster.address],
        )

    hours = "id INT, opens TIME, closes TIME(3) NOT NULL"
    with EmbeddedCluster(ServerConfig(str(tmp_path), listen="grpc://127.0.0.1:0")) as cluster:
        made = create("hours", hours)
        assert (made.exit_code, made.stderr) == (0, NOTE)
        assert create("untiered", hours, "--no-datalake").stderr == ""
        assert create("days", "id INT, day DATE, at TIMESTAMP").stderr == ""


def test_a_freshness_without_a_unit_is_refused() -> None:
    """Fluss would take it for milliseconds."""
    command = ["create-table", "shop.t", "--schema", "id INT", "--freshness", "3"]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 2
    assert "'3' has no unit; write for example 3s or 3min" in done.stderr


def test_a_table_that_is_there_is_an_error_that_names_the_option(tmp_path: Path) -> None:
    with EmbeddedCluster(ServerConfig(str(tmp_path), listen="grpc://127.0.0.1:0")) as cluster:
        command = ["create-table", "shop.t", "--schema", "id INT", "--bootstrap", cluster.address]
        assert CliRunner().invoke(cli, command).exit_code == 0
        again = CliRunner().invoke(cli, command)
        assert again.exit_code == 1
        assert "exists already; --if-not-exists accepts an existing table" in again.stderr
        assert CliRunner().invoke(cli, [*command, "--if-not-exists"]).exit_code == 0


@pytest.mark.parametrize("lake_format", ["iceberg", "paimon"])
def test_keys_that_another_server_has_taken_are_noted(lake_format: str) -> None:
    """A Fluss that takes such a table; the embedded server refuses it."""
    properties = {"table.datalake.enabled": "true", "table.datalake.format": lake_format}
    columns = (Column("id", t.BIGINT.not_null(), 0), Column("at", t.timestamp(9).not_null(), 1))
    descriptor = TableDescriptor(
        Schema(columns, ("id", "at"), 1), bucket_keys=("id",), properties=properties
    )
    told = notes(TableInfo(TablePath("shop", "t"), 7, 1, descriptor, 0, 0))
    if lake_format == "paimon":
        assert told == [
            "the lake of this cluster has the format paimon: Sluice tiers only to Iceberg, so"
            " Fluss's own tiering service has to tier this table"
        ]
    else:
        [note] = told
        assert note.startswith(
            "tiering will refuse this table: table shop.t: column at of the primary"
        )


def test_properties_are_options_of_fluss_or_custom_ones(tmp_path: Path) -> None:
    arguments = [
        "create-table",
        "shop.stock",
        "--schema",
        "id INT PRIMARY KEY",
        "--freshness",
        "9s",
    ]
    arguments += ["--property", "table.datalake.auto-compaction=true"]
    arguments += ["--property", "iceberg.format-version = 3"]
    with EmbeddedCluster(ServerConfig(str(tmp_path), listen="grpc://127.0.0.1:0")) as cluster:
        made = CliRunner().invoke(cli, [*arguments, "--bootstrap", cluster.address])
        assert made.exit_code == 0, made.output
        with connect(cluster.address) as client:
            found = client.admin.table_info(TablePath("shop", "stock")).descriptor
    assert found.properties["table.datalake.auto-compaction"] == "true"
    assert found.properties["table.datalake.freshness"] == "9s"
    assert found.custom_properties == {"iceberg.format-version": "3"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("auto-compaction", "'auto-compaction' does not have the form KEY=VALUE"),
        ("=true", "'=true' does not have the form KEY=VALUE"),
        ("a=", "'a=' does not have the form KEY=VALUE"),
        ("table.datalake.freshness=1s", "use --freshness instead of table.datalake.freshness"),
        ("bucket.num=4", "use --buckets instead of bucket.num, which is an option of Flink SQL"),
        ("bucket.key=id", "use --bucket-key instead of bucket.key, which is an option of Flink"),
        (
            "auto-increment.fields=no",
            "use --auto-increment instead of auto-increment.fields, which is an option of Flink",
        ),
        ("log.ttl=1d", "'log.ttl' is no option of Fluss; did you mean 'table.log.ttl'?"),
    ],
)
def test_a_property_that_cannot_be_meant_is_refused(text: str, said: str) -> None:
    arguments = ["create-table", "shop.stock", "--schema", "id INT", "--property", text]
    made = CliRunner().invoke(cli, arguments)
    assert made.exit_code == 2
    assert said in " ".join(made.stderr.split())


def test_a_custom_property_that_may_be_misspelled_is_noted(tmp_path: Path) -> None:
    words = ["create-table", "shop.stock", "--schema", "id INT"]
    given = {
        "auto-increment.field": "did you mean --auto-increment?",
        "bucket.nmu": "did you mean --buckets?",
        "merge-engin": "did you mean 'table.merge-engine'?",
        "tabel.log.ttl": "did you mean 'table.log.ttl'?",
    }
    own = ["owner", "iceberg.format-version", "write.parquet.page-version"]
    for key in (*given, *own):
        words += ["--property", f"{key}=2"]
    with EmbeddedCluster(ServerConfig(str(tmp_path), listen="grpc://127.0.0.1:0")) as cluster:
        made = CliRunner().invoke(cli, [*words, "--bootstrap", cluster.address])
    assert made.exit_code == 0, made.output
    assert made.stderr.splitlines() == [
        f"note: {key} is a custom property, which Fluss ignores; {meant}"
        for key, meant in given.items()
    ]


@pytest.mark.parametrize(
    ("key", "end"),
    [("table.log.tll", "; did you mean 'table.log.ttl'?"), ("table.colour", " prefix 'table.'")],
)
def test_an_option_that_the_server_does_not_know_is_refused(
    tmp_path: Path, key: str, end: str
) -> None:
    words = ["create-table", "shop.stock", "--schema", "id INT", "--property", f"{key}=1d"]
    with EmbeddedCluster(ServerConfig(str(tmp_path), listen="grpc://127.0.0.1:0")) as cluster:
        made = CliRunner().invoke(cli, [*words, "--bootstrap", cluster.address])
    assert made.exit_code == 1
    assert f"unknown table option {key!r}: Fluss has no such option" in made.stderr
    assert made.stderr.endswith(f"{end}\n")
