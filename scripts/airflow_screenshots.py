"""Takes the pictures of docs/images/airflow: a real Airflow with real Spark, seen by Chromium.

``python scripts/airflow_screenshots.py [NAME...]`` takes all pictures, or those whose names begin
so. It needs Chromium (``apt-get install -y chromium``), and two packages that nothing else needs:
``.venv/bin/uv pip install --target .cache/pictures playwright pillow``
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / ".cache" / "pictures")]
TARGET = ROOT / "docs" / "images" / "airflow"
FOLDER = Path("/srv/sluice")
"""Where the scene lives. The pictures show it, so it is short."""


def main() -> int:
    """Starts the scene, or uses a running one. Exit code 1: some pictures are absent."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="beginnings of the names of pictures")
    parser.add_argument("--into", type=Path, default=TARGET, help="folder of the pictures")
    parser.add_argument("--folder", type=Path, default=FOLDER, help=f"new folder; {FOLDER}")
    parser.add_argument("--scene", type=Path, help="use the running scene that this file names")
    parser.add_argument(
        "--keep", type=Path, help="write such a file, and wait for Enter at the end"
    )
    given = parser.parse_args()
    try:
        from demo.shots.airflow_shots import SHOTS, take
    except ImportError as error:
        how = ".venv/bin/uv pip install --target .cache/pictures playwright pillow"
        print(f"{error}; run: {how}", file=sys.stderr)
        return 1
    from demo.shots.airflow_scene import Scene, running_scene

    shots = [s for s in SHOTS if not given.names or s.name.startswith(tuple(given.names))]
    given.into.mkdir(parents=True, exist_ok=True)
    if given.scene:
        return min(1, take(Scene.from_json(given.scene.read_text()), given.into, shots, print))
    if given.folder.exists():
        print(f"{given.folder} exists; delete it, or pass --folder NEW", file=sys.stderr)
        return 1
    try:
        with running_scene(given.folder, print) as scene:
            absent = take(scene, given.into, shots, print)
            if given.keep:
                given.keep.write_text(scene.to_json())
                print(f"{scene.url} (user {scene.user}, password {scene.password})", flush=True)
                sys.stdin.readline()  # or the end of its input
    finally:
        shutil.rmtree(given.folder, ignore_errors=True)
    return min(1, absent)


if __name__ == "__main__":
    sys.exit(main())
