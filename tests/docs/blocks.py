"""The fenced blocks of a Markdown page, with the HTML comments above them.

A comment on the lines just above a block says how the block is treated:

``<!-- exit code 1 -->``         the last command of the block ends with this exit code
``<!-- run by tests/x/test_y.py -->``  that test runs the block; the runner skips it
``<!-- not run: reason -->``     nothing runs it; ``registry.NOT_RUN`` has the same reason
``<!-- file: NAME -->``          the runner writes the block to this file
``<!-- output -->``              a ``text`` block: the output of the block before it
``<!-- setup`` ... ``-->``       lines of bash that run here and that readers do not see
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[2]
RUN_LANGUAGES = ("console", "bash", "python")
READ_LANGUAGES = ("toml", "json", "sql", "csv")
LANGUAGES = (*RUN_LANGUAGES, *READ_LANGUAGES, "text", "mermaid")

_COMMENT = re.compile(r"<!--(.*?)-->", re.DOTALL)
_KINDS = re.compile(r"(setup(?=\s)|run by (?=\S)|not run: |exit code (?=\d)|file: |output$)", re.I)


@dataclass(frozen=True)
class Comment:
    """An HTML comment that the runner understands: its kind and the rest of its text."""

    line: int
    kind: str
    value: str


@dataclass(frozen=True)
class Block:
    """A fenced block; ``line`` is the one of its opening fence, counted from 1."""

    page: str
    line: int
    language: str
    content: str
    indent: str = ""
    comments: tuple[Comment, ...] = ()

    def comment(self, kind: str) -> str | None:
        """The value of its comment of this kind."""
        return next((each.value for each in self.comments if each.kind == kind), None)

    @property
    def exit_code(self) -> int:
        return int(self.comment("exit code") or 0)

    @property
    def is_run(self) -> bool:
        """Whether the runner does something with it."""
        if self.comment("run by") is not None or self.comment("not run") is not None:
            return False
        is_named = self.comment("file") is not None or self.comment("output") is not None
        return self.language in RUN_LANGUAGES or is_named

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Command:
    """A command of a block with the output that the page shows behind it."""

    text: str
    line: int
    output: tuple[str, ...] = ()
    output_line: int = 0
    """Line of the page where its output begins, or would."""

    @property
    def is_background(self) -> bool:
        return self.text.rstrip().endswith("&")


class Page:
    """A parsed page."""

    def __init__(self, path: Path, root: Path = ROOT) -> None:
        self.path = path
        self.name = str(path.relative_to(root))
        self.text = path.read_text(encoding="utf-8")
        self.lines = self.text.splitlines()

    @cached_property
    def tokens(self) -> list[Token]:
        return MarkdownIt("commonmark").enable("table").parse(self.text)

    @cached_property
    def items(self) -> list[Block | Comment]:
        """Fenced blocks and ``setup`` comments, in their order."""
        return list(self._items([]))

    @property
    def blocks(self) -> list[Block]:
        return [item for item in self.items if isinstance(item, Block)]

    @cached_property
    def stray_comments(self) -> list[Comment]:
        """Comments that the runner would understand, were there a block below."""
        stray: list[Comment] = []
        list(self._items(stray))
        return stray

    def _items(self, stray: list[Comment]) -> Iterator[Block | Comment]:
        above: list[Comment] = []
        for token in self.tokens:
            if token.type == "fence":
                yield self._block(token, above)
                above = []
            elif token.type == "html_block":
                for comment in self._comments(token):
                    if comment.kind == "setup":
                        yield comment
                    else:
                        above.append(comment)
            elif token.type in ("inline", "code_block", "heading_open", "hr"):
                stray += above
                above = []
        stray += above

    def _block(self, token: Token, above: list[Comment]) -> Block:
        first = token.map[0]
        opening = self.lines[first]
        indent = opening[: len(opening) - len(opening.lstrip())]
        language = token.info.split()[0] if token.info.split() else ""
        return Block(self.name, first + 1, language, token.content, indent, tuple(above))

    def _comments(self, token: Token) -> Iterator[Comment]:
        for found in _COMMENT.finditer(token.content):
            text = found[1].strip()
            if kind := _KINDS.match(text):
                line = token.map[0] + 1 + token.content[: found.start()].count("\n")
                yield Comment(line, kind[1].strip(" :").lower(), text[kind.end() :].strip("\n "))


def pages(root: Path = ROOT) -> list[Page]:
    """The pages for readers."""
    found = [root / "README.md", root / "CONTRIBUTING.md", *sorted(root.glob("docs/**/*.md"))]
    return [Page(path, root) for path in found if path.exists()]


def claimed_blocks(page: str, test_file: str) -> list[Block]:
    """The blocks of a page that say that this test runs them."""
    test = str(Path(test_file).resolve().relative_to(ROOT))
    blocks = [block for block in Page(ROOT / page).blocks if block.comment("run by") == test]
    assert blocks, f"no block of {page} is run by {test}"
    return blocks


def claimed(page: str, test_file: str) -> list[Command]:
    """The commands of the blocks of a page that say that this test runs them."""
    return [command for block in claimed_blocks(page, test_file) for command in commands(block)]


def commands(block: Block) -> list[Command]:
    """The commands of a ``console`` or ``bash`` block."""
    lines = block.content.splitlines()
    return list(_console(block, lines) if block.language == "console" else _bash(block, lines))


def _bash(block: Block, lines: list[str]) -> Iterator[Command]:
    at = 0
    while at < len(lines):
        end = _end_of_command(lines, at, lines[at])
        text = "\n".join(lines[at:end])
        if text.strip() and not text.lstrip().startswith("#"):
            yield Command(text, block.line + 1 + at)
        at = end


def _console(block: Block, lines: list[str]) -> Iterator[Command]:
    at = 0
    while at < len(lines):
        if not lines[at].startswith("$ "):
            raise ValueError(f"{block.where}: a console block begins with a line `$ COMMAND`")
        end = _end_of_command(lines, at, lines[at][2:])
        text = "\n".join([lines[at][2:], *lines[at + 1 : end]])
        last = end
        while last < len(lines) and not lines[last].startswith("$ "):
            last += 1
        first_line = block.line + 1
        yield Command(text, first_line + at, tuple(lines[end:last]), first_line + end)
        at = last


def _end_of_command(lines: list[str], at: int, first: str) -> int:
    """Index of the line behind the command; behind the first one if no end makes it complete."""
    for end in range(at + 1, len(lines) + 1):
        if is_complete("\n".join([first, *lines[at + 1 : end]])):
            return end
    return at + 1


def is_complete(text: str) -> bool:
    """Whether bash would run it: no open quote, here-document, loop or line that continues."""
    if text.endswith("\\"):
        return False
    if not re.search(r"""['"`(){}]|<<|\b(if|for|while|until|case|do|select)\b""", text):
        return True
    checked = subprocess.run(
        ["bash", "-n"], input=text + "\n", capture_output=True, text=True, check=False
    )
    return checked.returncode == 0 and not checked.stderr
