"""Runs the blocks of a page in order, and compares or writes the outputs that it shows.

``python -m tests.docs.runner [PAGE...]`` compares, with ``--write`` it puts the outputs that were
seen into the pages. Without a page it takes all of them.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.docs.blocks import ROOT, Block, Command, Comment, Page, commands, pages
from tests.docs.outputs import difference, matches
from tests.docs.session import COMMAND_TIMEOUT_S, CommandFailed, Ran, Session
from tests.support.harness import quick_java

_STARTS_A_JVM = re.compile(
    r"\bsluice (--\S+ )*(tier|sql|clean|repair|doctor|jars)\b|\bspark-(sql|submit|shell)\b|pyspark"
)


@dataclass
class Outcome:
    """What was found on a page, and the lines that it should have instead."""

    failures: list[str] = field(default_factory=list)
    """Commands that ended otherwise than they should."""
    differences: list[str] = field(default_factory=list)
    """Outputs that are not the page's; ``write`` repairs them."""
    edits: list[tuple[int, int, list[str]]] = field(default_factory=list)
    """First line, number of lines, and the lines that replace them."""

    @property
    def problems(self) -> list[str]:
        return self.differences + self.failures


def has_runs(page: Page) -> bool:
    """Whether the runner has anything to do."""
    return any(block.is_run for block in page.blocks)


def starts_a_jvm(page: Page) -> bool:
    """Whether a command of the page does; such a page is slow."""
    texts = [block.content for block in page.blocks if block.is_run]
    return any(map(_STARTS_A_JVM.search, texts + [c.value for c in _setups(page)]))


def run_page(page: Page, folder: Path, timeout_s: float = COMMAND_TIMEOUT_S) -> Outcome:
    """Runs a page in an empty folder. After a command that failed, the rest is left out."""
    run = _Run(page, Outcome())
    with Session(folder, timeout_s) as session:
        for item in page.items:
            try:
                if not run.item(session, item):
                    break
            except (CommandFailed, ValueError) as error:
                run.outcome.failures.append(f"{page.name}:{run.line}: {error}")
                break
    return run.outcome


def write(page: Page, outcome: Outcome) -> bool:
    """Puts the outputs that were seen into the page; answers whether it changed."""
    lines = list(page.lines)
    for first, count, replacing in sorted(outcome.edits, reverse=True):
        lines[first - 1 : first - 1 + count] = replacing
    text = "\n".join(lines) + "\n"
    if text == page.text:
        return False
    page.path.write_text(text, encoding="utf-8")
    return True


class _Run:
    def __init__(self, page: Page, outcome: Outcome) -> None:
        self.page = page
        self.outcome = outcome
        self.line = 1
        self._last_output = ""

    def item(self, session: Session, item: Block | Comment) -> bool:
        """Answers whether the page may go on."""
        self.line = item.line
        if isinstance(item, Comment):
            return self._ended(session.run(Command(item.value, item.line)), 0)
        if not item.is_run:
            return True
        if (name := item.comment("file")) is not None:
            session.write(name, item.content)
            return True
        if item.comment("output") is not None:
            count = len(item.content.splitlines())
            self._compare(item, item.content.splitlines(), self._last_output, item.line + 1, count)
            return True
        if item.language == "python":
            ran = session.python(item.content, item.page, item.line)
            self._last_output = ran.output
            return self._ended(ran, item.exit_code)
        return self._commands(session, item)

    def _commands(self, session: Session, block: Block) -> bool:
        found = commands(block)
        outputs = []
        for command in found:
            self.line = command.line
            ran = session.run(command)
            expected_code = block.exit_code if command is found[-1] else 0
            output = ran.output
            if command.is_background and command.output:
                output = session.output_until(ran, _accepts(command.output))
            if block.language == "console":
                self._console(block, command, output)
            outputs.append(output)
            if not self._ended(ran, expected_code):
                return False
        self._last_output = "".join(outputs)
        return True

    def _console(self, block: Block, command: Command, seen: str) -> None:
        expected = list(command.output)
        if command.is_background and (not expected or _accepts(expected)(seen)):
            return
        self._compare(block, expected, seen, command.output_line, len(expected))

    def _compare(
        self, block: Block, expected: Sequence[str], seen: str, line: int, count: int
    ) -> None:
        seen_lines = [each.rstrip() for each in seen.splitlines()]
        if matches(expected, seen_lines):
            return
        differing = difference(expected, seen_lines)
        self.outcome.differences.append(f"{self.page.name}:{line}: another output\n{differing}")
        indented = [f"{block.indent}{each}".rstrip() for each in seen_lines]
        self.outcome.edits.append((line, count, indented))

    def _ended(self, ran: Ran, expected: int) -> bool:
        if ran.code == expected:
            return True
        self.outcome.failures.append(
            f"{self.page.name}:{self.line}: exit code {ran.code}, not {expected}\n{ran.output}"
        )
        return False


def _accepts(expected: Sequence[str]) -> Callable[[str], bool]:
    """A background command may print more, before and later on."""
    return lambda seen: matches(["...", *expected, "..."], seen.splitlines())


def _setups(page: Page) -> list[Comment]:
    return [item for item in page.items if isinstance(item, Comment)]


def _root(path: Path) -> Path:
    return ROOT if path.is_relative_to(ROOT) else path.parent


def main(arguments: Sequence[str] | None = None) -> int:
    """Answers the exit code: 1 if a page shows what is not so, or cannot be run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="put the outputs into the pages")
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE")
    given = parser.parse_args(arguments)
    found = [Page(path.resolve(), _root(path.resolve())) for path in given.pages]
    if not found:
        found = [page for page in pages() if has_runs(page)]
    quick_java.use()
    failed = False
    for page in found:
        with tempfile.TemporaryDirectory(prefix="sluice-docs-") as folder:
            outcome = run_page(page, Path(folder).resolve())
        if given.write and write(page, outcome):
            print(f"{page.name}: written")
        left = outcome.failures if given.write else outcome.problems
        failed = failed or bool(left)
        print("\n".join(left or [f"{page.name}: ok"]))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
