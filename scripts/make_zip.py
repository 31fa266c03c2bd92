"""Zips what executors import, for `spark-submit --py-files`; the same sources, the same bytes."""

from __future__ import annotations

import argparse
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_PACKAGES = (ROOT / "sluice", ROOT / "spark_jobs/pyspark_sluice")
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip can hold


def make_zip(target: Path) -> None:
    """Writes the zip; it appears under its name at once."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_suffix(".tmp")
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(path for package in _PACKAGES for path in package.rglob("*")):
            if path.is_dir() or "__pycache__" in path.parts or path.suffix in (".pyc", ".tmp"):
                continue
            root = ROOT / "spark_jobs" if path.is_relative_to(ROOT / "spark_jobs") else ROOT
            entry = zipfile.ZipInfo(str(path.relative_to(root)), _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, path.read_bytes())
    temporary.replace(target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, metavar="OUT", help="zip file to write")
    make_zip(parser.parse_args().out)


if __name__ == "__main__":
    main()
