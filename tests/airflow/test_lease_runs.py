"""Whole runs of the DAG over tables with a primary key: what is leased, and until when."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.client import connect
from sluice.config import ServerConfig
from sluice.model import TablePath
from sluice.server.cluster import EmbeddedCluster
from tests.airflow.place import AirflowProcess, Place
from tests.unit.server.kv_support import KvCaller
from tests.unit.server.support import Caller

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

OPTIONS = {"table.datalake.enabled": "true", "table.datalake.freshness": "1 s"}


@pytest.fixture
def keyed(airflow: AirflowProcess, tmp_path: Path) -> Iterator[Place]:
    """Two tables with a primary key and a snapshot: one tiered at the second try, one never."""
    config = ServerConfig(
        data_dir=str(tmp_path / "data"), listen="grpc://127.0.0.1:0", kv_snapshot_interval_ms=0
    )
    with EmbeddedCluster(config) as cluster, connect(cluster.address) as client:
        client.admin.create_database("shop")
        caller = Caller(cluster.address)
        for name in ("flaky_keyed", "broken_keyed"):
            kv = KvCaller(caller, TablePath("shop", name), properties=OPTIONS)
            kv.put((1, "text", 1))
            cluster.take_kv_snapshots(kv.path)
        caller.transport.close()
        yield Place(airflow, client, cluster.address, tmp_path / "work")


def test_leased_through_every_try_released_by_table_dropped_at_the_end(keyed: Place) -> None:
    keyed.wait(TablePath("shop", "flaky_keyed"), TablePath("shop", "broken_keyed"))
    run = keyed.run()
    assert run["state"] == "failed"
    entries = run["xcoms"]["acquire_lease"]["return_value"]
    assert [entry["snapshots"] for entry in entries] == [1, 1]
    job = run["xcoms"]["open_job"]["return_value"]
    assert {entry["lease_id"] for entry in entries} == {job}
    seen = {
        index: sorted(
            json.loads(path.read_text())[job]
            for path in keyed.work.glob(f"*/{entry['table_id']}-*/leased-*")
        )
        for index, entry in enumerate(entries)
    }
    flaky = [entry["table"] for entry in entries].index("shop.flaky_keyed")
    assert len(seen[flaky]) == 2, "both tries"
    assert len(seen[1 - flaky]) == 1
    assert min(seen[flaky] + seen[1 - flaky]) >= 1, "its own snapshot at least"
    assert max(seen[flaky] + seen[1 - flaky]) == 2
    assert keyed.client.leases.all() == []
