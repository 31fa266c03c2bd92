"""What a CSV file's text becomes, and what is said about the text that becomes nothing."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pytest

from sluice.cli.files import columns_of, rows_of
from sluice.model import Column, DataType, Schema
from sluice.model import types as t


def columns(**types: DataType) -> pa.Schema:
    fields = tuple(Column(name, kind, at) for at, (name, kind) in enumerate(types.items()))
    return columns_of(Schema(fields, highest_field_id=len(fields) - 1), list(types))


def read(path: Path, wanted: pa.Schema) -> pa.Table:
    rows = rows_of(path, wanted)
    rows.read_through()
    return pa.Table.from_batches(rows.batches(), wanted)


def refused(path: Path, wanted: pa.Schema) -> str:
    with pytest.raises(click.ClickException) as caught:
        read(path, wanted)
    message = str(caught.value.message)
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


# ---- numbers ----


def test_a_text_becomes_the_nearest_number(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "x,y\n16777217,16777217\n1e-60,1e-400\n1.000000059604644775390626,0.1\nNaN,nan\n,\n"
    )
    found = read(path, columns(x=t.FLOAT, y=t.DOUBLE))
    assert found.column("x").to_pylist()[:3] == [16777216, 0, 1 + 2.0**-23]
    assert found.column("y").to_pylist()[:3] == [16777217, 0, 0.1]
    assert [str(value) for value in found.slice(3).to_pydict()["x"]] == ["nan", "None"]


@pytest.mark.parametrize("before", [0, 400_000])
@pytest.mark.parametrize(
    ("name", "text"), [("x", "1e39"), ("x", "-1e300"), ("y", "1e400"), ("y", "-1e999999")]
)
def test_a_finite_text_never_becomes_infinite(
    tmp_path: Path, before: int, name: str, text: str
) -> None:
    path = tmp_path / "t.csv"
    bad = {"x": "1", "y": "1"} | {name: text}
    path.write_text("x,y\n" + "0.5,0.25\n" * before + f"{bad['x']},{bad['y']}\n" + "1,2\n" * 9)
    told = refused(path, columns(x=t.FLOAT, y=t.DOUBLE))
    kind = "FLOAT" if name == "x" else "DOUBLE"
    assert told == f"line {before + 2}: column {name}: expected {kind}, found '{text}'"


def test_infinite_numbers_are_read_where_the_text_says_so(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    values = [str(n / 4) for n in range(300_000)]
    for at, word in ((150_000, "inf"), (150_007, "-Infinity"), (299_999, "INF")):
        values[at] = word
    path.write_text("n,x,y\n" + "".join(f"{n},{x},{x}\n" for n, x in enumerate(values)))
    found = read(path, columns(n=t.INT, x=t.FLOAT, y=t.DOUBLE))
    wanted = np.array(values, np.float64)
    assert found.column("n").to_pylist() == list(range(300_000))
    assert np.array_equal(found.column("y").to_numpy(), wanted)
    assert np.array_equal(found.column("x").to_numpy(), wanted.astype(np.float32))


@pytest.mark.parametrize("text", ["12345", "1e4", '"12345"', "1000.00"])
def test_a_decimal_with_too_many_digits_is_told_as_it_stands_there(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"n,price\n1,999.99\n\n2,{text}\n3,1\n")
    told = refused(path, columns(n=t.INT, price=t.decimal(5, 2)))
    assert told == f"line 4: column price: expected DECIMAL(5,2), found {text.strip(chr(34))!r}"


def test_a_char_has_so_many_characters_at_most(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("n,code\n1,äöü\n2,abcdef\n")
    told = refused(path, columns(n=t.INT, code=t.char(3)))
    assert told == "line 3: column code: expected CHAR(3), found 'abcdef'"
