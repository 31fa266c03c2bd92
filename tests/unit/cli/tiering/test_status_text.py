"""What `sluice status` prints on a terminal of 80 columns, and in a pipe."""

from __future__ import annotations

import re
from dataclasses import replace

import click
import pytest

from sluice.cli.tiering.status import COLUMNS, print_statuses, print_wide
from sluice.model import TablePath, TieringStatus

NOW_MS = 1_790_000_000_000
ERROR = "create lake table shop.prices: ParentNotDirectoryException: Parent path is a file: "
ORDERS = TieringStatus(
    path=TablePath("shop", "orders"),
    table_id=1,
    status="Scheduled",
    tiering_epoch=4,
    last_tiered_ms=NOW_MS - 12_999,
    failures=0,
    next_attempt_ms=NOW_MS + 47_001,
    lag_rows=0,
    lag_ms=0,
    lake_snapshot_id=7,
    paused=False,
)
PRICES = replace(
    ORDERS,
    path=TablePath("shop", "prices"),
    status="Failed",
    last_tiered_ms=None,
    last_error=f"{ERROR}/lake",
    last_error_ms=NOW_MS - 15_000,
    failures=3,
    next_attempt_ms=NOW_MS + 185_000,
    lag_rows=1_234_567,
    lag_ms=3_599_000,
    lake_snapshot_id=None,
)
STOCK = replace(
    ORDERS, path=TablePath("shop", "stock"), status="Pending", next_attempt_ms=None, paused=True
)
VISITS = replace(
    ORDERS,
    path=TablePath("shop", "visits"),
    status="Pending",
    last_tiered_ms=None,
    next_attempt_ms=NOW_MS - 60_000,
    lake_snapshot_id=None,
)
ALL = [ORDERS, PRICES, STOCK, VISITS]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("FORCE_COLOR", "1"), ("COLUMNS", "80"), ("TERM", "dumb")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)


def printed(
    capsys: pytest.CaptureFixture[str], *statuses: TieringStatus, complete_errors: bool = False
) -> list[str]:
    print_statuses(statuses, NOW_MS, "no table is tiered", complete_errors=complete_errors)
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


@pytest.mark.usefixtures("terminal")
def test_every_condition_fits_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    heading, rule, *below = printed(capsys, *ALL)
    assert heading == "table        state      last tiered  lag                     next attempt"
    assert rule.strip("─") == ""
    assert len(rule) in (73, 74), "older versions of rich draw one more"
    assert below == [
        "shop.orders  Scheduled  12 s ago     none                    in 48 s",
        "shop.prices  Failed     never        1,234,567 rows, 59 min  in 3 min",
        "shop.stock   Pending    12 s ago     none                    paused",
        "shop.visits  Pending    never        none                    now",
        "shop.prices: 3 failures, last error 15 s ago: create lake table shop.prices:",
        "  ParentNotDirectoryException: Parent path is a file: /lake",
    ]


@pytest.mark.usefixtures("terminal")
def test_a_long_error_is_cut_and_names_the_command_that_prints_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    long = replace(PRICES, last_error=ERROR + "/lake" * 200 + "/end")
    *_, second, third, command = printed(capsys, long)
    assert third.endswith("…")
    assert max(len(line) for line in (second, third)) <= 80
    assert command == "  `sluice status shop.prices` prints the complete error"
    complete = printed(capsys, long, complete_errors=True)
    assert "".join(complete).count("/lake") == len("".join(complete).split("/lake")) - 1
    assert complete[-1].endswith("/end")
    assert max(len(line) for line in complete) <= 80


@pytest.mark.usefixtures("terminal")
def test_a_long_name_loses_its_middle(capsys: pytest.CaptureFixture[str]) -> None:
    name = "a_database_of_some_length.and_a_table_with_a_name_that_is_far_too_long_2026"
    lines = printed(capsys, replace(ORDERS, path=TablePath.parse(name)), PRICES)
    assert max(len(line) for line in lines) <= 80
    assert lines[2].startswith("a_databas")
    assert "ong_2026  Scheduled" in lines[2]
    assert lines[3].split()[:2] == ["shop.prices", "Failed"]


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("columns", ["40", "60", "132"])
def test_other_widths_are_kept_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("TERM", "xterm")  # a dumb one always has 80
    lines = [click.unstyle(line) for line in printed(capsys, *ALL)]
    assert max(len(line) for line in lines) <= int(columns)


def test_a_pipe_gets_one_complete_line_for_a_table_and_for_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    name, error = "shop." + "long_name_" * 9, ERROR + "/lake" * 200
    lines = printed(capsys, replace(PRICES, path=TablePath.parse(name), last_error=error), ORDERS)
    assert len(lines) == 5
    assert lines[2].split()[:2] == [name, "Failed"]
    assert lines[3].split()[:2] == ["shop.orders", "Scheduled"]
    assert lines[4] == f"{name}: 3 failures, last error 15 s ago: {error}"


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"failures": 1}, "shop.prices: 1 failure, last error 15 s ago: it broke"),
        ({"failures": 0}, "shop.prices: last error 15 s ago: it broke"),
        ({"failures": None}, "shop.prices: last error 15 s ago: it broke"),
        ({"last_error_ms": None}, "shop.prices: 3 failures, last error: it broke"),
        ({"last_error": None}, "shop.prices: 3 failures, no reason reported"),
    ],
)
def test_the_line_of_a_failing_table(
    capsys: pytest.CaptureFixture[str], changes: dict[str, object], line: str
) -> None:
    entry = replace(PRICES, **({"last_error": "it broke"} | changes))  # type: ignore[arg-type]
    assert printed(capsys, entry)[3:] == [line]


@pytest.mark.parametrize(("forced", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_only_a_terminal_gets_colours_and_no_color_is_honoured(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    forced: dict[str, str],
    coloured: bool,
) -> None:
    assert "\x1b" not in "".join(printed(capsys, *ALL))
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in ({"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "80"} | forced).items():
        monkeypatch.setenv(name, value)
    _, _, orders, prices, *_ = printed(capsys, *ALL)
    assert ("\x1b[32mScheduled" in orders, "\x1b[31mFailed" in prices) == (coloured, coloured)


def test_wide_has_every_column(capsys: pytest.CaptureFixture[str]) -> None:
    print_wide(ALL, "")
    headings, _, orders, prices, stock, visits = capsys.readouterr().out.splitlines()
    named = (
        "table state epoch last tiered failures next attempt lag rows lag lake snapshot last round"
        " rounds accepted claimed by deletes as compaction requested lake rows lake files"
        " lake bytes requested claimed at last error last error at"
    )
    assert " ".join(headings.split()) == named
    assert "2026-09-21 14:13:07Z" in orders
    assert re.search(r"1,234,567 +59 min 59 s", prices)
    assert f"{ERROR}/lake" in prices
    assert "Pending, paused" in stock
    assert "never" in visits


def test_no_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys) == ["no table is tiered"]
    assert len(COLUMNS) == 5


@pytest.mark.parametrize(
    ("rounds", "shown"), [(1, "never"), (0, "unknown"), (None, "unknown")], ids=str
)
def test_a_table_whose_rounds_all_failed_was_never_tiered(
    capsys: pytest.CaptureFixture[str], rounds: int | None, shown: str
) -> None:
    failed = replace(PRICES, lake_snapshot_id=7, rounds=rounds)
    assert printed(capsys, failed)[2].split()[2] == shown


def test_who_tiers_a_table_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    tiered = replace(ORDERS, status="Tiering", claimed_by="host:7")
    alone = printed(capsys, tiered, complete_errors=True)
    assert alone[-1] == "shop.orders is being tiered by host:7"
    since = printed(capsys, replace(tiered, claimed_ms=NOW_MS - 90_000), complete_errors=True)
    assert since[-1] == "shop.orders is being tiered by host:7, claimed 1 min ago"
    assert not any("host:7" in line for line in printed(capsys, tiered, PRICES))


def test_accepted_losses_are_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    lost = replace(ORDERS, accepted="bucket 0: offsets 200 to 299 were skipped")
    assert printed(capsys, lost)[-1] == (
        "shop.orders: rows are missing in the lake, as accepted by a user (bucket 0: offsets 200 to"
        " 299 were skipped)"
    )
