"""The pages for readers: every path and command they name is real (links: tests/docs)."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
MODULES = [
    f"/{path.relative_to(ROOT)}"
    for folder in ("sluice", "plugins", "spark_jobs", "tests", "bench", "demo", "scripts", "dags")
    for path in (ROOT / folder).rglob("*.py")
]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_paths_in_code_quotes_exist(page: Path) -> None:
    quoted = re.findall(
        r"`((?:sluice|tests|docs|scripts|spark_jobs|plugins|dags)/[\w/.]*)`", page.read_text()
    )
    assert [path for path in quoted if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_modules_in_code_quotes_exist(page: Path) -> None:
    """By the end of their path: a page may leave out the folders that it is about."""
    quoted = re.findall(r"`([\w/]+/\w+\.py)`", page.read_text())
    assert [path for path in quoted if not any(one.endswith(f"/{path}") for one in MODULES)] == []


def test_the_pages_name_only_make_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        name
        for page in PAGES
        for name in re.findall(r"`(?:\w+=\w+ )?make ([a-z-]+)", page.read_text())
    }
    assert named - targets == set()
