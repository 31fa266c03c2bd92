"""protobuf runs generated code of its own version or older: so the messages are of the oldest."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
MESSAGES = sorted((ROOT / "sluice/wire").glob("*_pb2.py"))


@pytest.mark.slow
@pytest.mark.parametrize("path", MESSAGES, ids=lambda path: path.name)
def test_messages_are_generated_for_the_oldest_protobuf_allowed(path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [wanted] = [line for line in project["dependencies"] if line.startswith("protobuf")]
    bounds = re.fullmatch(r"protobuf>=(\d+)\.(\d+),<(\d+)", wanted)
    assert bounds, wanted
    major, minor, below = map(int, bounds.groups())
    [made] = re.findall(r"^# Protobuf Python Version: (\S+)$", path.read_text(), re.MULTILINE)
    assert made == f"{major}.{minor}.0"
    assert below == major + 2, "protobuf promises to run code of one major version back, no more"
