"""The ten changes of CONTRIBUTING: their files exist, and three are made in a copy of the tree."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
SECTION = PAGE.partition("## Ten changes")[2].partition("\n## ")[0]
CHANGES = re.findall(r"^\*\*(.+?)\*\*", SECTION, re.M)


def named_files() -> list[str]:
    """The files that the lists name: those without a folder stand beside the one before."""
    found, folder = [], ""
    for name in re.findall(r"`([\w./-]+\.(?:py|md|proto))`", SECTION):
        folder = name.rpartition("/")[0] if "/" in name else folder
        found.append(name if "/" in name else f"{folder}/{name}")
    return found


def test_there_are_ten_and_their_files_exist() -> None:
    assert len(CHANGES) == 10
    plugin = ROOT / "plugins/sluice_airflow"
    missing = [
        name
        for name in named_files()
        if not (ROOT / name).exists() and not (plugin / name).exists()
    ]
    assert missing == []


class Copy:
    """A copy of the tree in which a change is made, file by file as its list says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("sluice", "scripts", "docs", "spark_jobs"):
            ignored = shutil.ignore_patterns("__pycache__", "static", "images", "_kernels")
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)

    def change(self, file: str, before: str, after: str) -> None:
        """:param file: one that the lists name."""
        assert file in named_files(), f"{file} is in no list of CONTRIBUTING.md"
        path = self.folder / file
        text = path.read_text()
        assert before in text, (file, before)
        path.write_text(text.replace(before, after, 1))

    def run(self, *arguments: str, **environment: str) -> str:
        path = os.pathsep.join([str(self.folder), str(self.folder / "spark_jobs")])
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": path, **environment},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


FIELD = """    lake_layout: str | None = described(
        t.STRING, "Layout of the lake table", number={number}, heading="layout"
    )

"""
SEEN_EVERYWHERE = """
import json
from pyspark_sluice.lake_tiering_status import LakeTieringStatus
from sluice.cli.terminal.record_cells import document, headed_fields
from sluice.model import Claim, TablePath, TieringStatus
from sluice.page.cluster.models import RecordedRound, RecordedStatus
from sluice.rounds.records.result import RoundResult
from sluice.server.storage.database import record_columns
from sluice.statuses import TableStatus
from sluice.statuses.outcomes import after_success

path = TablePath("shop", "orders")
details = RoundResult.of(Claim(1, path, 1, 0), "committed", lake_layout="clean").details()
kept = after_success(None, 1, None, details)
status = TieringStatus(path, 1, "Tiered", 1, **kept)
print(json.dumps({
    "status": status.lake_layout,
    "history": details.lake_layout,
    "json": document(path, status)["lake_layout"],
    "heading": [one.heading for one in headed_fields(TieringStatus) if one.name == "lake_layout"],
    "sqlite": record_columns(TableStatus)["lake_layout"],
    "page": [
        "lake_layout" in model.model_fields for model in (RecordedStatus, RecordedRound)
    ],
    "sql": "lake_layout" in LakeTieringStatus.columns(),
}))
"""


def test_a_status_field_is_described_once_and_shown_everywhere(copy: Copy) -> None:
    """The layout of the lake table, which the result of a round has already."""
    status, history = "sluice/model/tiering.py", "sluice/model/round_record.py"
    at = "    lake_rows: int | None = described("
    field = FIELD.format(number=900)
    copy.change(status, at, field + at)
    copy.change(history, at, field + at)
    seen: dict[str, Any] = json.loads(copy.run("-c", SEEN_EVERYWHERE))
    assert seen == {
        "status": "clean",
        "history": "clean",
        "json": "clean",
        "heading": ["layout"],
        "sqlite": "TEXT",
        "page": [True, True],
        "sql": True,
    }


def test_a_setting_comes_from_the_environment_and_is_documented(copy: Copy) -> None:
    at = "    parallelism: int = 2\n"
    field = '    breath_ms: int = 7\n    """Milliseconds that a round rests."""\n'
    copy.change("sluice/config.py", at, field + at)
    code = "import os\nfrom sluice.config import load_config\n"
    code += "print(load_config(environment=os.environ).tiering.breath_ms)"
    assert copy.run("-c", code, SLUICE_TIERING_BREATH_MS="9") == "9\n"
    copy.run("-m", "scripts.config_docs")
    page = (copy.folder / "docs/configuration.md").read_text()
    assert "breath_ms" in page
    assert "Milliseconds that a round rests." in page


COMMAND = '''"""`sluice rest`: rests."""

import click


@click.command("rest")
def rest() -> None:
    """Rest for a while."""
'''


def test_a_command_is_one_file_and_one_name(copy: Copy) -> None:
    assert "sluice/cli/tiering/skip_damaged.py" in named_files()
    (copy.folder / "sluice/cli/tiering/rest.py").write_text(COMMAND)
    line = "from sluice.cli.tiering.repair import repair\n"
    copy.change("sluice/cli/main.py", line, f"{line}from sluice.cli.tiering.rest import rest\n")
    copy.change("sluice/cli/main.py", "    repair,\n", "    repair,\n    rest,\n")
    assert "Rest for a while." in copy.run("-m", "sluice.cli.main", "rest", "--help")
    copy.run("-m", "scripts.command_docs")
    assert "## sluice rest\n" in (copy.folder / "docs/commands.md").read_text()
