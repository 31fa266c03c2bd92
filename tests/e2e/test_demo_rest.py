"""`make demo CATALOG=rest`, whole: its exit code, its words, and nothing left running."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from demo.processes import MARK
from sluice.errors import ConfigurationError
from tests.support.catalog_servers.nessie import JAVA_MIN
from tests.support.catalog_servers.newer_java import java_of
from tests.support.harness.findings import finding
from tests.support.programs.installed import JARS
from tests.support.programs.living import Living, living

pytestmark = [pytest.mark.long, pytest.mark.airflow, pytest.mark.spark]
ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "demo", "--catalog", "rest"]
SECRETS = re.compile(r"s3\.(secret-access-key|session-token)|store\.keys|SessionToken")


@pytest.fixture(autouse=True)
def newer_java() -> None:
    try:
        java_of(JAVA_MIN)
    except ConfigurationError as error:
        pytest.skip(str(error))


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    made = tmp_path / "tmp"
    made.mkdir()
    return made


def variables(temporary: Path) -> dict[str, str]:
    """Of a demo, with keys of a store that must not reach its clients."""
    return {
        **os.environ,
        "TMPDIR": str(temporary),
        "SLUICE_TIERING_JARS": JARS,
        "PYSPARK_PYTHON": sys.executable,
        "COLUMNS": "100",
        "AWS_ACCESS_KEY_ID": "stranger",
        "AWS_SECRET_ACCESS_KEY": "a-secret-of-a-stranger",
    }


def started_below(temporary: Path) -> list[Living]:
    return living(lambda told: MARK in told and told.get("TMPDIR") == str(temporary))


@pytest.mark.timeout(900)
def test_the_demo_on_a_rest_catalog_that_vends_keys(tmp_path: Path, temporary: Path) -> None:
    kept = tmp_path / "kept"
    done = subprocess.run(
        [*COMMAND, "--keep", str(kept)],
        cwd=ROOT,
        env=variables(temporary),
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
    )
    said = done.stdout
    with finding():
        assert "The lake differs from the source" not in said, said
    assert done.returncode == 0, said + done.stderr[-3000:]
    assert "Lake: Iceberg REST catalog (Nessie 0.99.0) on S3" in said
    assert "The lake equals the source: row counts, and every value of every row" in said
    for reader in ("Spark", "PyIceberg"):
        asked = re.escape(f"Read the lake with {reader}, compare")
        seen = re.findall(asked + r" +[\d.]+ s  (.*)", said)
        assert seen == [
            "flights 281,373 rows, weather 21,830 rows, flight_status 274,381 rows",
            "flights 336,776 rows, weather 26,115 rows, flight_status 328,521 rows",
        ]
    options = json.loads((kept / "logs" / "catalog.log").read_text())
    assert options.keys() == {"type", "uri"}, "clients have no keys of the store"
    with finding():
        assert started_below(temporary) == []
        assert list((kept / "rest").iterdir()) == []
        told = [p for p in kept.rglob("*.log") if SECRETS.search(p.read_text(errors="replace"))]
        assert told == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_an_interrupted_demo_leaves_no_server_and_no_file(
    temporary: Path, how: signal.Signals
) -> None:
    with subprocess.Popen(
        COMMAND,
        cwd=ROOT,
        env=variables(temporary),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as demo:
        deadline = time.monotonic() + 300
        while not any("nessie" in " ".join(p.command) for p in started_below(temporary)):
            assert demo.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        demo.send_signal(how)
        output, _ = demo.communicate(timeout=120)
    assert demo.returncode == 130, output
    with finding():
        assert started_below(temporary) == []
        assert list(temporary.glob("sluice-*")) == []
