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
    "sluice/cli/terminal/output.py": {"click.echo", "click.secho", "Console"},
    "sluice/masking/texts.py": {"logging.Formatter"},
    "sluice/masking/uncaught.py": {
        *("sys.stderr", "sys.excepthook", "threading.excepthook", "sys.unraisablehook"),
        "warnings.showwarning",
    },
    "sluice/stop_signals.py": {"sys.unraisablehook"},  # passes other errors on
    "sluice/cli/terminal/logs.py": {
        *("logging.StreamHandler", "logging.basicConfig", "sys.stderr"),
        *("structlog.PrintLoggerFactory", "structlog.configure"),
    },
    "sluice/driver/spark/phase_log.py": {"logging.StreamHandler", "logging.basicConfig"},
    # What they write has passed line().
    "sluice/artifacts/jars.py": {"sys.stderr"},
    "sluice/cli/terminal/progress.py": {"Console"},
    # Words of this package.
    "sluice/cli/rows/sql.py": {
        "Console",
        "sys.stdout",
    },  # rows as CSV: exactly as they are
    # They flush.
    "sluice/cli/servers/serve.py": {"sys.stdout", "sys.stderr"},
    "sluice/cli/servers/ui.py": {"sys.stdout", "sys.stderr"},
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
            if names := {*writes(path.read_text())}:
                places[where] = names
    return places


def test_nothing_writes_beside_the_masking() -> None:
    """Use `say`, `print_table` or `print_json` of sluice.cli.terminal.output, or a logger."""
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
    assert not [*writes("from sluice.cli.terminal.output import say\nsay('print sys.stdout')")]


AIRFLOW = ROOT / "plugins" / "sluice_airflow"
LEVELS = {"debug", "info", "warning", "error", "log"}
"""What `sluice_airflow.airflow_api.logs` masks of the logger of an operator."""


def bypasses(sources: list[str]) -> Iterator[str]:
    """What logs below plugins/ beside `sluice_airflow.airflow_api.logs`."""
    trees = [ast.parse(source) for source in sources]
    classes = [n for tree in trees for n in ast.walk(tree) if isinstance(n, ast.ClassDef)]
    masked = {"MaskedLogs"}
    for _ in classes:  # also the classes below such a class
        masked |= {c.name for c in classes if masked & {name_of(base) for base in c.bases}}
    for one in classes:
        for node in ast.walk(one):
            if name_of(node) == "self.log" and one.name not in masked:
                yield f"{one.name} is no MaskedLogs"
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Attribute) and name_of(node.value) == "self.log":
            if node.attr not in LEVELS:
                yield f"self.log.{node.attr}"
        elif isinstance(node, ast.Call):
            called = name_of(node.func)
            if called.startswith("self.log.") and node.keywords:
                yield f"{called}: keywords are not masked"
            is_named = [*map(ast.unparse, node.args)] == ["__name__"] and "structlog" not in called
            if called.endswith(("getLogger", "get_logger")) and not is_named:
                yield f"{called}: name it __name__"


def test_no_log_of_airflow_bypasses_the_masking() -> None:
    """Use `logging.getLogger(__name__)`, or MaskedLogs as the first base of the class."""
    assert {*bypasses([path.read_text() for path in sorted(AIRFLOW.rglob("*.py"))])} == set()


def test_other_ways_of_logging_in_airflow_would_be_found() -> None:
    for source in (
        "class A(Base):\n    def f(self): self.log.info('x')",
        "class A(Base):\n    def f(self): log = self.log",
        "class A(MaskedLogs, Base):\n    def f(self): self.log.exception('x')",
        "class A(MaskedLogs, Base):\n    def f(self): self.log.info('x', exc_info=True)",
        "import logging\nlog = logging.getLogger('airflow.task')",
        "import structlog\nlog = structlog.get_logger(__name__)",
    ):
        assert [*bypasses([source])], source
    below = "class A(MaskedLogs, X): ...\nclass B(A):\n    def f(self): self.log.info('x')"
    assert not [*bypasses([below])]
