"""A page that a script writes: ``--check`` compares it in place of writing it."""

from __future__ import annotations

import sys
from pathlib import Path


def write_or_check(target: Path, page: str, command: str) -> int:
    """Writes the page, or compares it if the command line has ``--check``; answers the exit code.

    :param command: what writes the page, for the error.
    """
    if "--check" not in sys.argv[1:]:
        target.write_text(page, encoding="utf-8")
        return 0
    if target.exists() and target.read_text(encoding="utf-8") == page:
        return 0
    print(f"{target.name} is out of date: run '{command}'", file=sys.stderr)
    return 1
