"""kill -9 of somebody who drops the lease of a run, before they note it beside the run's plans."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.client import Client, connect
from sluice.client.leases.ids import lease_id
from sluice.client.leases.round_leases import RoundLeases
from sluice.model import TablePath
from sluice.server.cluster import EmbeddedCluster
from tests.support.programs.processes import environment
from tests.support.statuses.planned_rounds import claim_and_plan
from tests.unit.server.kv_support import KvCaller
from tests.unit.server.support import Caller, config

RUN, PATH = lease_id("west", "lake", "1"), TablePath("shop", "a")
DROP = """
import sys
from sluice.client import connect
from sluice.client.leases.round_leases import RoundLeases

with connect(sys.argv[1]) as client:
    RoundLeases(sys.argv[2]).drop(client, sys.argv[3])
"""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    """Of a cluster where a run has planned a round of a table with a KV snapshot."""
    settings = config(tmp_path / "data", listen="grpc://127.0.0.1:0", kv_snapshot_interval_ms=0)
    with EmbeddedCluster(settings) as cluster, connect(cluster.address) as client:
        caller = Caller(cluster.address)
        table = KvCaller(caller, PATH, properties={"table.datalake.enabled": "true"})
        table.put((1, "text", 1))
        cluster.take_kv_snapshots(PATH)
        caller.transport.close()
        claim_and_plan(client, tmp_path / "work", RUN, PATH)
        yield client


def test_a_drop_that_is_killed_before_its_note_is_repeated(client: Client, tmp_path: Path) -> None:
    work = str(tmp_path / "work")

    def shown() -> list[str]:
        return [one.lease_id for one in RoundLeases(work).known(client).leases]

    assert shown() == [one.lease_id for one in client.leases.all()] == [RUN]
    arguments = [client.config.bootstrap, work, RUN]
    armed = environment({"SLUICE_FAILPOINTS": "leases.drop.before_note=kill"})
    killed = subprocess.run([sys.executable, "-c", DROP, *arguments], env=armed, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert client.leases.all() == []
    assert shown() == [RUN], "its round has not ended"
    told = RoundLeases(work).drop(client, RUN)
    assert told == f"lease {RUN} is dropped, if it existed: this cluster lists no leases"
    assert shown() == []
