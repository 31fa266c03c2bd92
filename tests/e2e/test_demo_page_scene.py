"""The tables of the page's scene, and its command. tests/e2e/test_ui_browser.py looks at it."""

from __future__ import annotations

import pytest

from demo.shots.page_scene import TABLES, main
from demo.shots.page_tables import FAILING, LATE, LEASED, PAUSED, TABLES_MIN, WAITING, scene_tables


@pytest.mark.parametrize("count", [TABLES_MIN, TABLES, 1_000])
def test_the_tables_have_different_names_and_are_always_the_same(count: int) -> None:
    tables = scene_tables(count)
    paths = [table.path for table in tables]
    assert len(set(paths)) == len(paths) == count
    assert {FAILING, LATE, WAITING, *PAUSED, *LEASED} <= set(paths)
    assert tables == scene_tables(count)
    assert all(table.has_key for table in tables if table.path in LEASED)


def test_too_few_tables_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--tables", str(TABLES_MIN - 1)])
    assert stopped.value.code == 2
    assert f"use at least {TABLES_MIN}" in capsys.readouterr().err
