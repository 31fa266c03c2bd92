"""The picture of `sluice status` in the README shows what the code prints today."""

from __future__ import annotations

import html
import importlib.util
import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from sluice.cli.tiering.status import COLUMNS, print_statuses
from sluice.model import TablePath, TieringStatus
from tests.docs.blocks import claimed_blocks

ROOT = Path(__file__).resolve().parents[4]
NOW_MS = 1_790_000_000_000
ORDERS = TieringStatus(
    path=TablePath("shop", "orders"),
    table_id=0,
    status="Scheduled",
    tiering_epoch=1,
    last_tiered_ms=NOW_MS - 1_000,
    failures=0,
    next_attempt_ms=NOW_MS + 299_000,
    lag_rows=0,
    lag_ms=0,
    lake_snapshot_id=1,
    paused=False,
)
WAITING = replace(ORDERS, last_tiered_ms=None, lake_snapshot_id=None, lag_ms=9_000)
TABLES = [
    ORDERS,
    replace(
        WAITING,
        path=TablePath("shop", "prices"),
        status="Failed",
        lag_rows=3,
        failures=1,
        last_error="create lake table shop.prices: ParentNotDirectoryException: Parent path is not"
        " a directory: /dev/null",
        last_error_ms=NOW_MS - 6_000,
    ),
    replace(ORDERS, path=TablePath("shop", "stock"), lag_rows=35, lag_ms=9_000, paused=True),
    replace(
        WAITING,
        path=TablePath("shop", "visits"),
        status="Pending",
        lag_rows=12_480,
        next_attempt_ms=NOW_MS,
    ),
]


def script() -> ModuleType:
    path = ROOT / "scripts" / "status_picture.py"
    spec = importlib.util.spec_from_file_location("status_picture", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def text_of(svg: str) -> list[str]:
    """The lines of a picture, with one space between words."""
    found: dict[int, str] = {}
    for line, content in re.findall(r'clip-path="url\(#status-line-(\d+)\)">([^<]*)</text>', svg):
        found[int(line)] = f"{found.get(int(line), '')} {html.unescape(content)}"
    return [" ".join(found[number].split()) for number in sorted(found)]


def lines_of(svg: str) -> list[str]:
    """These lines with one number and one unit for all ages, and a short rule."""
    text = "\n".join(text_of(svg))
    return re.sub(r"\b\d[\d,]* (s|min|h|d)\b", "N s", re.sub("─+", "─", text)).strip().splitlines()


def test_the_picture_shows_what_the_code_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in (("FORCE_COLOR", "1"), ("COLUMNS", "80"), ("TERM", "xterm-256color")):
        monkeypatch.setenv(name, value)
    print_statuses(TABLES, NOW_MS, "", complete_errors=False)
    today = script().drawn(capsys.readouterr().out)
    committed = (ROOT / "docs" / "images" / "status.svg").read_text()
    rerun = "run python scripts/status_picture.py"
    assert lines_of(committed) == lines_of(today), rerun
    assert lines_of(committed)[1] == " ".join(COLUMNS), rerun
    for state in ("Scheduled", "Failed", "Pending", "paused"):
        assert state in committed, rerun
    styles = re.compile(r"status-r\d+ {[^}]*}")
    assert styles.findall(committed) == styles.findall(today), rerun


def test_the_page_has_the_text_of_the_picture() -> None:
    """The page does not break the line of the error, as a terminal of 80 columns does."""
    [shown] = claimed_blocks("docs/status.md", __file__)
    committed = text_of((ROOT / "docs" / "images" / "status.svg").read_text())
    assert " ".join(shown.content.split()) == " ".join(committed)


def test_the_picture_needs_no_other_address() -> None:
    committed = (ROOT / "docs" / "images" / "status.svg").read_text()
    assert "@font-face" not in committed
    assert re.findall(r"url\((?!#)", committed) == []
