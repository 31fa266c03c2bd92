"""Tables of the command line on a narrow terminal."""

from __future__ import annotations

import pytest

from sluice.cli.output import print_table
from sluice.quantities import counted

HEADINGS = ["table", "id", "kind", "columns", "buckets", "partitions", "datalake", "freshness"]


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("FORCE_COLOR", "1"), ("COLUMNS", "80"), ("TERM", "dumb")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)


def shown(capsys: pytest.CaptureFixture[str], rows: list[list[object]]) -> list[str]:
    print_table(HEADINGS, rows, empty="")
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 80 for line in lines), lines
    return lines


@pytest.mark.usefixtures("narrow")
def test_no_word_is_broken_at_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    row: list[object] = ["shop.orders", 0, "primary key", 3, 4, None, True, "3min"]
    head, _, line = shown(capsys, [row])
    assert head.split() == HEADINGS
    assert line.split() == ["shop.orders", "0", "primary", "key", "3", "4", "yes", "3min"]


@pytest.mark.usefixtures("narrow")
def test_a_long_name_alone_is_folded_and_nothing_is_lost(
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = "shop." + "0123456789" * 6
    lines = shown(capsys, [[name, 7, "log", 3, 4, 12, True, "3min"]])
    assert lines[0].split() == HEADINGS
    assert lines[2].split()[1:] == ["7", "log", "3", "4", "12", "yes", "3min"]
    assert "".join(line.split()[0] for line in lines[2:]) == name


@pytest.mark.usefixtures("narrow")
def test_lines_are_broken_between_words_before_a_word_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    row: list[object] = ["shop.orders_2026", 0, "primary key", 3, 4, None, True, "3min"]
    lines = shown(capsys, [row])
    assert lines[2].split() == ["shop.orders_2026", "0", "primary", "3", "4", "yes", "3min"]
    assert lines[3].split() == ["key"]


@pytest.mark.usefixtures("narrow")
def test_more_than_fits_loses_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    cells: list[object] = [str(number) * 15 for number in range(8)]
    said = "".join(shown(capsys, [cells])[2:])
    assert [said.count(str(number)) for number in range(8)] == [15] * 8


def test_one_is_singular() -> None:
    assert [counted(n, "row") for n in (0, 1, 2000)] == ["0 rows", "1 row", "2,000 rows"]


def test_where_nobody_looks_each_row_has_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """As grep wants it: a long path folds no other column, and lines have no spaces at the end."""
    path = "/lake/" + "x" * 400
    print_table(["", "file", "why"], [["not removed", path, "Permission denied"]], empty="")
    assert capsys.readouterr().out.splitlines()[-1] == f"not removed  {path}  Permission denied"


@pytest.mark.parametrize(("length", "rule"), [(10, 21), (300, 80)])
def test_a_rule_in_a_file_is_no_wider_than_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, length: int, rule: int
) -> None:
    """A row stays one line of any length."""
    monkeypatch.setenv("COLUMNS", "80")
    print_table(["checked", "seen"], [["lake", "x"], ["table ten", "y" * length]], empty="")
    lines = capsys.readouterr().out.splitlines()
    assert (len(lines), len(lines[1]), lines[1].strip("─")) == (4, rule, "")
    assert lines[3].endswith("y" * length)
