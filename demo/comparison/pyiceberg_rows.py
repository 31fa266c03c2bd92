"""Reads all rows of the lake with PyIceberg. Runs as its own program.

``python -m demo.comparison.pyiceberg_rows QUESTIONS.json FOLDER`` writes a file for each table.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyarrow import feather
from pyiceberg.catalog import load_catalog

from demo.tables import DATABASE


def main(questions: str, folder: str) -> None:
    """Answers the questions of :class:`demo.comparison.readers.Questions`."""
    asked = json.loads(Path(questions).read_text())
    catalog = load_catalog("lake", **asked["options"])
    for name, columns in asked["columns"].items():
        scan = catalog.load_table((DATABASE, name)).scan(selected_fields=tuple(columns))
        feather.write_feather(scan.to_arrow(), f"{folder}/{name}.arrow")


if __name__ == "__main__":
    main(*sys.argv[1:3])
