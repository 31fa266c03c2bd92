"""Parquet and CSV files as Arrow batches of a wanted schema."""

from pathlib import Path

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluice.cli.files import batches, columns_of, row_count, schema_of
from sluice.model import Column, Schema
from sluice.model import types as t

WANTED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("at", pa.timestamp("us")),
    ]
)


def read(path: Path, schema: pa.Schema = WANTED) -> pa.Table:
    return pa.Table.from_batches(batches(path, schema), schema)


def test_a_parquet_file_is_read_by_column_name_and_cast(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = pa.table(
        {
            "name": ["a", None],
            "extra": [1, 2],
            "at": pa.array([1, 2], pa.timestamp("ms")),
            "id": pa.array([7, 8], pa.int32()),
        }
    )
    pq.write_table(source, tmp_path / "t.parquet")
    assert row_count(tmp_path / "t.parquet") == 2
    rows = read(tmp_path / "t.parquet")
    assert rows.schema == WANTED
    assert "left out, not in the table: extra" in capsys.readouterr().err
    assert rows.column("id").to_pylist() == [7, 8]
    assert rows.column("at").cast(pa.int64()).to_pylist() == [1000, 2000]


def test_a_csv_file_has_the_tables_types_and_knows_nulls(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,name,at\n1,NA,2013-01-01T10:00:00\n2,x,\n")
    rows = read(tmp_path / "t.csv")
    assert rows.column("name").to_pylist() == [None, "x"]
    assert rows.column("at").null_count == 1
    assert row_count(tmp_path / "t.csv") is None


def test_what_stands_in_quotes_is_no_null(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        'id,name,at\n1,"NA",\n2,NA,\n3,"",\n4,,\n5,"null",\n6,null,\n7,"NULL",\n8,NULL,\n'
    )
    names = read(tmp_path / "t.csv").column("name").to_pylist()
    assert names == ["NA", None, "", None, "null", None, "NULL", None]


@pytest.mark.parametrize("precision", [0, 3, 6, 9])
def test_an_instant_may_have_a_zone_and_is_utc_without_one(tmp_path: Path, precision: int) -> None:
    stamps = {
        "2024-05-01T12:00:00Z": 12,
        "2024-05-01 12:00:00+02:00": 10,
        "2024-05-01T12:00:00-0330": 15.5,
        "2024-05-01T12:00+01": 11,
        "2024-05-01T12:00:00": 12,
        "2024-05-01 12:00": 12,
        "2024-05-01": 0,
        "": None,
        "NA": None,
    }
    rows = "\n".join(f"{i},{text}" for i, text in enumerate(stamps))
    (tmp_path / "t.csv").write_text(f"id,at\n{rows}\n")
    columns = (Column("id", t.BIGINT, 0), Column("at", t.timestamp_ltz(precision), 1))
    wanted = columns_of(Schema(columns, highest_field_id=1), ["id", "at"])
    found = read(tmp_path / "t.csv", wanted).column("at")
    midnight = 19844 * 86_400
    seconds = [None if hour is None else int(midnight + hour * 3600) for hour in stamps.values()]
    assert found.cast(pa.timestamp("s")).cast(pa.int64()).to_pylist() == seconds


def test_no_instant_is_refused_by_its_column(tmp_path: Path) -> None:
    wanted = columns_of(Schema((Column("at", t.timestamp_ltz(6), 0),), highest_field_id=0), ["at"])
    (tmp_path / "t.csv").write_text("at\nsoon\n")
    with pytest.raises(click.ClickException, match=r"column 'at': .*soon"):
        read(tmp_path / "t.csv", wanted)


def test_an_instant_of_a_parquet_file_keeps_its_moment(tmp_path: Path) -> None:
    wanted = columns_of(Schema((Column("at", t.timestamp_ltz(6), 0),), highest_field_id=0), ["at"])
    pq.write_table(
        pa.table({"at": pa.array([7], pa.timestamp("us", "Asia/Tokyo"))}), tmp_path / "t.parquet"
    )
    found = read(tmp_path / "t.parquet", wanted).column("at")
    assert found.cast(pa.int64()).to_pylist() == [7]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("id,at\n1,2013-01-01T10:00:00\n", "no column name"),
        ("id,name,at\n,x,2013-01-01T10:00:00\n", "'id' is NOT NULL and has nulls"),
        ("id,name,at\n1.5,x,2013-01-01T10:00:00\n", "t.csv"),
    ],
)
def test_rows_that_do_not_fit_are_refused_with_file_and_column(
    tmp_path: Path, content: str, told: str
) -> None:
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(click.ClickException, match=told) as caught:
        read(tmp_path / "t.csv")
    assert caught.value.exit_code == 1


def test_a_value_that_would_lose_something_is_refused(tmp_path: Path) -> None:
    source = pa.table({"id": [1.5], "name": ["a"], "at": pa.array([1], pa.timestamp("us"))})
    pq.write_table(source, tmp_path / "t.parquet")
    with pytest.raises(click.ClickException, match="column 'id'"):
        read(tmp_path / "t.parquet")


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text("{}")
    with pytest.raises(click.UsageError, match=r"only \.parquet and \.csv"):
        read(tmp_path / "t.json")


def test_a_schema_is_taken_from_a_file_with_the_columns_that_may_not_be_null(
    tmp_path: Path,
) -> None:
    (tmp_path / "t.csv").write_text("country,n\nDE,1\n")
    schema = schema_of(tmp_path / "t.csv", not_null=["country"])
    assert schema.field("country") == pa.field("country", pa.string(), nullable=False)
    assert schema.field("n") == pa.field("n", pa.int64())
