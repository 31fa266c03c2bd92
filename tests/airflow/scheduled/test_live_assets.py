"""Several DAGs in one real Airflow: two clusters, and a DAG that an asset starts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sluice.client import connect
from sluice.config import ServerConfig
from sluice.server.cluster import EmbeddedCluster
from tests.airflow.live import Live, running_live
from tests.airflow.place import LONG_MS, ROOT, Place
from tests.docs.blocks import claimed_blocks

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(1200)]
[AFTER_ORDERS] = (block.content for block in claimed_blocks("docs/airflow-assets.md", __file__))
OWN_DAGS = str(Path(__file__).with_name("test_own_dags.py"))
SHOP, STOCK, *_ = (b.content for b in claimed_blocks("docs/airflow-dags.md", OWN_DAGS))
DEFAULT = "AIRFLOW_CONN_FLUSS_DEFAULT"
NEW = "new in the lake: "


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Another cluster, with a work folder of its own."""
    folder = tmp_path_factory.mktemp("stock")
    config = ServerConfig(
        data_dir=str(folder / "data"),
        listen="grpc://127.0.0.1:0",
        tiering_backoff_ms=0,
        tiering_timeout_ms=LONG_MS,
    )
    with EmbeddedCluster(config) as cluster, connect(cluster.address) as client:
        client.admin.create_database("shop")
        no_airflow: Any = None
        yield Place(no_airflow, client, cluster.address, folder / "work")


@pytest.fixture(scope="module")
def live(
    stock: Place, airflow_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Live]:
    dags = tmp_path_factory.mktemp("dags")
    shutil.copy(ROOT / "dags/sluice_lake_tiering.py", dags)
    for name, content in (("shop", SHOP), ("stock", STOCK), ("after_orders", AFTER_ORDERS)):
        (dags / f"{name}.py").write_text(content)
    with running_live(
        tmp_path_factory.mktemp("live"),
        airflow_environment,
        connections=lambda place: {"AIRFLOW_CONN_FLUSS_SHOP": place.connection()[DEFAULT]},
        AIRFLOW__CORE__DAGS_FOLDER=str(dags),
        AIRFLOW_CONN_FLUSS_STOCK=stock.connection()[DEFAULT],
    ) as running:
        running.airflow._send("POST", "/api/v2/pools", {"name": "stock", "slots": 1})
        yield running


def runs(live: Live, dag_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = live.airflow._get(f"/api/v2/dags/{dag_id}/dagRuns")["dag_runs"]
    return found


def ended(live: Live, dag_id: str) -> list[str]:
    """The states of the runs of a DAG, after they have ended."""

    def have_ended() -> bool:
        states = [run["state"] for run in runs(live, dag_id)]
        return bool(states) and set(states) <= {"success", "failed"}

    live.wait(have_ended, f"the runs of {dag_id} to end")
    return [run["state"] for run in runs(live, dag_id)]


@pytest.mark.long
def test_two_dags_tier_two_clusters(live: Live, stock: Place) -> None:
    in_shop, in_stock = live.place.table("ok_shop"), stock.table("ok_stock")
    live.place.wait(in_shop)
    stock.wait(in_stock)
    for dag_id in ("tier_shop", "tier_stock"):
        body = {"logical_date": None, "conf": {"tables": ["shop.*"], "force": True}}
        live.wait(lambda dag_id=dag_id: has_dag(live, dag_id), dag_id)  # type: ignore[misc]
        live.airflow._send("POST", f"/api/v2/dags/{dag_id}/dagRuns", body)
    assert set(ended(live, "tier_shop")) == {"success"}
    assert set(ended(live, "tier_stock")) == {"success"}
    for place, table in ((live.place, in_shop), (stock, in_stock)):
        assert place.client.admin.lake_snapshot(table) is not None
        place.nothing_is_held()
    assert live.place.client.leases.all() == stock.client.leases.all() == []


def test_an_asset_starts_a_dag_downstream(live: Live) -> None:
    orders, other = live.place.table("orders"), live.place.table("ok_other")
    live.place.wait(orders, other)
    live.wait(lambda: has_dag(live, "after_orders"), "after_orders")
    assert live.ended(live.trigger("shop.ok_other")) == "success"
    assert live.ended(live.trigger("shop.orders")) == "success"
    assert ended(live, "after_orders") == ["success"], "once: not for the other table"
    [run] = runs(live, "after_orders")
    assert run["run_type"] == "asset_triggered"
    said = live.logs("say_what_is_new")
    assert NEW in said
    [line] = [line for line in said.splitlines() if NEW in line]
    for part in ("'table': 'shop.orders'", "'lake_snapshot_id': '4711'", "'rows': 3"):
        assert part in line
    events = live.airflow._get("/api/v2/assets/events?limit=100")["asset_events"]
    extras = [event["extra"]["table"] for event in events]
    assert {"shop.orders", "shop.ok_other"} <= set(extras)


def has_dag(live: Live, dag_id: str) -> bool:
    dags = live.airflow._get("/api/v2/dags")["dags"]
    return dag_id in [dag["dag_id"] for dag in dags]
