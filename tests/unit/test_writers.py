"""Every place of the program that writes for people is listed here, and passes the masking."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = ("sluice", "plugins", "spark_jobs", "dags")
WRITES = {
    *("print", "input", "click.echo", "click.secho", "click.confirm", "click.prompt"),
    *("click.echo_via_pager", "click.progressbar", "sys.stdout", "sys.stderr"),
    *("sys.__stdout__", "sys.__stderr__", "os.write", "Console", "rich.print", "pprint"),
    *("logging.StreamHandler", "logging.FileHandler", "logging.basicConfig", "logging.Formatter"),
    *("structlog.PrintLoggerFactory", "structlog.configure", "traceback.print_exc"),
    *("traceback.print_exception", "sys.excepthook", "threading.excepthook"),
    *("sys.unraisablehook", "warnings.showwarning", "warnings.warn"),
}
"""What writes to a terminal, a pipe or a log, or decides how."""
LISTED = {
    # They mask themselves.
    "sluice/cli/output.py": {"click.echo", "click.secho", "Console"},
    "sluice/masking/texts.py": {"logging.Formatter"},
    "sluice/masking/uncaught.py": {
        *("sys.stderr", "sys.excepthook", "threading.excepthook", "sys.unraisablehook"),
        "warnings.showwarning",
    },
    "sluice/stop_signals.py": {"sys.unraisablehook"},  # passes other errors on
    "sluice/cli/logs.py": {
        *("logging.StreamHandler", "logging.basicConfig", "sys.stderr"),
        *("structlog.PrintLoggerFactory", "structlog.configure"),
    },
    "spark_jobs/sluice_spark/tier_tables.py": {"logging.StreamHandler", "logging.basicConfig"},
    "spark_jobs/sluice_spark/maintain_tables.py": {"logging.StreamHandler", "logging.basicConfig"},
    # What they write has passed line().
    "sluice/artifacts/jars.py": {"sys.stderr"},
    "sluice/cli/progress.py": {"Console"},
    "sluice/cli/sending.py": {"Console"},
    "sluice/cli/resume.py": {"click.confirm"},
    # Words of this package.
    "sluice/cli/sql.py": {"Console", "sys.stdout"},  # rows of users as CSV: exactly as they are
    # They flush.
    "sluice/cli/append_recorder.py": {"os.write"},  # a record of its own, in a file
    "sluice/cli/serve.py": {"sys.stdout", "sys.stderr"},
    "sluice/cli/ui.py": {"sys.stdout", "sys.stderr"},
}


def name_of(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def writes(source: str) -> Iterator[str]:
    """The names in a source that are among WRITES, also where they were imported by themselves."""
    imported = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            for one in node.names:
                imported[one.asname or one.name] = f"{node.module}.{one.name}"
        elif isinstance(node, ast.Import):
            imported |= {one.asname: one.name for one in node.names if one.asname}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name | ast.Attribute):
            first, _, rest = name_of(node).partition(".")
            whole = ".".join(part for part in (imported.get(first, first), rest) if part)
            yield from {whole, whole.rpartition(".")[2] if "Console" in whole else whole} & WRITES


def found() -> dict[str, set[str]]:
    places = {}
    for folder in PROGRAM:
        for path in sorted((ROOT / folder).rglob("*.py")):
            where = str(path.relative_to(ROOT))
            if not where.startswith("sluice/testing/") and (names := {*writes(path.read_text())}):
                places[where] = names
    return places


def test_nothing_writes_beside_the_masking() -> None:
    """Use `say`, `print_table` or `print_json` of sluice.cli.output, or a logger."""
    places = found()
    new = {where: names - LISTED.get(where, set()) for where, names in places.items()}
    assert {where: names for where, names in new.items() if names} == {}
    gone = {where: names - places.get(where, set()) for where, names in LISTED.items()}
    assert {where: names for where, names in gone.items() if names} == {}, "take them off the list"


def test_other_ways_of_writing_would_be_found() -> None:
    for source in (
        "import click\nclick.echo(1)",
        "from click import echo\necho(1)",
        "from sys import stderr as e\ne.write('')",
        "import sys as s\ns.stdout.flush()",
        "def f():\n    print(1)",
        "from rich.console import Console\nConsole().print(1)",
        "from logging import StreamHandler as H\nH()",
        "import logging\nclass X(logging.StreamHandler): ...",
        "say = print",
    ):
        assert [*writes(source)], source
    assert not [*writes("from sluice.cli.output import say\nsay('print sys.stdout')")]
