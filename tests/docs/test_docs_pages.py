"""Every command of every page is run, and prints what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import Page, pages
from tests.docs.runner import has_runs, run_page, starts_a_jvm

RUN = [page for page in pages() if has_runs(page)]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page,
            id=page.name,
            marks=[pytest.mark.slow, pytest.mark.spark] if starts_a_jvm(page) else [],
        )
        for page in RUN
    ],
)
def test_a_page_shows_what_its_commands_print(page: Page, tmp_path: Path) -> None:
    problems = run_page(page, tmp_path).problems
    assert not problems, "\n\n".join(problems)
