"""Parquet and CSV files as Arrow batches of a wanted schema."""

import os
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluice.cli.rows.columns import columns_of, rows_of, schema_of
from sluice.model import Column, DataType, Schema
from sluice.model import types as t

WANTED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("at", pa.timestamp("us")),
    ]
)


def read(path: Path, schema: pa.Schema = WANTED) -> pa.Table:
    return pa.Table.from_batches(rows_of(path, schema).batches(), schema)


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
    assert rows_of(tmp_path / "t.parquet", WANTED, is_part=True).rows == 2
    rows = pa.Table.from_batches(rows_of(tmp_path / "t.parquet", WANTED, is_part=True).batches())
    assert rows.schema == WANTED
    assert "ignored columns: extra" in capsys.readouterr().err
    assert rows.column("id").to_pylist() == [7, 8]
    assert rows.column("at").cast(pa.int64()).to_pylist() == [1000, 2000]


def test_a_csv_file_has_the_tables_types_and_knows_nulls(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,name,at\n1,NA,2013-01-01T10:00:00\n2,x,\n")
    rows = read(tmp_path / "t.csv")
    assert rows.column("name").to_pylist() == [None, "x"]
    assert rows.column("at").null_count == 1
    assert rows_of(tmp_path / "t.csv", WANTED).rows is None


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
    with pytest.raises(
        click.ClickException, match=r"line 2: column at: expected TIMESTAMP_LTZ\(6\), found 'soon'"
    ):
        read(tmp_path / "t.csv", wanted)


@pytest.mark.parametrize("data_type", [t.timestamp(9), t.timestamp_ltz(7)], ids=str)
@pytest.mark.parametrize("kind", [pa.string(), pa.timestamp("us")], ids=["text", "microseconds"])
def test_nanoseconds_end_with_their_64_bits(
    tmp_path: Path, data_type: DataType, kind: pa.DataType
) -> None:
    """An error names the range, because "for ever" is often written as a day of the year 9999."""
    wanted = columns_of(Schema((Column("at", data_type, 0),), highest_field_id=0), ["at"])
    inside = ["1677-09-21 00:12:44", "2262-04-11 23:47:16"]
    pq.write_table(pa.table({"at": pa.array(inside).cast(kind)}), tmp_path / "t.parquet")
    found = read(tmp_path / "t.parquet", wanted).column("at")
    assert found.cast(pa.timestamp("s")).cast(pa.string()).to_pylist() == inside
    for outside in ("1677-09-21 00:12:43", "2262-04-11 23:47:17", "9999-12-31 23:59:59"):
        pq.write_table(pa.table({"at": pa.array([outside]).cast(kind)}), tmp_path / "t.parquet")
        with pytest.raises(
            click.ClickException,
            match=r"from 1677-09-21 00:12:44 to 2262-04-11 23:47:16: nanoseconds have 64 bits$",
        ):
            read(tmp_path / "t.parquet", wanted)


def test_an_instant_of_a_parquet_file_keeps_its_moment(tmp_path: Path) -> None:
    wanted = columns_of(Schema((Column("at", t.timestamp_ltz(6), 0),), highest_field_id=0), ["at"])
    pq.write_table(
        pa.table({"at": pa.array([7], pa.timestamp("us", "Asia/Tokyo"))}), tmp_path / "t.parquet"
    )
    found = read(tmp_path / "t.parquet", wanted).column("at")
    assert found.cast(pa.int64()).to_pylist() == [7]


EVERY = Schema(
    tuple(
        Column(name, data_type, at)
        for at, (name, data_type) in enumerate(
            {
                "id": t.BIGINT.not_null(),
                "tiny": t.TINYINT,
                "price": t.decimal(5, 2),
                "ratio": t.FLOAT,
                "at": t.timestamp(3),
                "day": t.DATE,
                "ok": t.BOOLEAN,
                "code": t.binary(2),
                "note": t.STRING,
            }.items()
        )
    ),
    highest_field_id=8,
)
GOOD = ["1", "1", "1.25", "0.1", "2024-05-01 10:00:00.125", "2024-05-01", "true", "ab", "x"]


@pytest.mark.parametrize(
    ("column", "text", "told"),
    [
        ("id", "", "expected BIGINT NOT NULL, found no value"),
        ("id", "ten", "expected BIGINT NOT NULL, found 'ten'"),
        ("id", "9223372036854775808", "expected BIGINT NOT NULL, found '9223372036854775808'"),
        ("tiny", "128", "expected TINYINT, found '128'"),
        ("tiny", '"NA"', "expected TINYINT, found 'NA'"),
        ("price", "1.255", "expected DECIMAL(5,2), found '1.255'"),
        ("price", "12345", "expected DECIMAL(5,2), found '12345'"),
        ("ratio", "1e300", "expected FLOAT, found '1e300'"),
        ("at", "2024-05-01 10:00:00.1255", "expected TIMESTAMP(3), found '2024-05-01 10:"),
        ("day", "2024-02-30", "expected DATE, found '2024-02-30'"),
        ("ok", "perhaps", "expected BOOLEAN, found 'perhaps'"),
        ("code", "abc", "expected BINARY(2), found b'abc'"),
        ("note", "\udcff", "expected STRING, found b'\\xff'"),
        ("note", "y" * 3_000_000, "the row has more than 1,048,576 bytes"),
        ("note", "x,y", f"expected 9 values ({', '.join(EVERY.names)}), found 10"),
        ("note", '"x', "the quote before 'x' is never closed"),
    ],
)
def test_the_first_row_that_does_not_fit_is_told_by_line_column_and_value(
    tmp_path: Path, column: str, text: str, told: str
) -> None:
    path, at = tmp_path / "t.csv", EVERY.names.index(column)
    bad = [*GOOD[:at], text, *GOOD[at + 1 :]]
    quoted = [*GOOD[:-1], '"two\nlines, ""and"" more"']
    lines = [",".join(EVERY.names), *[",".join(GOOD)] * 20_000, "", ",".join(quoted), ",".join(bad)]
    after = [] if "quote" in told else lines[1:]  # where one would close it
    path.write_bytes("\n".join([*lines, *after]).encode(errors="surrogateescape"))
    found = rows_of(path, columns_of(EVERY, EVERY.names))
    with pytest.raises(click.ClickException) as caught:
        list(found.batches())
        found.check_end()
    where = "" if "row" in told or "values" in told else f"column {column}: "
    assert caught.value.message.startswith(f"{path}: line 20005: {where}{told}")
    assert len(caught.value.message.removeprefix(str(path))) < 200
    assert caught.value.exit_code == 1


def test_a_table_of_every_kind_is_read_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"{','.join(EVERY.names)}\n{','.join(GOOD)}\n")
    (row,) = read(tmp_path / "t.csv", columns_of(EVERY, EVERY.names)).to_pylist()
    assert (row["id"], str(row["price"]), row["code"]) == (1, "1.25", b"ab")
    assert row["ratio"] == pytest.approx(0.1, rel=1e-7)


def test_quoted_lines_that_lie_across_two_blocks_are_one_value(tmp_path: Path) -> None:
    text = '"' + "a line\n" * 30_000 + '"'  # 210 kB a row, a block has 1 MiB
    (tmp_path / "t.csv").write_text("id,name,at\n" + "".join(f"{i},{text},\n" for i in range(20)))
    rows = read(tmp_path / "t.csv")
    assert rows.column("id").to_pylist() == list(range(20))
    assert set(rows.column("name").to_pylist()) == {"a line\n" * 30_000}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "the file is empty"),
        ("name,at\na,2013-01-01T10:00:00\n", "line 1: column id is missing. The file has name, at"),
        ("id,nam\n1,a\n", "line 1: the table has no column 'nam'; did you mean 'name'?"),
        ("id,colour\n", "no column 'colour'; the columns are id, name, at"),
        ("1,a\n", "line 1: expected the columns id, name, at; found 1, a"),
        ("id,name,at,id\n", "more than one column is named 'id'; rename one"),
        ('id,name,"at\n1,x,', "line 1: the quote before 'at' is never closed"),
    ],
)
def test_a_file_that_cannot_hold_the_rows_is_refused(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(click.ClickException, match=told):
        read(tmp_path / "t.csv")


@pytest.mark.parametrize("text", ["id,name,at", "id,name,at\n", "\ufeffid,name,at\n\n"])
def test_a_header_alone_is_no_rows(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    assert read(tmp_path / "t.csv").num_rows == 0


def test_a_value_that_would_lose_something_is_told_by_row_and_row_group(tmp_path: Path) -> None:
    ids = pa.array([float(i) for i in range(150_000)])
    ids = pa.concat_arrays([ids, pa.array([1.5]), ids])
    source = pa.table(
        {"id": ids, "name": [None] * len(ids), "at": pa.nulls(len(ids), pa.timestamp("us"))}
    )
    pq.write_table(source, tmp_path / "t.parquet", row_group_size=100_000)
    found = r"t.parquet: row 150001 \(row group 2 of 4\): column id: expected int64, found 1.5"
    with pytest.raises(click.ClickException, match=found):
        read(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    ("name", "values", "told"),
    [
        (
            "id",
            pa.array([1, None]),
            "row 2 (row group 1 of 1): column id: expected BIGINT NOT NULL",
        ),
        (
            "tiny",
            pa.array([1, 200]),
            "row 2 (row group 1 of 1): column tiny: expected TINYINT, found 200",
        ),
        (
            "price",
            pa.array([1, 1000]),
            "row 2 (row group 1 of 1): column price: expected DECIMAL(5,2)",
        ),
        ("ratio", pa.array([1.0, 1e39]), "column ratio: expected FLOAT, found 1e+39"),
        (
            "at",
            pa.array([1, 1001], pa.timestamp("us")),
            "column at: expected TIMESTAMP(3), found 1970",
        ),
        ("at", pa.array([1, 1], pa.timestamp("ns")), "found 1970-01-01 00:00:00.000000001"),
        ("day", pa.array(["2024-05-01", "soon"]), "column day: expected DATE, found 'soon'"),
        (
            "ok",
            pa.array([{"a": 1}] * 2),
            "column ok: expected BOOLEAN, found a column of type struct",
        ),
    ],
)
def test_values_of_a_parquet_file_that_do_not_fit(
    tmp_path: Path, name: str, values: pa.Array, told: str
) -> None:
    path = tmp_path / "t.parquet"
    others = {n: pa.array([1, 1]) if n == "id" else pa.nulls(2) for n in EVERY.names}
    pq.write_table(pa.table({**others, name: values}), path)
    with pytest.raises(click.ClickException) as caught:
        read(path, columns_of(EVERY, EVERY.names))
    assert told in caught.value.message


def test_a_whole_number_may_become_a_decimal_with_room_for_it(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1], "price": [999]}), tmp_path / "t.parquet")
    rows = read(tmp_path / "t.parquet", columns_of(EVERY, ["id", "price"]))
    assert str(rows.column("price")[0]) == "999.00"


def test_a_parquet_file_with_a_damaged_page_is_told_by_the_rows_before(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    ids = pa.array(np.random.default_rng(1).integers(0, 2**60, 200_000))
    source = pa.table({"id": ids, "name": pa.nulls(200_000), "at": pa.nulls(200_000)})
    pq.write_table(source, path, row_group_size=100_000, use_dictionary=False)
    content = bytearray(path.read_bytes())
    begin = pq.read_metadata(path).row_group(1).column(0).data_page_offset
    content[begin + 100 : begin + 100_000] = bytes(99_900)
    path.write_bytes(content)
    with pytest.raises(click.ClickException, match=r"row 100001 \(row group 2 of 2\): this row"):
        read(path)


def test_keys_may_not_be_null_whatever_their_type_says(tmp_path: Path) -> None:
    wanted = columns_of(EVERY, ["day"], {"day": "it is a partition key"})
    (tmp_path / "t.csv").write_text("day\n2024-05-01\n\n")
    told = r"line 3: column day: expected DATE, found no value \(it is a partition key\)"
    with pytest.raises(click.ClickException, match=told):
        read(tmp_path / "t.csv", wanted)


def test_a_file_that_changes_is_another_one(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,name,at\n1,a,\n")
    rows = rows_of(path, WANTED)
    rows.check_unchanged()
    path.write_text("id,name,at\n2,a,b\n")
    for change in (lambda: None, path.unlink):
        change()
        with pytest.raises(click.ClickException, match="was changed while it was read"):
            rows.check_unchanged()


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "t.csv")
    with pytest.raises(
        click.BadParameter, match="is not a regular file; a pipe cannot be read twice"
    ):
        rows_of(tmp_path / "t.csv", WANTED)


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("id")
    told = r"expected a file with the suffix .parquet, .csv, .jsonl or .ndjson"
    with pytest.raises(click.UsageError, match=told):
        read(tmp_path / "t.tsv")


def test_a_column_that_can_be_null_may_be_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,at\n1,\n")
    rows = rows_of(path, WANTED)
    assert rows.schema.names == ["id", "at"]
    assert capsys.readouterr().err == f"note: {path}: without column name: NULL in all rows\n"
    told = "column name is missing. The file has id, at; --columns id,at writes these columns alone"
    with pytest.raises(click.ClickException, match=told):  # it would replace values
        rows_of(path, WANTED, keys=["id"])


def test_a_schema_is_taken_from_a_file_with_the_columns_that_may_not_be_null(
    tmp_path: Path,
) -> None:
    (tmp_path / "t.csv").write_text("country,n\nDE,1\n")
    schema = schema_of(tmp_path / "t.csv", not_null=["country"])
    assert schema.field("country") == pa.field("country", pa.string(), nullable=False)
    assert schema.field("n") == pa.field("n", pa.int64())
