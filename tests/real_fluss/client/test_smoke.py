"""The fixture itself: a real Fluss starts, the official client works on it, nothing survives it."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluice.client import connect
from sluice.model import TablePath
from tests.docs.blocks import claimed
from tests.support.clients.official_client import BUCKET, OFFSET, OfficialClient
from tests.support.fluss.checkpoints import wait_for_checkpoint
from tests.support.fluss.real_fluss import RealFluss, RealFlussNotStarted
from tests.support.fluss.table_creation import has_leaders
from tests.support.harness.needs import needs_pyfluss

pytestmark = pytest.mark.real_fluss
ROOT = Path(__file__).resolve().parents[3]
ROWS = pa.table({"id": pa.array(range(100), pa.int64()), "name": [f"n{i}" for i in range(100)]})


@needs_pyfluss
def test_official_client_creates_appends_and_scans(real_fluss: RealFluss) -> None:
    client = OfficialClient(real_fluss.bootstrap)
    lake = {"table.datalake.enabled": "true"}
    path = created(
        client, real_fluss, "smoke.events", bucket_count=3, bucket_keys=["id"], properties=lake
    )
    _, scanned = client.run(
        [{"op": "append", "path": path, "rows": ROWS}, {"op": "scan", "path": path}]
    )
    assert scanned.drop_columns([BUCKET, OFFSET]).sort_by("id").equals(ROWS)
    assert set(scanned[BUCKET].to_pylist()) == {0, 1, 2}
    assert (real_fluss.warehouse / path.replace(".", "/") / "metadata").is_dir()


def created(client: OfficialClient, fluss: RealFluss, path: str, **options: Any) -> str:
    """Created by the official client, under the first name that Fluss 0.9.1 does not miss."""
    for name in (path, f"{path}_2", f"{path}_3"):
        client.create_table(name, ROWS.schema, **options)
        with connect(fluss.bootstrap) as ours:
            if has_leaders(ours, TablePath.parse(name), 10):
                return name
    raise AssertionError(f"{path} was not noticed, three times created")


@pytest.mark.slow
@needs_pyfluss
def test_killed_servers_come_back_with_their_data(tmp_path: Path) -> None:
    with RealFluss(tmp_path / "fluss", lake=False) as fluss:
        client = OfficialClient(fluss.bootstrap)
        kept = created(client, fluss, "db.kept", bucket_count=2)
        client.append(kept, ROWS)
        with connect(fluss.bootstrap) as ours:
            wait_for_checkpoint(fluss, ours, TablePath.parse(kept))
        address = fluss.bootstrap
        fluss.kill_tablet()
        fluss.start_tablet()
        assert client.scan(kept).num_rows == 100
        fluss.kill_coordinator()
        fluss.start_coordinator()
        created(client, fluss, "db.more")
        fluss.stop()
        assert fluss.start() == address
        assert client.scan(kept).num_rows == 100


@pytest.mark.slow
def test_servers_die_with_the_process_that_started_them(tmp_path: Path) -> None:
    home = tmp_path / "fluss"
    [command, *_] = claimed("docs/apache-fluss.md", __file__)
    program, *arguments = shlex.split(command.text, comments=True)
    assert program == ".venv/bin/python"
    process = subprocess.Popen(
        [
            sys.executable,
            *(str(home) if each == "./fluss" else each for each in arguments),
            "--no-lake",
        ],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("fluss://127.0.0.1:")
    assert len(_servers_of(home)) == 3
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    process.stdout.close()
    deadline = time.monotonic() + 120
    while _servers_of(home) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert _servers_of(home) == []


@pytest.mark.slow
def test_server_that_cannot_start_tells_the_end_of_its_log(tmp_path: Path) -> None:
    fluss = RealFluss(tmp_path / "fluss", lake=False, conf={"default.replication.factor": "many"})
    with pytest.raises(RealFlussNotStarted, match=r"(?s)coordinator.log.*many"):
        fluss.start()
    assert _servers_of(tmp_path) == []


def _servers_of(folder: Path) -> list[int]:
    """Processes of Java that name the folder in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue
        if b"-Dlog4j2.configurationFile=" + os.fsencode(folder) in words:
            found.append(int(path.parent.name))
    return found
