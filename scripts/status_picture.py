"""Writes docs/images/status.svg, the picture of `sluice status` in the README.

``python scripts/status_picture.py`` starts `sluice serve` on an empty folder, makes four tables
with the commands of a user (one is tiered, one fails, one is paused, one waits for its first
round), runs `sluice status` on a terminal of 80 columns, and draws what it prints. It needs Java 17
and the extra [spark]. A quick test compares the picture with what the code prints today.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "images" / "status.svg"
WIDTH = 80
NO_FOLDER = "/dev/null/lake"
"""A warehouse that no round can write to."""
SETTINGS = {"PYTHONPATH": f"{ROOT}:{ROOT / 'spark_jobs'}"}


class Scene:
    """A server on an empty folder, and the commands of a user."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
        if jars := os.environ.get("SLUICE_TIERING_JARS"):
            self._environment["SLUICE_TIERING_JARS"] = jars
        self._environment |= SETTINGS
        self._server = subprocess.Popen(
            [*_command(), "serve", "--data-dir", "data", "--listen", "grpc://127.0.0.1:0"],
            cwd=folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._server.stdout is not None
        ready = re.search(r"grpc://[\d.:]+", self._server.stdout.readline())
        assert ready is not None, "the server did not start"
        self._environment["SLUICE_CLIENT_BOOTSTRAP"] = ready[0]

    def run(self, *arguments: str, code: int = 0, **environment: str) -> str:
        """Runs one command of `sluice`; returns its standard output."""
        done = subprocess.run(
            [*_command(), *arguments],
            cwd=self._folder,
            env=self._environment | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def create(self, table: str, rows: int) -> None:
        """A tiered table with this many rows."""
        self.run("create-table", table, "--schema", "id BIGINT NOT NULL, item STRING")
        self.append(table, rows)

    def append(self, table: str, rows: int) -> None:
        file = self._folder / f"{table}-{rows}.csv"
        file.write_text("id,item\n" + "".join(f"{n},pen\n" for n in range(rows)))
        self.run("append", table, str(file))

    def close(self) -> None:
        """Ends the server."""
        self._server.terminate()
        killing = threading.Timer(20, self._server.kill)
        killing.start()
        self._server.wait()
        killing.cancel()
        assert self._server.stdout is not None
        self._server.stdout.close()


def _command() -> list[str]:
    return [sys.executable, "-m", "sluice.cli.main"]


def printed(folder: Path) -> str:
    """What `sluice status` prints on a terminal with colours."""
    scene = Scene(folder)
    try:
        scene.create("shop.orders", 5_000)
        scene.create("shop.prices", 3)
        scene.create("shop.stock", 200)
        scene.create("shop.visits", 12_480)
        scene.run("tier", "shop.stock", "--warehouse", "lake")
        scene.append("shop.stock", 35)
        scene.run("pause", "shop.stock")
        scene.run("tier", "shop.orders", "--warehouse", "lake")
        scene.run("tier", "shop.prices", "--warehouse", NO_FOLDER, code=1)  # due again after 10 s
        terminal = {"FORCE_COLOR": "1", "COLUMNS": str(WIDTH), "TERM": "xterm-256color"}
        return scene.run("status", code=1, **terminal)  # 1: a table is failing
    finally:
        scene.close()


def drawn(terminal_output: str) -> str:
    """The picture. GitHub shows no fonts of other addresses, so none is named."""
    console = Console(
        record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print(Text("$ sluice status", style="bold"))
    console.print(Text.from_ansi(terminal_output.rstrip()), soft_wrap=True)
    form = re.sub(r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    form = form.replace("Fira Code, monospace", "Menlo, Consolas, 'DejaVu Sans Mono', monospace")
    svg = console.export_svg(title="sluice status", code_format=form, unique_id="status")
    return "\n".join(line.rstrip() for line in svg.splitlines() if line.strip()) + "\n"


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        svg = drawn(printed(Path(name)))
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(svg)
    print(TARGET)


if __name__ == "__main__":
    main()
