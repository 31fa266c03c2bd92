"""What a CSV file's text becomes, and what is said about the text that becomes nothing."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.cli.rows.columns import columns_of, rows_of, schema_of
from sluice.cli.rows.readers import BLOCK_BYTES
from sluice.model import Column, DataType, Schema
from sluice.model import types as t


def columns(**types: DataType) -> pa.Schema:
    fields = tuple(Column(name, kind, at) for at, (name, kind) in enumerate(types.items()))
    return columns_of(Schema(fields, highest_field_id=len(fields) - 1), list(types))


def read(path: Path, wanted: pa.Schema) -> pa.Table:
    rows = rows_of(path, wanted)
    found = pa.Table.from_batches(rows.batches(), wanted)
    rows.check_end()
    return found


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
    place = f"line {before + 2}: column {name}"
    assert told.startswith(f"{place}: expected {kind}, found '{text}'; write a number such as")


def test_an_infinite_number_makes_no_other_row_wrong(tmp_path: Path) -> None:
    """Blanks around a number are none of its text, before and after it."""
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1, 2.5\n2, inf \n")
    assert read(path, columns(a=t.INT, b=t.DOUBLE)).column("b").to_pylist() == [2.5, float("inf")]


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
    assert told == (
        f"line 4: column price: expected DECIMAL(5,2), found {text.strip(chr(34))!r};"
        " write up to 3 digits before and 2 after the point"
    )


def test_a_char_has_so_many_characters_at_most(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("n,code\n1,äöü\n2,abcdef\n")
    told = refused(path, columns(n=t.INT, code=t.char(3)))
    assert told == "line 3: column code: expected CHAR(3), found 'abcdef'; write up to 3 characters"


def test_times_are_read_as_texts_too(tmp_path: Path) -> None:
    """From an infinite number on, all columns are."""
    path = tmp_path / "t.csv"
    path.write_text("x,t,b\n1,12:00:00.250,ab\ninf,23:59, ü\n,,\n")
    found = read(path, columns(x=t.DOUBLE, t=t.time(3), b=t.BYTES)).to_pydict()
    assert [str(value) for value in found["t"]] == ["12:00:00.250000", "23:59:00", "None"]
    assert found["b"] == [b"ab", " ü".encode(), None]
    path.write_text("x,t,b\n1,12:00:00.2505,\n")
    told = refused(path, columns(x=t.DOUBLE, t=t.time(3), b=t.BYTES))
    assert (
        told
        == "line 2: column t: expected TIME(3), found '12:00:00.2505'; write it as 13:45:00.123"
    )


# ---- files of one column ----


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("begin", ["", "\ufeff", "\n\n"])
def test_an_empty_line_is_a_null_where_there_is_one_column(
    tmp_path: Path, ending: str, begin: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes((begin + ending.join(["s", "A", "", '""', "B", "", ""])).encode())
    assert read(path, columns(s=t.STRING)).to_pydict() == {"s": ["A", None, "", "B", None]}


@pytest.mark.parametrize("last", ["", "\n"])
@pytest.mark.parametrize("empty", ["", "\n", "\n\n"])
def test_a_file_of_one_column_that_has_empty_lines_alone(
    tmp_path: Path, last: str, empty: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"n\n{empty}7{last}")
    nulls: list[int | None] = [None] * len(empty)
    assert read(path, columns(n=t.INT)).to_pydict() == {"n": [*nulls, 7]}
    path.write_text(f"n\n{empty}")
    assert read(path, columns(n=t.INT)).to_pydict() == {"n": nulls}
    path.write_text("n")
    assert read(path, columns(n=t.INT)).num_rows == 0


def test_an_empty_line_is_refused_where_the_one_column_takes_no_null(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("\ns\nA\n\nB\n")
    told = refused(path, columns(s=t.STRING.not_null()))
    assert told == "line 4: column s: expected STRING NOT NULL, found no value"


def test_lines_are_counted_with_the_empty_ones_of_one_column(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("n\n" + "1\n\n" * 1_500_000 + "ten\n" + "\n2" * 9)
    told = refused(path, columns(n=t.INT))
    assert told.startswith("line 3000002: column n: expected INT, found 'ten'; write a whole")


@given(
    st.lists(st.sampled_from(["", '""', "a", '"b\n\nc"', "NA", " ", 'd"e']), max_size=8),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.booleans(),
)
def test_each_line_of_one_column_is_a_row(
    tmp_path_factory: pytest.TempPathFactory, values: list[str], ending: str, is_ended: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "one.csv"
    if not is_ended and values and not values[-1]:
        values = [*values, "z"]  # nothing behind the last line end is no line
    path.write_bytes((ending.join(["s", *values]) + ending * is_ended).encode())
    meant = [None if v in ("", "NA") else v.strip('"') if v[0] == '"' else v for v in values]
    assert read(path, columns(s=t.STRING)).to_pydict() == {"s": meant}


def test_empty_lines_of_one_column_lie_across_blocks(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    values = [None if n % 3 else n for n in np.random.default_rng(2).integers(0, 9999, 1_500_000)]
    path.write_text("n\n" + "".join("\n" if n is None else f"{n}\n" for n in values))
    assert path.stat().st_size > 2 * BLOCK_BYTES
    assert read(path, columns(n=t.INT)).column("n").to_pylist() == values


@pytest.mark.parametrize("shift", range(3))
@pytest.mark.parametrize("line", [b"a\r\n", b"\r\n", b'"x\r\ny"\r\n'])
def test_a_line_end_across_two_blocks_makes_no_row(tmp_path: Path, shift: int, line: bytes) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"s\r\n" + b"z" * shift + b"\r\n" + line * 700_000)
    assert read(path, columns(s=t.STRING)).num_rows == 700_001


def test_empty_lines_are_still_no_rows_where_there_are_more_columns(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("\n\na,b\n\n1,2\n\n\n3,4\n\n" + "\n" * 6_000_000)
    assert read(path, columns(a=t.INT, b=t.INT)).to_pydict() == {"a": [1, 3], "b": [2, 4]}
    path.write_text("a,b\n" + "\n" * 6_000_000)
    assert read(path, columns(a=t.INT, b=t.INT)).num_rows == 0


@pytest.mark.slow
def test_very_many_empty_lines_before_the_header(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("\n" * 5_000_000 + "s\nA\n\nB\n")
    assert read(path, columns(s=t.STRING)).to_pydict() == {"s": ["A", None, "B"]}
    path.write_text("\n" * 5_000_000 + "a,b\n1,2\n\nx,4\n")
    assert refused(path, columns(a=t.INT, b=t.INT)).startswith("line 5000004: column a: expected")


# ---- headers ----


@pytest.mark.parametrize("encoding", ["latin1", "utf-16"])
def test_a_header_that_is_no_utf8_is_named(tmp_path: Path, encoding: str) -> None:
    start = "line 1: the header is not UTF-8; "
    path = tmp_path / "t.csv"
    path.write_bytes("id,größe\n1,2\n".encode(encoding))
    told = refused(path, columns(id=t.INT))
    assert told.startswith(start)
    assert told.endswith("as UTF-8")
    with pytest.raises(click.ClickException, match=f"t.csv: {start}"):
        schema_of(path)
