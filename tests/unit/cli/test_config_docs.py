"""docs/configuration.md is what sluice/config.py says."""

import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

from sluice.config import Config

ROOT = Path(__file__).resolve().parents[3]


def test_the_page_is_up_to_date() -> None:
    script = str(ROOT / "scripts/config_docs.py")
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_page_names_every_setting() -> None:
    page = (ROOT / "docs/configuration.md").read_text()
    for name, section in get_type_hints(Config).items():
        assert f"## [{name}]" in page
        for field in fields(section):
            assert f"| `{field.name}` |" in page
