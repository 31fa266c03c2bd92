"""Whole runs of the DAG over tables with a primary key: what is leased, and until when."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sluice.client import connect
from sluice.config import ServerConfig
from sluice.model import TablePath
from sluice.server.cluster import EmbeddedCluster
from tests.airflow.place import AirflowProcess, Place, claimed_in, failures_of
from tests.unit.server.kv_support import KvCaller
from tests.unit.server.support import Caller

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

OPTIONS = {"table.datalake.enabled": "true", "table.datalake.freshness": "1 s"}


@pytest.fixture
def keyed(airflow: AirflowProcess, tmp_path: Path) -> Iterator[Callable[..., Place]]:
    """Makes tables with a primary key and a snapshot each, and waits until they are due."""
    config = ServerConfig(
        data_dir=str(tmp_path / "data"), listen="grpc://127.0.0.1:0", kv_snapshot_interval_ms=0
    )
    with EmbeddedCluster(config) as cluster, connect(cluster.address) as client:
        client.admin.create_database("shop")
        place = Place(airflow, client, cluster.address, tmp_path / "work")

        def make(*names: str) -> Place:
            caller = Caller(cluster.address)
            paths = [TablePath("shop", name) for name in names]
            for path in paths:
                kv = KvCaller(caller, path, properties=OPTIONS)
                kv.put((1, "text", 1))
                cluster.take_kv_snapshots(path)
            caller.transport.close()
            place.wait(*paths)
            return place

        yield make


def test_leased_through_every_try_released_by_table_dropped_at_the_end(
    keyed: Callable[..., Place],
) -> None:
    """One table is tiered at the second try, one never."""
    place = keyed("flaky_keyed", "broken_keyed")
    run = place.run()
    assert run["state"] == "failed"
    entries = claimed_in(run)
    assert [entry["snapshots"] for entry in entries] == [1, 1]
    job = run["xcoms"]["open_job"]["return_value"]
    assert {entry["lease_id"] for entry in entries} == {job}
    seen = {
        index: sorted(
            json.loads(path.read_text())[job]
            for path in place.work.glob(f"*/{entry['table_id']}-*/leased-*")
        )
        for index, entry in enumerate(entries)
    }
    flaky = [entry["table"] for entry in entries].index("shop.flaky_keyed")
    assert len(seen[flaky]) == 2, "both tries"
    assert len(seen[1 - flaky]) == 1
    assert min(seen[flaky] + seen[1 - flaky]) >= 1, "its own snapshot at least"
    assert max(seen[flaky] + seen[1 - flaky]) == 2
    assert place.client.leases.all() == []


@pytest.mark.long
def test_a_lease_that_somebody_drops_ends_the_driver_with_that_reason(
    keyed: Callable[..., Place],
) -> None:
    place = keyed("busy_keyed")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(place.run)
        place.started(running)
        [lease] = place.client.leases.all()
        place.client.leases.drop(lease.lease_id)
        run = running.result(500)
    assert run["state"] == "failed"
    assert run["tries"]["per_application.tier"] == 1, (
        "its snapshots may be gone: no try can heal that"
    )
    [failure] = failures_of(run).values()
    assert (failure["kind"], failure["retryable"]) == ("LeaseLost", False)
    error = place.status(TablePath("shop", "busy_keyed")).last_error
    assert error is not None
    assert error.startswith(f"LeaseLost: lease {lease.lease_id} is lost")
