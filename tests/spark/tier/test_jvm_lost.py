"""What `sluice tier` prints when its JVM dies, for instance because memory is short."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

from sluice.model import TablePath
from sluice.model import types as t
from tests.spark.conftest import JARS, Site
from tests.support.programs.processes import SLUICE, environment, wait_for

pytestmark = pytest.mark.spark
PATH = TablePath("shop", "orders")


def test_a_jvm_that_dies_is_one_error_without_tracebacks(site: Site) -> None:
    site.create(PATH, {"id": t.BIGINT})
    site.append(PATH, pa.table({"id": pa.array([1], pa.int64())}))
    env = {
        "SLUICE_CLIENT_BOOTSTRAP": site.config.client.bootstrap,
        "SLUICE_TIERING_JARS": JARS,
        "SLUICE_FAILPOINTS": "round.lake_commit.ready=stop",
    }
    words = [SLUICE, "tier", str(PATH), "--now", "--warehouse", str(site.warehouse)]
    with subprocess.Popen(
        words, env=environment(env), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        stat = Path(f"/proc/{process.pid}/stat")
        wait_for("the commit", lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for child in children:
            assert "java" in Path(f"/proc/{child}/cmdline").read_text()
            os.kill(int(child), signal.SIGKILL)
        assert len(children) == 1
        process.send_signal(signal.SIGCONT)
        out, said = process.communicate(timeout=120)
    assert (process.returncode, out) == (1, "")
    last = said.splitlines()[-1]
    assert last.startswith("sluice: LakeCommitOutcomeUnknown: commit to lake table shop.orders: ")
    assert "Traceback" not in said
    assert len(said.splitlines()) <= 2, said
