"""docs/configuration.md has what sluice/config.py says (tests/docs compares all of it)."""

from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

from sluice.config import Config

ROOT = Path(__file__).resolve().parents[3]


def test_the_page_names_every_setting() -> None:
    page = (ROOT / "docs/configuration.md").read_text()
    for name, section in get_type_hints(Config).items():
        assert f"## [{name}]" in page
        for field in fields(section):
            assert f"| `{field.name}` |" in page
