"""Run the demo. Exit code 0: the lake equals the source; 1: it differs, or a step failed."""

from __future__ import annotations

import argparse
import atexit
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from demo import lakes, report
from demo.processes import Processes
from demo.run import Demo, inherited_environment
from demo.servers import KINDS
from sluice.errors import ConfigurationError

PIPE_WIDTH = 100
"""Width in columns of output to a file or a pipe."""
STOP_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument(
        "--keep",
        metavar="DIR",
        default=os.environ.get("DEMO_KEEP"),
        help="keep server data, lake and logs in DIR, a new folder (or set DEMO_KEEP=DIR)",
    )
    parser.add_argument(
        "--fluss",
        choices=KINDS,
        default="embedded",
        help="cluster to use: the embedded server, or Apache Fluss (downloaded once, 130 MB)",
    )
    parser.add_argument(
        "--catalog",
        choices=lakes.KINDS,
        default="folder",
        help="lake to use: a folder, or an Iceberg REST catalog on S3 that vends the keys, read"
        " back by Spark and PyIceberg (needs Java 21; its jars are downloaded once, 310 MB; the"
        " lake is in memory and not kept)",
    )
    parser.add_argument(
        "--plant-difference",
        action="store_true",
        default=os.environ.get("DEMO_PLANT", "") not in ("", "0"),
        help="change one value of one row before loading, which the comparison must find"
        " (or set DEMO_PLANT=1)",
    )
    options = parser.parse_args(given)
    if options.catalog == "rest" and options.fluss != "embedded":
        parser.error(
            f"--catalog rest needs --fluss embedded, not {options.fluss}: Apache Fluss makes the"
            " lake tables itself, and would need the catalog's settings and jars, too"
        )
    return options


def main(given: Sequence[str] | None = None) -> int:
    """Runs the demo in its own folder, and stops every process that it started."""
    options = arguments(given)
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(width=PIPE_WIDTH)
    try:
        lakes.check(options.catalog)
    except ConfigurationError as error:
        console.print(f"--catalog {options.catalog}: {error}", soft_wrap=True, markup=False)
        return 2
    if options.keep:
        folder = Path(options.keep).absolute()
        if folder.exists() and any(folder.iterdir()):
            text = f"--keep: {folder} is not empty; choose another folder, or delete it first"
            console.print(text, soft_wrap=True)
            return 2
        folder.mkdir(parents=True, exist_ok=True)
    else:
        folder = Path(tempfile.mkdtemp(prefix="sluice-demo-"))
    logs = folder / "logs"
    for name in (logs, folder / "work"):
        name.mkdir()
    processes = Processes(logs, inherited_environment())
    atexit.register(processes.stop_all)
    for number in STOP_SIGNALS:
        signal.signal(number, _interrupt)
    failed = True
    try:
        code = _run(options, folder, console, processes)
        failed = code == 1
        return code
    finally:
        _stop(processes, console)
        if not options.keep and not failed:
            shutil.rmtree(folder, ignore_errors=True)


def _run(options: argparse.Namespace, folder: Path, console: Console, processes: Processes) -> int:
    demo = Demo(
        folder, console, processes, options.plant_difference, options.fluss, options.catalog
    )
    started = time.monotonic()
    console.print(f"[bold]Sluice demo[/bold] in {folder}", highlight=False)
    if options.catalog == "rest":
        console.print(lakes.REST_TITLE, highlight=False, soft_wrap=True)
    try:
        differences = demo.run()
    except KeyboardInterrupt:
        console.print("\nstopped")
        return 130
    except Exception as error:
        console.print(f"\n[red]{type(error).__name__}:[/red] {escape(str(error))}", highlight=False)
        console.print(f"Logs: {folder / 'logs'}", highlight=False, soft_wrap=True)
        return 1
    spent = time.monotonic() - started
    if differences:
        report.print_differences(console, differences)
        console.print(f"Logs: {folder / 'logs'}", highlight=False, soft_wrap=True)
        return 1
    report.print_equal(console, options.catalog, spent)
    report.print_where_next(
        console, folder, options.fluss, options.catalog, kept=bool(options.keep)
    )
    return 0


def _interrupt(number: int, frame: Any) -> None:
    del number, frame
    raise KeyboardInterrupt


def _stop(processes: Processes, console: Console) -> None:
    """Stops all processes. Signals are ignored until then, so that no process survives."""
    for number in (*STOP_SIGNALS, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    with console.status("stopping processes"):
        processes.stop_all()


if __name__ == "__main__":
    sys.exit(main())
