"""Where the rows of a CSV file stand, by the rules that Arrow's parser has."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.cli.rows import csv_lines
from sluice.cli.rows.csv_lines import lines_of

TEXTS = st.lists(st.sampled_from(["a", "b", ",", '"', '""', "\n", "\r\n", "\r", " ", "x,y"]))


def rows_by_arrow(data: bytes) -> list[list[str | None]] | None:
    """Each row as Arrow reads it, as one column; None if there are rows of several lengths."""
    try:
        table = pa.csv.read_csv(
            pa.py_buffer(data),
            read_options=pa.csv.ReadOptions(autogenerate_column_names=True, block_size=1 << 20),
            parse_options=pa.csv.ParseOptions(newlines_in_values=True),
            convert_options=pa.csv.ConvertOptions(null_values=[], strings_can_be_null=False),
        )
    except pa.ArrowInvalid:
        return None
    return [list(map(str, row)) for row in zip(*table.to_pydict().values(), strict=True)]


def all_lines(path: Path) -> dict[int, int]:
    """The line of each row."""
    pieces = lines_of(path, 1 << 20)
    return {
        row: of.line(row) for of in pieces for row in range(of.first_row, of.first_row + of.count)
    }


@given(TEXTS, st.integers(1, 9))
def test_rows_are_where_arrow_finds_them(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str], piece: int
) -> None:
    data = "".join(parts).encode()
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(data)
    before, csv_lines._PIECE_BYTES = csv_lines._PIECE_BYTES, piece
    try:
        pieces = list(lines_of(path, 1 << 20))
    finally:
        csv_lines._PIECE_BYTES = before
    found = [(of, at) for of in pieces for at in range(of.count)]
    assert [of.first_row + at for of, at in found] == list(range(-1, len(found) - 1))
    whole = rows_by_arrow(data)
    if any(of.is_open for of in pieces) or whole is None:
        return
    assert len(whole) == len(found)
    for row, (of, at) in zip(whole, found, strict=True):
        assert rows_by_arrow(of.text(at, 1) + b"\n") == [row]


@given(
    st.lists(st.sampled_from(["a", '"', '""', "\n", "\r\n", "\r", " "])),
    st.integers(1, 9),
    st.sampled_from(["", "\ufeff"]),
)
def test_empty_lines_behind_the_header_are_rows_where_they_are_asked_for(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str], piece: int, begin: str
) -> None:
    data = (begin + "".join(parts)).encode()
    path = tmp_path_factory.getbasetemp() / "one.csv"
    path.write_bytes(data)
    before, csv_lines._PIECE_BYTES = csv_lines._PIECE_BYTES, piece
    try:
        pieces = list(lines_of(path, 1 << 20, empty_rows=True))
    finally:
        csv_lines._PIECE_BYTES = before
    if any(of.is_open for of in pieces):
        return
    rows_begin = len(data) - len(data.removeprefix(csv_lines.BOM).lstrip(b"\r\n"))
    assert all(data[of.first_byte :].startswith(of.data) for of in pieces)
    found = [of.text(at, 1) for of in pieces for at in range(of.count)]
    if not found:
        assert not data[rows_begin:].strip(b"\r\n")
        return
    assert b"".join(found) == data[rows_begin:]
    rows = pa.csv.read_csv(
        pa.py_buffer(data[rows_begin:]),
        read_options=pa.csv.ReadOptions(column_names=["s"]),
        parse_options=pa.csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=pa.csv.ConvertOptions(column_types={"s": pa.string()}),
    )
    assert len(found) == rows.num_rows


@given(st.lists(st.sampled_from(["1,a", '2,"b"', '3,"c\nd"', '4,"e\r\nf"', '5,g"h', "", "6,"])))
def test_a_line_is_counted_as_an_editor_counts(
    tmp_path_factory: pytest.TempPathFactory, rows: list[str]
) -> None:
    path = tmp_path_factory.getbasetemp() / "counted.csv"
    path.write_bytes("\n".join(["n,text", *rows, "end,x"]).encode())
    line, expected = 2, []
    for row in rows:
        if row:
            expected.append(line)
        line += 1 + row.count("\n")
    lines = all_lines(path)
    assert [lines[row] for row in range(len(lines) - 1)] == [*expected, line]


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("piece", [3, 7, 1000])
def test_every_kind_of_line_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, piece: int
) -> None:
    monkeypatch.setattr(csv_lines, "_PIECE_BYTES", piece)
    path = tmp_path / "t.csv"
    rows = ["id,t", "1,x", "", "", '2,"y', 'z"', '3,a"b', "4,c"]
    path.write_bytes(("\ufeff" + ending.join(rows)).encode())
    lines = all_lines(path)
    assert lines == {-1: 1, 0: 2, 1: 5, 2: 7, 3: 8}


def test_a_row_that_does_not_end_is_the_last_piece(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('a\n1\n"open\n' + "more\n" * 5_000_000)
    *before, last = lines_of(path, 1000)
    assert [of.is_open for of in before] == [False]
    assert last.is_open
    assert (last.first_row, last.first_line) == (1, 3)
    assert len(last.data) < 5_000_000, "of 25 MB"
