"""Parquet and CSV files as Arrow batches of a wanted schema."""

from pathlib import Path

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluice.cli.files import batches, row_count, schema_of

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
