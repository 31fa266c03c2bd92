"""Every command of every page is run, and prints what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import Page, pages
from tests.docs.runner import has_runs, run_page, starts_a_jvm

RUN = [page for page in pages() if has_runs(page)]

LONG = ("docs/append.md",)
"""Pages without a JVM that take more than some seconds."""


def marks(page: Page) -> list[pytest.MarkDecorator]:
    """A page that starts a JVM, or takes long, is slow."""
    if starts_a_jvm(page):
        return [pytest.mark.slow, pytest.mark.spark]
    return [pytest.mark.slow] if page.name in LONG else []


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page,
            id=page.name,
            marks=marks(page),
        )
        for page in RUN
    ],
)
def test_a_page_shows_what_its_commands_print(page: Page, tmp_path: Path) -> None:
    problems = run_page(page, tmp_path).problems
    assert not problems, "\n\n".join(problems)
