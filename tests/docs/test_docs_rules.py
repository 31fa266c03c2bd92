"""All pages against the rules; and the rules themselves on pages that break them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from scripts import command_docs
from sluice.cli.main import cli
from sluice.model import TieringRound, TieringStatus
from sluice.model.record_fields import fields_of
from tests.docs import rules
from tests.docs.blocks import ROOT, Page, pages
from tests.docs.registry import GENERATED, NOT_RUN, NOT_RUN_MAX

PAGES = {page.name: page for page in pages()}
WITH_LINKS = {path.name: path for path in ROOT.glob("*.md")} | {
    str(path.relative_to(ROOT)): path for path in ROOT.glob("docs/**/*.md")
}


def broken(page: Page) -> list[str]:
    def found() -> Iterator[str]:
        for rule in (
            rules.languages,
            rules.contents,
            rules.tables,
            rules.paragraphs,
            rules.length,
        ):
            yield from rule(page)
        yield from rules.comments(page, NOT_RUN)

    return list(found())


@pytest.mark.parametrize("name", PAGES)
def test_a_page_meets_the_rules(name: str) -> None:
    found = broken(PAGES[name])
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", WITH_LINKS)
def test_links_lead_to_files_and_headings(name: str) -> None:
    assert list(rules.links(Page(WITH_LINKS[name]))) == []


@pytest.mark.parametrize("record", [TieringStatus, TieringRound])
def test_each_field_of_a_system_table_is_described(record: type) -> None:
    text = (ROOT / "docs" / "system-tables.md").read_text()
    missing = [f for f in fields_of(record) if f"| `{f.column}` |" not in text]
    assert [field.column for field in missing] == []


def test_exceptions_are_few_and_used() -> None:
    used = {
        (page.name, reason)
        for page in PAGES.values()
        for block in page.blocks
        if (reason := block.comment("not run")) is not None
    }
    assert used == NOT_RUN
    assert len(NOT_RUN) <= NOT_RUN_MAX


def test_the_index_leads_to_every_page() -> None:
    in_docs = [page for name, page in PAGES.items() if name.startswith("docs/")]
    assert rules.unreachable(PAGES["docs/README.md"], in_docs) == []


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_page_is_up_to_date(name: str) -> None:
    assert name in PAGES, f"`make docs` writes {name}"
    if name == "docs/commands.md" and not is_locked("click"):
        pytest.skip("another click lays out its help otherwise")
    module = GENERATED[name].removesuffix(".py").replace("/", ".")
    command = [sys.executable, "-m", module, "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def is_locked(package: str) -> bool:
    """Whether the version that is installed is the lock file's."""
    return f"{package}=={version(package)} " in (ROOT / "requirements.lock").read_text()


def test_the_page_of_commands_names_every_command() -> None:
    page = command_docs.render()
    for name in cli.commands:
        assert f"\n## sluice {name}\n\n```text\nUsage: sluice {name} " in page
    assert "\n## sluice jars fetch\n" in page
    helps = re.findall(r"```text\n(.*?)(?:\n  Examples:|```)", page, re.DOTALL)
    assert max(len(line) for each in helps for line in each.splitlines()) <= 80


def a_page(tmp_path: Path, text: str, name: str = "docs/page.md") -> Page:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return Page(path, tmp_path)


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("# A\n\n```cobol\nx\n```\n", 3, "language 'cobol'"),
        ("# A\n\n```\nx\n```\n", 3, "language ''"),
        ("# A\n\n    sluice serve\n", 3, "an indented block"),
        ("- a\n\n      x\n", 3, "an indented block"),
        ("```console\nsluice status\n```\n", 1, "begins with a line `$ COMMAND`"),
        ("```bash\necho 'open\n```\n", 1, "bash cannot parse"),
        ("```python\nif\n```\n", 1, "invalid syntax"),
        ("```json\n{]\n```\n", 1, "Expecting"),
        ("```toml\n[client]\nbootstrap = 'grpc://h:1'\nspeed = 2\n```\n", 1, "no such setting"),
        ("```toml\nkey = \n```\n", 1, "Invalid value"),
        ("```sql\nSELECT 1\n```\n", 1, "name the test"),
        ("```text\n1 row\n```\n", 1, "name the test that checks this text block"),
        ("```json\n{}\n```\n", 1, "name the test that checks this json block"),
        ("<!-- run by tests/none.py -->\n```bash\nx\n```\n", 2, "which does not exist"),
        ("<!-- run by here.py -->\n```bash\nx\n```\n", 2, "takes no block of docs/page.md"),
        ("<!-- run by said.py -->\n```bash\nx\n```\n", 2, "takes no block of docs/page.md"),
        ("<!-- not run: no time -->\n```bash\nx\n```\n", 2, "registry.py does not have it"),
        ("<!-- exit code 1 -->\n\nText.\n", 1, "no block is below"),
        ("| a | b |\n| --- | --- |\n| 1 |\n", 3, "1 columns, the table has 2"),
        ("| a | b |\n| --- | --- |\n| 1 | `x|y` |\n", 3, "3 columns, the table has 2"),
        ("| a | b |\n| --- |\n", 1, "does not render"),
        ("Text \u2500\u2500\u2500 text\n", 1, "a table of lines"),
        ("Few.\n\n" + "word " * 121 + "\n", 3, "a paragraph of 121 words"),
    ],
)
def test_a_broken_rule_is_found(text: str, line: int, what: str, tmp_path: Path) -> None:
    (tmp_path / "here.py").write_text("claimed('docs/other.md', __file__)")
    (tmp_path / "said.py").write_text("'claimed(docs/page.md)'\npage = 'docs/page.md'")
    page = a_page(tmp_path, text)
    found = [*broken(page), *rules.comments(page, NOT_RUN, tmp_path)]
    assert any(each.startswith(f"docs/page.md:{line}: ") and what in each for each in found), found


@pytest.mark.parametrize(
    "text",
    [
        "```toml\n[tool.other]\nspeed = 2\n```\n",
        "```toml\n[datalake.iceberg]\ntype = 'hadoop'\n```\n",
        "| a | b |\n| --- | --- |\n| 1 | `x\\|y` |\n",
        "<!-- run by here.py -->\n```sql\nSELECT 1\n```\n",
        "<!-- a remark -->\n\n" + "word " * 120 + "\n",
        "<!-- output -->\n```text\n\u2500\u2500\n```\n",
        "```bash\ncat > f <<EOF\n'\nEOF\nfor x in 1 2; do\n  echo $x\ndone\n```\n",
    ],
)
def test_a_page_that_meets_the_rules(text: str, tmp_path: Path) -> None:
    (tmp_path / "here.py").write_text("[block] = claimed_blocks('docs/page.md', __file__)")
    page = a_page(tmp_path, text)
    found = [each for each in broken(page) if "here.py" not in each]
    assert found + list(rules.comments(page, NOT_RUN, tmp_path)) == []


def test_a_long_readme_is_found(tmp_path: Path) -> None:
    assert list(rules.length(a_page(tmp_path, "\n" * 151, "README.md")))
    assert not list(rules.length(a_page(tmp_path, "\n" * 150, "README.md")))


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = a_page(
        tmp_path,
        "# One `two`, three!\n\n## Again\n\n## Again\n\n<a id='own'></a>\n\n"
        "[a](#one-two-three) [b](#again-1) [c](other.md#there) [d](https://example.com/x) "
        "[e](#own)\n\n[f](#again-2) [g](none.md) [h](other.md#here) ![i](none.png)\n\n"
        '<img src="no.svg">\n',
    )
    a_page(tmp_path, "# There\n", "docs/other.md")
    found = [each.split(": ")[:2] for each in rules.links(page, tmp_path)]
    assert found == [
        ["docs/page.md:11", "#again-2"],
        ["docs/page.md:11", "none.md"],
        ["docs/page.md:11", "other.md#here"],
        ["docs/page.md:11", "none.png"],
        ["docs/page.md:13", "no.svg"],
    ]


def test_a_page_that_no_link_leads_to_is_found(tmp_path: Path) -> None:
    index = a_page(tmp_path, "[a](a.md)\n", "docs/README.md")
    found = [index, a_page(tmp_path, "[b](more/b.md#x)\n", "docs/a.md")]
    found += [a_page(tmp_path, "# x\n", f"docs/{name}.md") for name in ("more/b", "c")]
    assert rules.unreachable(index, found) == ["docs/c.md"]
