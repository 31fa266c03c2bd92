"""All files below folders in which programs may still be at work."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def contents(*folders: Path) -> Iterator[tuple[Path, bytes]]:
    """Each file and what is in it. One that goes while this looks is passed over."""
    for folder in folders:
        for parent, _, names in os.walk(folder):
            for path in (Path(parent, name) for name in names):
                try:
                    content = path.read_bytes() if path.is_file() else None
                except FileNotFoundError:
                    continue
                if content is not None:
                    yield path, content
