"""The page's leases on a real Fluss, which lists none: what a run holds is in its plan."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from click.testing import CliRunner
from fastapi.testclient import TestClient

from sluice.cli.main import cli
from sluice.client import Client, connect
from sluice.client.kv.snapshot_files import snapshot_files
from sluice.client.leases.ids import lease_id
from sluice.config import ClientConfig
from sluice.model import BucketSnapshot, Claim, Reason, TablePath
from sluice.page.local.place import LocalPlace
from sluice.page.local.serving import local_app
from tests.real_fluss.place import DUE_S, PATIENCE_MS, make_status_tables
from tests.real_fluss.rounds.test_tier_keyed import wait_for_snapshots
from tests.support.fluss.real_fluss import RealFluss
from tests.support.fluss.table_creation import create_table
from tests.support.programs.processes import wait_for
from tests.support.statuses.planned_rounds import plan_round
from tests.support.tables.keyed_stock import Stock, stock_table

pytestmark = [pytest.mark.real_fluss, pytest.mark.slow]

OF_RUN = lease_id("west", "lake", "manual__1")


@pytest.fixture
def client(real_fluss: RealFluss) -> Iterator[Client]:
    config = ClientConfig(real_fluss.bootstrap, tiering_status_timeout_ms=PATIENCE_MS)
    with connect(config) as client:
        make_status_tables(client)
        yield client


@pytest.fixture
def stock(real_fluss: RealFluss, client: Client) -> Iterator[Stock]:
    path = TablePath(f"db_{uuid.uuid4().hex[:10]}", "stock")
    client.admin.create_database(path.database)
    table = stock_table({"table.datalake.freshness": "1s"})
    create_table(client, path, table, real_fluss.warehouse)
    made = Stock(client, path, lambda _query: [])
    made.put({key: key for key in range(100)})
    wait_for_snapshots(made)
    yield made
    client.admin.drop_database(path.database, cascade=True)


def stored_bytes(client: Client, snapshot: BucketSnapshot) -> int:
    """Of its files on the disk of the cluster."""
    bucket, number = snapshot.bucket, snapshot.snapshot_id
    found = snapshot_files(client._connection, "it", bucket, number)
    return sum(Path(unquote(urlsplit(file.uri).path)).stat().st_size for file in found.files)


def test_a_lease_that_a_run_took_is_told_by_its_plan(
    client: Client, stock: Stock, tmp_path: Path
) -> None:
    claims: list[Claim] = []

    def is_claimed() -> bool:
        claims.extend(filter(None, [client.tiering.claim([stock.path], OF_RUN)]))
        return bool(claims)

    wait_for("Fluss to hand the table out", is_claimed, 2 * DUE_S)
    plan = plan_round(client, tmp_path, OF_RUN, claims[0])
    held = sum(stored_bytes(client, snapshot) for snapshot in plan.snapshots)
    place = LocalPlace(client, work_uri=str(tmp_path))
    page = TestClient(local_app(place))
    place.reader.start()

    def seen() -> Any:
        place.reader.read_soon()
        return page.get("/api/v1/leases").json()["leases"]

    try:
        wait_for("the page to see the lease", seen, 2 * DUE_S)
        answer = page.get("/api/v1/leases").json()
        assert answer["is_complete"] is False
        assert "lists no leases" in answer["note"]
        [lease] = [one for one in answer["leases"] if one["lease_id"] == OF_RUN]
        assert (lease["buckets"], lease["held_bytes"]) == (len(plan.snapshots), held)
        assert lease["holder"] == "a run of the Airflow west"
        assert lease["created_ms"] is not None
        assert lease["expires_ms"] is None
        [table] = lease["tables"]
        assert (table["path"], table["held_bytes"]) == (str(stock.path), held)
        of_table = f"/api/v1/tables/{stock.path.database}/stock/leases"
        assert [one["lease_id"] for one in page.get(of_table).json()["leases"]] == [OF_RUN]

        command = ["leases", "--format", "json", "--work-uri", str(tmp_path)]
        ran = CliRunner().invoke(cli, [*command, "--bootstrap", client.config.bootstrap])
        told = {one["lease_id"]: one for one in json.loads(ran.stdout)}[OF_RUN]
        assert (told["buckets"], told["held_bytes"]) == (len(plan.snapshots), held)

        dropped = page.post("/api/v1/leases/drop", json={"lease_id": OF_RUN})
        assert dropped.status_code == 200
        assert "is dropped, if it existed" in dropped.json()["message"]
        assert f"A round of {stock.path} is in progress." in dropped.json()["message"]
        left = page.get("/api/v1/leases").json()["leases"]
        assert OF_RUN not in [one["lease_id"] for one in left]
        dropped = page.post("/api/v1/leases/drop", json={"lease_id": OF_RUN})
        assert "was dropped before" in dropped.json()["message"]
    finally:
        place.reader.stop()
        client.tiering.release(claims[0], Reason.from_text("ended"))
