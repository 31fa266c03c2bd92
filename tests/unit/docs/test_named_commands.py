"""What a message or a page tells the user to type exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sluice.cli.main import cli

ROOT = Path(__file__).resolve().parents[3]
PLACES = ("sluice", "plugins", "dags", "spark_jobs", "docs", "demo")
NAMED = re.compile(r"`sluice ([a-z][a-z-]*)")


def named_in(path: Path) -> set[str]:
    return set(NAMED.findall(path.read_text()))


def test_every_command_named_in_a_message_exists() -> None:
    files = [
        p for place in PLACES for p in (ROOT / place).rglob("*.*") if p.suffix in (".py", ".md")
    ]
    files += ROOT.glob("*.md")
    named = {str(p.relative_to(ROOT)): named_in(p) for p in files}
    assert "status" in set().union(*named.values())  # the pattern finds what there is
    unknown = {path: found - set(cli.commands) for path, found in named.items()}
    assert {path: found for path, found in unknown.items() if found} == {}


@pytest.mark.parametrize("text", ["with `sluice mend db.t`", "`sluice show-all`"])
def test_the_pattern_sees_a_command_that_is_not_there(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.py").write_text(text)
    assert named_in(tmp_path / "x.py") - set(cli.commands)
