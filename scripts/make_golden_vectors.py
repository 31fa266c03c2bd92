"""Generates tests/golden/iceberg: deletion vectors of Iceberg's own writer, BaseDVFileWriter.

    .venv/bin/python scripts/make_golden_vectors.py            (half a minute)

Needed only if tests/golden/vectors.py or the version of Iceberg changes. It starts a JVM with the
Iceberg of tiering.jars. The files are:

    all.puffin       every vector of tests/golden/vectors.py
    one.puffin       only the first one
    made_with.json   the version of Iceberg, and what its DeleteFiles say of each vector
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from sluice.driver.lakes.jvm import Jvm  # noqa: E402
from tests.golden.vectors import VECTORS, positions_of  # noqa: E402
from tests.support.lake.iceberg_vectors import write_by_iceberg  # noqa: E402

DATA = ROOT / "tests" / "golden" / "iceberg"


def main() -> None:
    shutil.rmtree(DATA, ignore_errors=True)
    DATA.mkdir()
    made: dict[str, Any] = {}
    first = next(iter(VECTORS))
    with Jvm(os.environ.get("SLUICE_TIERING_JARS", "")) as jvm:
        made["iceberg"] = jvm.gateway.jvm.org.apache.iceberg.IcebergBuild.version()
        for name, files in (("all.puffin", list(VECTORS)), ("one.puffin", [first])):
            rows = {data_file: positions_of(data_file) for data_file in files}
            made[name] = write_by_iceberg(jvm.gateway, DATA / name, rows)
    text = json.dumps(made, ensure_ascii=False, indent=1, sort_keys=True)
    (DATA / "made_with.json").write_text(f"{text}\n", encoding="utf-8")
    size = sum(path.stat().st_size for path in DATA.iterdir())
    print(f"{DATA}: {size} bytes")


if __name__ == "__main__":
    main()
