"""Every documentation page and heading that code, protos, tests or pages name can be opened."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).resolve().parents[3]
ROOMS = ("sluice", "spark_jobs", "plugins", "dags", "protos", "tests", "demo", "bench", "scripts")
SUFFIXES = frozenset({".py", ".proto", ".toml", ".md", ".sql", ".java", ".js", ".html"})

CITATION = re.compile(r"(?<![\w./-])(docs/[\w./-]+\.md)(?:#([\w-]+))?")
"""A page by its path from the repository's root, with or without a heading."""

LINK = re.compile(r"\]\(([^)\s#]*\.md)?(?:#([^)\s]+))?\)")
"""A link of a Markdown page to another page of the repository or to a heading of its own."""

TEST = re.compile(r"`(test_\w+\.py)::(test_\w+)`")
"""A test that a page names, by its file and its function."""

NUMBERED = re.compile(
    r"\breferences?(?:'s)?,? (?:parts? )?\d|\breference parts?\b|\bparts? \d+\.\d"
    r"|\bstyle\.md\b|\(style: |\bstyle (?:guide|page)\b"
)
"""Citations by number or name, of documents that are not in the repository."""

FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#{1,6} +(.+?)(?: +#+)?$", re.MULTILINE)

EXAMPLES = ("test_docs_rules.py", "test_docs_runner.py")
"""Tests of pages that they make up."""


def files() -> Iterator[Path]:
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*")):
            is_text = path.suffix in SUFFIXES and "_pb2" not in path.name and path.is_file()
            if is_text and path.name not in EXAMPLES:
                yield path


def slugs(page: str) -> set[str]:
    """The anchors that GitHub gives to the headings of a Markdown page."""
    found: dict[str, int] = {}
    anchors = set()
    for heading in HEADING.findall(FENCE.sub("", page)):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        count = found[slug] = found.get(slug, -1) + 1
        anchors.add(f"{slug}-{count}" if count else slug)
    return anchors


@functools.cache
def anchors_of(page: Path) -> set[str] | None:
    """None: there is no such page."""
    return slugs(page.read_text()) if page.is_file() else None


def wrong(page: Path, anchor: str | None) -> str | None:
    anchors = anchors_of(page)
    if anchors is None:
        return "no such page"
    if anchor and anchor not in anchors:
        return f"no heading #{anchor}"
    return None


def wrong_citations(text: str) -> list[str]:
    """The citations in a text that cannot be opened, with the reason."""
    found = []
    found += [
        f"{match[0]}: {reason}"
        for match in CITATION.finditer(text)
        if (reason := wrong(ROOT / match[1], match[2]))
    ]
    return found


def wrong_links(page: Path) -> list[str]:
    found = []
    for target, anchor in LINK.findall(FENCE.sub("", page.read_text())):
        path = (page.parent / unquote(target)).resolve() if target else page
        if reason := wrong(path, anchor or None):
            found.append(f"{target}#{anchor}: {reason}")
    return found


def test_every_citation_can_be_opened() -> None:
    found = {
        str(path.relative_to(ROOT)): bad
        for path in files()
        if path != Path(__file__) and (bad := wrong_citations(path.read_text()))
    }
    assert found == {}


def test_every_link_between_pages_can_be_opened() -> None:
    pages = sorted((ROOT / "docs").rglob("*.md"))
    found = {str(page.relative_to(ROOT)): bad for page in pages if (bad := wrong_links(page))}
    assert found == {}


def test_every_test_that_a_page_names_is_there() -> None:
    texts: dict[str, str] = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        texts[path.name] = texts.get(path.name, "") + path.read_text()
    named = [
        match.groups()
        for page in sorted((ROOT / "docs").rglob("*.md"))
        for match in TEST.finditer(page.read_text())
    ]
    assert ("test_pack_runs.py", "test_a_table_that_takes_too_long_ends_alone") in named
    assert [
        f"{file}::{name}" for file, name in named if f"def {name}(" not in texts.get(file, "")
    ] == []


def test_no_citation_by_number() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[0]!r}"
        for path in files()
        if path != Path(__file__)
        for match in NUMBERED.finditer(path.read_text())
    ]
    assert found == [], "cite a page: docs/fluss/rows.md#compacted-rows"


def test_citations_are_found_at_all() -> None:
    """The controls above are not empty: the formats cite their pages."""
    cited = {match[0] for path in files() for match in CITATION.finditer(path.read_text())}
    assert "docs/fluss/rows.md#compacted-rows" in cited


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see docs/fluss/rows.md#compacted-rows.", []),
        ("(docs/fluss/rows.md)", []),
        (
            "docs/fluss/rows.md#compact-rows",
            ["docs/fluss/rows.md#compact-rows: no heading #compact-rows"],
        ),
        ("docs/fluss/row.md#indexed-rows", ["docs/fluss/row.md#indexed-rows: no such page"]),
        ("https://example.org/docs/missing.md", []),
    ],
)
def test_a_wrong_citation_is_named(text: str, expected: list[str]) -> None:
    assert wrong_citations(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "(reference part 4.3)",
        "reference parts 1.1, 1.2",
        "(part 3.2)",
        "style.md part 5",
        "(style: executors return results)",
        "as the style guide says",
    ],
)
def test_a_citation_by_number_is_found(text: str) -> None:
    assert NUMBERED.search(text)


def test_anchors_are_those_of_github() -> None:
    page = (
        "# A `b`, c?\n```sh\n# no heading\n```\n## Rows & arrays\n## Same\n## Same\n## x_y-z ##\n"
    )
    assert slugs(page) == {"a-b-c", "rows--arrays", "same", "same-1", "x_y-z"}
