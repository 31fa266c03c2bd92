"""Tables of the command line on a narrow terminal."""

from __future__ import annotations

import json
import re
import shlex
import subprocess

import pytest

from sluice.cli.terminal.output import (
    Styled,
    print_json,
    print_table,
    print_wrapped,
    say,
    say_command,
)
from sluice.masking import know
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


HOSTILE = "\x1b]0;t\x07\x1b[31mred\r\nInjected: line \x9b2J\u202e"


@pytest.mark.usefixtures("narrow")
def test_a_text_of_others_has_no_colour_and_no_line_of_its_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("click._compat.isatty", lambda _: True)  # as on a terminal
    say(f"sluice: {HOSTILE}", fg="red")
    print_table(["a"], [[HOSTILE], [Styled(HOSTILE, "red")]], empty="")
    print_wrapped(HOSTILE)
    print_json({"a": HOSTILE})
    out = capsys.readouterr().out
    own = re.sub("\x1b\\[[0-9;]*m", "", out)
    assert not any(char in own for char in "\x1b\x07\r\x9b\u202e")
    assert "\x1b[31mred" not in out
    assert "\x1b[31msluice: " in out, "our own colour"
    assert not any(line.lstrip().startswith("Injected") for line in own.splitlines())


@pytest.mark.parametrize("is_data", [False, True])
def test_json_has_no_control_character(capsys: pytest.CaptureFixture[str], is_data: bool) -> None:
    every = "".join(map(chr, [*range(0x20), *range(0x7F, 0xA0)]))
    print_json({every: every}, one_line=True, is_data=is_data)
    out = capsys.readouterr().out.removesuffix("\n")
    assert out.isprintable()
    assert json.loads(out) == {every: every}


def test_rows_of_users_are_not_masked(capsys: pytest.CaptureFixture[str]) -> None:
    know(["planted-value"])
    row = "password=abc planted-value"
    print_table(["a"], [[row]], empty="", is_data=True)
    print_json([{"token": row}], is_data=True)
    assert capsys.readouterr().out.count(row) == 2
    print_table(["a"], [[row]], empty="")
    print_json([{"a": row}])
    assert capsys.readouterr().out.count("password=*** ***") == 2


@pytest.mark.parametrize("word", ["plain", "a b", "it's", "x%s\\n", "ü"])
def test_a_command_to_copy_is_the_same_command(
    capsys: pytest.CaptureFixture[str], word: str
) -> None:
    say_command(shlex.join(["printf", "%s", word]), err=False)
    printed = capsys.readouterr().out
    ran = subprocess.run(["sh", "-c", printed], capture_output=True, check=True, timeout=60)
    assert ran.stdout.decode() == word


def test_a_command_to_copy_shows_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    say_command("sluice append s.o 'x\x1b[31m\u202e\ny'", err=False)
    command, note = capsys.readouterr().out.splitlines()
    assert command == r"sluice append s.o 'x\x1b[31m\u202e y'"
    assert note == "A name in this command has control characters: write that name yourself"
