"""The rules that a page must meet, whatever its commands do. Each yields ``PAGE:LINE: what``."""

from __future__ import annotations

import ast
import json
import re
import tempfile
import tomllib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import get_type_hints
from urllib.parse import unquote

from markdown_it.token import Token

from sluice.config import Config, load_config
from sluice.errors import ConfigurationError
from tests.docs.blocks import (
    LANGUAGES,
    ROOT,
    Block,
    Page,
    claimed,
    claimed_blocks,
    commands,
    is_complete,
)

PARAGRAPH_WORDS_MAX = 120
README_LINES_MAX = 150
_BOX = re.compile("[\u2500-\u257f]")
_TAKING = {claimed.__name__, claimed_blocks.__name__}
_SECTIONS = set(get_type_hints(Config))


def languages(page: Page) -> Iterator[str]:
    """Every block has a language that readers and the runner know; none is indented."""
    for token in page.tokens:
        if token.type == "code_block":
            yield f"{page.name}:{token.map[0] + 1}: an indented block; give it fences, a language"
    for block in page.blocks:
        if block.language not in LANGUAGES:
            known = ", ".join(LANGUAGES)
            yield f"{block.where}: language '{block.language}'; the runner knows {known}"


def contents(page: Page) -> Iterator[str]:
    """What is in a block can be parsed, also where nothing runs it."""
    for block in page.blocks:
        try:
            if block.language in _PARSERS:
                _PARSERS[block.language](block)
        except (ValueError, SyntaxError, ConfigurationError) as error:
            yield f"{block.where}: {error}"


def comments(page: Page, not_run: Collection[tuple[str, str]], root: Path = ROOT) -> Iterator[str]:
    """Every comment is above a block, and every exception is one that is known."""
    for stray in page.stray_comments:
        yield f"{page.name}:{stray.line}: no block is below the comment '{stray.kind}'"
    for block in page.blocks:
        if (test := block.comment("run by")) is not None:
            if not (root / test).is_file():
                yield f"{block.where}: run by {test}, which does not exist"
            elif page.name not in pages_that_it_takes((root / test).read_text(encoding="utf-8")):
                yield f"{block.where}: run by {test}, which takes no block of {page.name}"
        reason = block.comment("not run")
        if reason is not None and (page.name, reason) not in not_run:
            yield f"{block.where}: not run: {reason}: tests/docs/registry.py does not have it"
        if _is_unchecked(block):
            yield (
                f"{block.where}: name the test that checks this {block.language} block:"
                " <!-- run by tests/... -->"
            )


def _is_unchecked(block: Block) -> bool:
    """Whether nothing says how a block is checked that the runner does not run."""
    if block.page == "docs/commands.md" or block.page.startswith("docs/fluss/"):
        return False  # generated; checked by tests/unit/docs/test_fluss_pages.py
    kinds = {comment.kind for comment in block.comments}
    if block.language == "sql":
        return not kinds & {"run by", "not run"}
    if block.language in ("text", "json", "csv"):
        return not kinds & {"run by", "not run", "output", "file"}
    return False


def pages_that_it_takes(code: str) -> set[str]:
    """The pages whose blocks a test takes: ``claimed("PAGE", ...)``, not words of a docstring."""
    calls = [each for each in ast.walk(ast.parse(code)) if isinstance(each, ast.Call)]
    return {
        str(first.value)
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id in _TAKING and call.args
        if isinstance(first := call.args[0], ast.Constant)
    }


def tables(page: Page) -> Iterator[str]:
    """Every row has the columns of its head, and tables are Markdown's."""
    for token in page.tokens:
        if token.type == "table_open":
            first, end = token.map
            wanted = _columns(page.lines[first])
            for at in range(first, end):
                if (found := _columns(page.lines[at])) != wanted:
                    yield f"{page.name}:{at + 1}: {found} columns, the table has {wanted}"
        elif token.type in ("inline", "html_block") and token.map:
            if _BOX.search(token.content):
                yield f"{page.name}:{token.map[0] + 1}: a table of lines outside a fenced block"
            if token.type == "inline" and re.search(r"^\s*\|.*\|\s*$", token.content, re.MULTILINE):
                yield f"{page.name}:{token.map[0] + 1}: a table that does not render"


def links(page: Page, root: Path = ROOT) -> Iterator[str]:
    """Every link within the repository leads to a file, and to a heading of it."""
    for line, target in _links(page):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        path, _, anchor = unquote(target).partition("#")
        file = (page.path.parent / path).resolve() if path else page.path
        if not file.exists():
            yield f"{page.name}:{line}: {target}: there is no such file"
        elif anchor and file.suffix == ".md" and anchor not in anchors(Page(file, root.resolve())):
            yield f"{page.name}:{line}: {target}: there is no such heading"


def paragraphs(page: Page) -> Iterator[str]:
    """No paragraph of docs/ is too long."""
    if not page.name.startswith("docs/"):
        return
    for before, token in zip(page.tokens, page.tokens[1:], strict=False):
        if before.type == "paragraph_open":
            words = len(token.content.split())
            if words > PARAGRAPH_WORDS_MAX:
                yield f"{page.name}:{token.map[0] + 1}: a paragraph of {words} words"


def length(page: Page) -> Iterator[str]:
    """The README is short."""
    if page.name == "README.md" and len(page.lines) > README_LINES_MAX:
        yield f"{page.name}:{len(page.lines)}: at most {README_LINES_MAX} lines"


def unreachable(index: Page, found: Collection[Page]) -> list[str]:
    """Pages of docs/ that no link from the index leads to, directly or through others."""
    by_path = {page.path.resolve(): page for page in found}
    reached = {index.path.resolve()}
    queue = [index]
    while queue:
        page = queue.pop()
        for _, target in _links(page):
            path = (page.path.parent / target.partition("#")[0]).resolve()
            if path in by_path and path not in reached:
                reached.add(path)
                queue.append(by_path[path])
    return [page.name for path, page in by_path.items() if path not in reached]


def anchors(page: Page) -> set[str]:
    """The anchors of its headings, by GitHub's rule, and those that its HTML names."""
    found: set[str] = set()
    for before, token in zip(page.tokens, page.tokens[1:], strict=False):
        if before.type == "heading_open":
            slug = base = _slug(token)
            count = 0
            while slug in found:
                count += 1
                slug = f"{base}-{count}"
            found.add(slug)
    return found | set(re.findall(r"""<[^>]+\b(?:id|name)=["']([^"']+)""", page.text))


def _slug(heading: Token) -> str:
    text = "".join(
        child.content for child in heading.children or [] if child.type in ("text", "code_inline")
    )
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def _links(page: Page) -> Iterator[tuple[int, str]]:
    for token in page.tokens:
        line = token.map[0] + 1 if token.map else 1
        for child in token.children or []:
            for name in ("href", "src"):
                if child.attrs.get(name):
                    yield line, str(child.attrs[name])
        if token.type in ("html_block", "inline"):
            text = "".join(
                part.content
                for part in [token, *(token.children or [])]
                if part.type in ("html_block", "html_inline")
            )
            for target in re.findall(r"""\b(?:href|src)=["']([^"']+)""", text):
                yield line, target


def _columns(row: str) -> int:
    cells = re.sub(r"\\.", "", row.strip())
    return cells.removeprefix("|").removesuffix("|").count("|") + 1


def _shell(block: Block) -> None:
    for command in commands(block):
        if not is_complete(command.text):
            raise ValueError(f"bash cannot parse `{command.text}`")


def _toml(block: Block) -> None:
    """A configuration of Sluice is loaded, so that an unknown key fails."""
    if not _SECTIONS & set(tomllib.loads(block.content)):
        return
    with tempfile.NamedTemporaryFile("w", suffix=".toml", encoding="utf-8") as file:
        file.write(block.content)
        file.flush()
        load_config(file.name)


_PARSERS: dict[str, Callable[[Block], object]] = {
    "console": _shell,
    "bash": _shell,
    "python": lambda block: ast.parse(block.content),
    "json": lambda block: json.loads(block.content),
    "toml": _toml,
}
