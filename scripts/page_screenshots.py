"""Takes the pictures of docs/images/page: the page of a scene with 200 tables, seen by Chromium.

``python scripts/page_screenshots.py [NAME...]`` takes the pictures of the documentation, or those
whose names begin so. ``--all --into FOLDER`` takes each view, light and dark, also as wide as a
phone. It needs Chromium and the packages that scripts/airflow_screenshots.py names.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / ".cache" / "pictures")]
TARGET = ROOT / "docs" / "images" / "page"


def main() -> int:
    """Starts the scene, the page and, if a picture needs it, Airflow; takes the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="beginnings of the names of pictures")
    parser.add_argument("--all", action="store_true", help="also those that no document shows")
    parser.add_argument("--into", type=Path, default=TARGET, help="folder of the pictures")
    given = parser.parse_args()
    try:
        from demo.shots.page_shots import ALL, CHOSEN, running_places, take
        from sluice.cli.terminal.logs import configure
    except ImportError as error:
        how = ".venv/bin/uv pip install --target .cache/pictures playwright pillow"
        print(f"{error}; run: {how}", file=sys.stderr)
        return 1
    configure("console", "error")
    names = tuple(given.names)
    shots = [s for s in (ALL if given.all else CHOSEN) if not names or s.name.startswith(names)]
    given.into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="sluice-shots-") as folder:
        needs_airflow = any(shot.in_airflow for shot in shots)
        with running_places(Path(folder), print, needs_airflow=needs_airflow) as places:
            take(places, given.into, shots, print)
    return 0


if __name__ == "__main__":
    sys.exit(main())
