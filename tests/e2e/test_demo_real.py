"""`make demo FLUSS=real`, whole: its exit code, its words, and nothing left running."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from demo.processes import MARK
from tests.support.harness.findings import finding
from tests.support.programs.installed import JARS
from tests.support.programs.living import living

pytestmark = [
    pytest.mark.slow,
    pytest.mark.real_fluss,
    pytest.mark.airflow,
    pytest.mark.spark,
]
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(900)
def test_the_demo_on_a_real_fluss(tmp_path: Path) -> None:
    temporary, kept = tmp_path / "tmp", tmp_path / "kept"
    temporary.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "demo", "--fluss", "real", "--keep", str(kept)],
        cwd=ROOT,
        env={
            **os.environ,
            "TMPDIR": str(temporary),
            "SLUICE_TIERING_JARS": JARS,
            "PYSPARK_PYTHON": sys.executable,
            "COLUMNS": "100",
        },
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
    )
    said = done.stdout
    with finding():
        assert "The lake differs from the source" not in said, said
    assert done.returncode == 0, said + done.stderr[-3000:]
    assert "Start Apache Fluss 0.9.1" in said
    assert "The lake equals the source" in said
    ends = re.findall(r"nyc\.(\w+) +│ Tiered │ +([\d,]+) │ +([\d,]+) │ +([\d,]+) │", said)
    logs = [end for end in ends if end[0] != "flight_status"]
    assert logs == [
        ("flights", "281,373", "0", "281,373"),
        ("weather", "21,830", "0", "21,830"),
        ("flights", "55,403", "0", "336,776"),
        ("weather", "4,285", "0", "26,115"),
    ]
    first, second = (end for end in ends if end[0] == "flight_status")
    assert first[1:3] == ("274,381", "0")  # the flights of ten months that were not cancelled
    assert int(second[2].replace(",", "")) > 0, "the second run changes flights that the lake has"
    with finding():
        assert living(lambda told: MARK in told and told.get("TMPDIR") == str(temporary)) == []
    assert (kept / "lake/nyc/flights/metadata").is_dir()
