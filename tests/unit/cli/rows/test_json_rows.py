"""Files of JSON lines: what their values become, and what is said of those that do not fit."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path

import click
import pyarrow as pa
import pytest

from sluice.cli.rows.columns import columns_of, rows_of, schema_of
from sluice.model import Column, DataType, RowField, Schema, TypeRoot
from sluice.model import types as t

NESTED = {
    "tags": DataType(TypeRoot.ARRAY, element=t.DATE),
    "counts": DataType(TypeRoot.MAP, key=t.STRING.not_null(), value=t.BIGINT),
    "place": DataType(TypeRoot.ROW, fields=(RowField("at", t.timestamp_ltz(3), None, 1),)),
}


def columns(**types: DataType) -> pa.Schema:
    fields = tuple(Column(name, kind, at) for at, (name, kind) in enumerate(types.items()))
    return columns_of(Schema(fields, highest_field_id=len(fields) - 1), list(types))


def read(path: Path, wanted: pa.Schema) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for batch in rows_of(path, wanted).batches():
        found += batch.to_pylist()
    return found


def refused(path: Path, wanted: pa.Schema) -> str:
    with pytest.raises(click.ClickException) as caught:
        read(path, wanted)
    return str(caught.value.message).removeprefix(f"{path}: ")


@pytest.mark.parametrize("is_part", [False, True])
def test_a_missing_column_replaces_no_value_of_a_key(tmp_path: Path, *, is_part: bool) -> None:
    path, wanted = tmp_path / "t.jsonl", columns(id=t.BIGINT, item=t.STRING, n=t.INT)
    good = '{"id": 1, "item": null, "n": null}\n\n'
    path.write_text(f'{good}{{"id": 2, "item": "n"}}\n{{"id": 3}}\n')
    with pytest.raises(click.ClickException) as caught:
        list(rows_of(path, wanted, is_part=is_part, keys=["id"]).batches())
    assert "line 3: column n is missing, and NULL would replace its value" in caught.value.message
    assert "--columns id,item writes these columns alone" in caught.value.message
    keyed = columns(id=t.BIGINT.not_null(), n=t.INT)
    path.write_text('{"n": 1}\n')
    with pytest.raises(click.ClickException, match="column id: expected BIGINT NOT NULL, found no"):
        list(rows_of(path, keyed, is_part=is_part, keys=["id"]).batches())
    path.write_text(good)
    (batch,) = rows_of(path, wanted, is_part=is_part, keys=["id"]).batches()
    assert batch.to_pylist() == [{"id": 1, "item": None, "n": None}]


EVERY = {
    "i": (t.TINYINT, "-128", -128),
    "n": (t.BIGINT, "9223372036854775807", 2**63 - 1),
    "f": (t.FLOAT, "0.5", 0.5),
    "d": (t.DOUBLE, "1e-3", 0.001),
    "price": (t.decimal(5, 2), "1.25", Decimal("1.25")),
    "written": (t.decimal(5, 2), '"1.25"', Decimal("1.25")),
    "ok": (t.BOOLEAN, "true", True),
    "s": (t.STRING, '"a\\nb \\u00fc"', "a\nb ü"),
    "code": (t.char(3), '"äöü"', "äöü"),
    "raw": (t.BYTES, '"ab"', b"ab"),
    "two": (t.binary(2), '"ab"', b"ab"),
    "day": (t.DATE, '"2024-05-01"', dt.date(2024, 5, 1)),
    "time": (t.time(3), '"13:45:00.123"', dt.time(13, 45, 0, 123_000)),
    "at": (t.timestamp(6), '"2024-05-01 12:00:00.5"', dt.datetime(2024, 5, 1, 12, 0, 0, 500_000)),
    "seen": (t.timestamp_ltz(3), '"2024-05-01T14:00:00+02:00"', dt.datetime(2024, 5, 1, 12)),
    "tags": (NESTED["tags"], '["2024-05-01", null]', [dt.date(2024, 5, 1), None]),
    "counts": (NESTED["counts"], '[{"key": "a", "value": 1}]', [("a", 1)]),
    "place": (NESTED["place"], '{"at": "2024-05-01"}', {"at": dt.datetime(2024, 5, 1)}),
}


def test_every_type_is_read_and_what_a_line_lacks_is_null(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    line = ", ".join(f'"{name}": {text}' for name, (_, text, _) in EVERY.items())
    path.write_text(f"\ufeff{{{line}}}\n\n{{}}\r\n{{{line}}}")
    found = read(path, columns(**{name: kind for name, (kind, _, _) in EVERY.items()}))
    row = {name: value for name, (_, _, value) in EVERY.items()}
    assert found == [row, dict.fromkeys(EVERY), row]


@pytest.mark.parametrize(
    ("data_type", "text", "told"),
    [
        (t.BIGINT.not_null(), "null", "column c: expected BIGINT NOT NULL, found no value"),
        (t.INT, "2.5", "column c: expected INT, found 2.5; write a whole number from"),
        (t.INT, "2147483648", "column c: expected INT, found 2147483648; write"),
        (t.INT, '"7"', "column c: expected INT, found '7'; write a whole number"),
        (t.STRING, "7", "column c: expected STRING, found 7; use UTF-8"),
        (t.FLOAT, "1e39", "column c: expected FLOAT, found 1E+39; 32 bits cannot hold it"),
        (t.DOUBLE, "1e400", "column c: expected DOUBLE, found 1E+400; 64 bits cannot hold"),
        (DataType(TypeRoot.ARRAY, element=t.FLOAT), "[1e39]", "column c: expected ARRAY<FLOAT>"),
        (DataType(TypeRoot.ARRAY, element=t.FLOAT), "[1e400]", "column c: expected ARRAY<FLOAT>"),
        (t.decimal(5, 2), "1.255", "column c: expected DECIMAL(5,2), found 1.255; write up to 3"),
        (t.decimal(5, 2), '"12345"', "column c: expected DECIMAL(5,2), found 12345.00; write"),
        (t.char(3), '"abcd"', "column c: expected CHAR(3), found 'abcd'; write up to 3 char"),
        (t.binary(2), '"abc"', "column c: expected BINARY(2), found 'abc'; write exactly 2"),
        (t.DATE, '"soon"', "column c: expected DATE, found 'soon'; write it as 2024-05-01"),
        (t.timestamp(0), '"2024-05-01 12:00:00.5"', "column c: expected TIMESTAMP(0), found"),
        (NESTED["tags"], '["soon"]', "column c: expected ARRAY<DATE>, found ['soon']"),
        (NESTED["counts"], '{"a": 1}', "column c: expected MAP<STRING NOT NULL, BIGINT>, found"),
        (t.INT, '1, "x": 2', "the table has no column 'x'; the columns are id, c"),
        (t.INT, '1, "C": 2', "the table has no column 'C'; did you mean 'c'?"),
        (t.INT, '1}, {"c": 2', "expected a JSON object, found '{\"id\": 1, \"c\": 1}, {"),
        (t.INT, '1, "c": 2', "expected a JSON object, found '{\"id\": 1, \"c\": 1, \"c\": 2}': it"),
        (t.INT, '1}{"c": 2}\n', "expected a JSON object, found '{\"id\": 1, \"c\": 1}{"),
        (t.time(0), '"12"', "column c: expected TIME(0), found '12'; write it as 13:45:00"),
        (t.time(0), '"2024-05-01 12:00"', "column c: expected TIME(0), found '2024-05-01 12:00'"),
        (t.DOUBLE, "1e-400", ""),
        (t.INT, "1", ""),
    ],
    ids=str,
)  # fmt: skip
def test_the_first_value_that_does_not_fit_is_named(
    tmp_path: Path, data_type: DataType, text: str, told: str
) -> None:
    """In the third block of the file."""
    path, wanted = tmp_path / "t.ndjson", columns(id=t.BIGINT, c=data_type)
    good = [json.dumps({"id": i}) + " " * 30 for i in range(60_000)]
    if not data_type.nullable:
        good = []
    line = f'{{"id": 1, "c": {text}}}'
    path.write_text("\n".join([*good, "", line, *good, ""]))
    if told:
        assert refused(path, wanted).startswith(f"line {len(good) + 2}: {told}")
    else:
        assert len(read(path, wanted)) == 2 * len(good) + 1


def test_what_arrow_lets_pass_is_refused(tmp_path: Path) -> None:
    """Texts that are not UTF-8, and fields that a ROW does not have."""
    path = tmp_path / "t.jsonl"
    path.write_bytes('{"c": "a"}\n{"c": "Füller"}\n'.encode("latin-1"))
    told = refused(path, columns(c=t.STRING))
    assert told.startswith(
        "line 2: expected a JSON object, found '{\"c\": \"F\ufffdller\"}': 'utf-8'"
    )
    path.write_text('{"x": 1, "c": {"at": null}}\n{"c": {"at": null, "to": 1}}\n')
    schema = columns(c=NESTED["place"])
    with pytest.raises(click.ClickException, match="column c: expected ROW<at TIMESTAMP_LTZ"):
        list(rows_of(path, schema, is_part=True).batches())
    path.write_text('{"c": {"at": null, "to": 1}}\n')
    assert refused(path, schema).startswith("line 1: column c: expected ROW<at TIMESTAMP_LTZ(3)>")


@pytest.mark.parametrize("line", ["[1]", "7", "{", '{"c": 1} {"c": 2}', "id,c"])
def test_a_line_that_is_no_object_is_shown(tmp_path: Path, line: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(f'{{"c": 1}}\n{line}\n')
    assert refused(path, columns(c=t.INT)).startswith(
        f"line 2: expected a JSON object, found {line!r}"
    )


def test_a_line_is_not_longer_than_a_block(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"s": "' + "x" * 3_000_000 + '"}\n')
    told = refused(path, columns(s=t.STRING))
    assert told.startswith('a line has more than 1,048,576 bytes; use a Parquet file: \'{"s": ')


def test_other_columns_are_ignored_where_a_part_is_written(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"x": {"y": 1}, "c": 1}\n')
    (batch,) = rows_of(path, columns(c=t.INT), is_part=True).batches()
    assert batch.to_pylist() == [{"c": 1}]


def test_a_schema_is_taken_from_the_lines(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"id": 1, "s": "a"}\n{"id": 2, "tags": [1.5]}\n')
    found = schema_of(path, not_null=["id"])
    assert found == pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("s", pa.string()),
            pa.field("tags", pa.list_(pa.float64())),
        ]
    )
