"""Writes frontend/openapi.json, the description of the page's JSON API, from `sluice/page`.

``python scripts/page_description.py`` writes it, ``--check`` compares and fails if it is out of
date. `npm run types` makes the types of the front end from it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from sluice.page.app import page_app

TARGET = Path(__file__).resolve().parent.parent / "frontend" / "openapi.json"


def main(arguments: list[str]) -> int:
    """Writes or compares the description."""
    text = json.dumps(page_app("", [], []).openapi(), indent=1) + "\n"
    if "--check" in arguments:
        if TARGET.read_text() == text:
            return 0
        print(f"{TARGET} is out of date: run `make page`", file=sys.stderr)
        return 1
    TARGET.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
