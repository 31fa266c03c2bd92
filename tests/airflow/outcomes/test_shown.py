"""What Airflow shows of a run's tasks: labels, rendered fields, links, asset events."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

import pytest

from sluice.errors import ConfigurationError
from sluice.rounds.records.packs import SparkApplication
from sluice_airflow.assets import check_uri, has_landed, lake_table, lake_tables
from sluice_airflow.claims.packs import LABEL_MAX
from sluice_airflow.operators.settle import label_after
from sluice_airflow.outcomes.links import LinkTargets
from sluice_airflow.outcomes.verdict import Verdict
from tests.airflow.place import Place

pytestmark = pytest.mark.airflow
LINKS = {
    "AIRFLOW__SLUICE__SPARK_HISTORY_URL": "https://spark.example:18080/",
    "AIRFLOW__SLUICE__LAKE_TABLE_URL": "https://lake.example/{database}/{table}?at={snapshot_id}",
    "AIRFLOW__SLUICE__HEALTH_URL": "https://grafana.example/d/sluice?var-table={database}.{table}",
}


@pytest.fixture
def run(place: Place) -> dict[str, Any]:
    """A run of a table that is tiered, and one of each kind that is not, one application each."""
    place.wait(*(place.table(name) for name in ("ok", "broken", "killed")))
    return place.run(
        {}, AIRFLOW__SLUICE__TABLES_PER_APPLICATION="1", AIRFLOW__SLUICE__TIER_RETRIES="0", **LINKS
    )


def test_what_is_shown_of_a_run(run: dict[str, Any]) -> None:
    tables = ["shop.broken", "shop.killed", "shop.ok"]
    labels = run["labels"]
    tiers, settles = (
        [labels[f"per_application.{task}[{n}]"] for n in range(3)] for task in ("tier", "settle")
    )
    assert sorted(tiers) == tables, "failed and killed ones too"
    assert settles == [t if t == "shop.ok" else f"{t} (failed)" for t in tiers]
    for index, table in enumerate(tiers):
        shown = run["rendered"][f"per_application.tier[{index}]"]
        assert shown["tables"] == table
        assert shown["name"] == f"sluice {table} epoch 1"
        assert shown["conf"]["spark.scheduler.mode"] == "FAIR"
        assert shown["conf"]["spark.sluice.datalake.iceberg.type"] == "hadoop"
        assert run["rendered"][f"per_application.settle[{index}]"]["tables"] == table
    assert run["rendered"]["acquire_lease"]["tables"] in (["*"], "['*']")

    index = tiers.index("shop.ok")
    links = run["xcoms"][f"per_application.tier[{index}]"]
    assert links["_link_LakeTableLink"] == "https://lake.example/shop/ok?at=4711"
    health = "https://grafana.example/d/sluice?var-table=shop.ok"
    assert links["_link_HealthLink"] == health
    history = "https://spark.example:18080/history/app-of-a-test/jobs/"
    assert links["_link_SparkApplicationLink"] == history
    failed = run["xcoms"][f"per_application.tier[{tiers.index('shop.broken')}]"]
    assert failed["_link_LakeTableLink"] == ""
    assert failed["_link_HealthLink"].endswith("shop.broken")

    [event] = run["events"]  # of the table that was tiered
    assert event == {
        "uri": "sluice://fluss_default/shop/ok",
        "name": "fluss_default/shop.ok",
        "extra": {
            **{k: v for k, v in event["extra"].items() if k == "from_rest_api"},
            "table": "shop.ok",
            "lake_snapshot_id": "4711",
            "rows": 3,
            "offsets_sum": 3000,  # driver.py commits many buckets
            "tiering_epoch": 1,
        },
    }


def test_rounds_that_change_the_lake() -> None:
    committed = Verdict("a.b", "finished", "", "committed", 0, 5)
    assert has_landed(committed), "deletes alone are a change too"
    assert has_landed(Verdict("a.b", "finished", "", "already_landed", 0, 5))
    assert has_landed(Verdict("a.b", "failed", "one bucket", "", 7, 5))
    assert has_landed(Verdict("a.b", "finished", "", "nothing_new", 7, 5)), "an earlier round did"
    assert not has_landed(Verdict("a.b", "finished", "", "nothing_new", 0, 5))
    assert not has_landed(Verdict("a.b", "nothing", "", "claim_lost", 0, 5))
    assert not has_landed(Verdict("a.b", "failed", "no bucket"))


def test_the_names_of_assets() -> None:
    asset = lake_table("shop.orders", "fluss_shop")
    assert (asset.name, asset.uri) == ("fluss_shop/shop.orders", "sluice://fluss_shop/shop/orders")
    assert lake_tables("fluss_shop").name == "fluss_shop/*"
    for uri in ("sluice://c/orders", "sluice:///shop/orders", "sluice://c/shop/orders/x"):
        with pytest.raises(ValueError, match="expected sluice://CONNECTION_ID/DATABASE/TABLE"):
            check_uri(urlsplit(uri))
    with pytest.raises(ConfigurationError, match=r"lake_table\('orders'\): "):
        lake_table("orders")


def test_the_link_of_a_running_application() -> None:
    targets = LinkTargets("", "", "")
    targets.running(SparkApplication("app-1", "http://driver:4040"))
    assert targets.spark == "http://driver:4040"
    targets.ended([], [])
    assert targets.spark == "", "its UI has ended with it"
    targets = LinkTargets("https://history", "", "")
    targets.running(SparkApplication("app-1"))
    assert targets.spark == "https://history/history/app-1/jobs/"
    assert json.dumps([targets.lake_table, targets.health]) == '["", ""]'


def test_the_label_of_a_task_that_reports_failures() -> None:
    assert label_after("a.b, a.c", 0, 2) == "a.b, a.c"
    assert label_after("a.b", 1, 1) == "a.b (failed)"
    assert label_after("a.b, a.c and 9 more", 3, 11) == "a.b, a.c and 9 more (3 failed)"
    assert len(label_after("a" * LABEL_MAX, 3, 11)) == LABEL_MAX
