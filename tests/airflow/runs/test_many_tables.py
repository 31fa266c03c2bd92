"""Five hundred small tables in one run of the DAG."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sluice.model import TablePath
from tests.airflow.place import Place, claimed_in
from tests.airflow.runs.test_pack_runs import commands
from tests.airflow.runs.test_spark_run import CONF, SPARK, lake_at

pytestmark = [pytest.mark.airflow, pytest.mark.long, pytest.mark.timeout(1800)]
TABLES = 500


def create(place: Place, *more: str) -> list[TablePath]:
    """So many tables of one row each, which are due; the last ones have these names."""
    names = [f"ok_{n:03}" for n in range(TABLES - len(more))]
    paths = [place.table(name, rows=1) for name in (*names, *more)]
    place.wait(*paths)
    return paths


def became(run: dict[str, Any]) -> dict[str, str]:
    """What became of each table, as drop_lease says."""
    tables = run["xcoms"]["drop_lease"]["account"]["tables"]
    return {one["table"]: one["became"] for one in tables}


def nothing_is_held(place: Place, *failed: TablePath) -> None:
    """No claim and no lease; only these tables count a failure."""
    statuses = place.client.statuses.list()
    assert {one.path: one.status for one in statuses if one.status != "Scheduled"} == dict.fromkeys(
        failed, "Pending"
    )
    assert [one.path for one in statuses if one.failures] == [*failed]
    place.nothing_is_held()


@pytest.mark.parametrize(("slots", "applications"), [(8, 5), (3, 3)])
def test_five_hundred_tables(place: Place, slots: int, applications: int) -> None:
    """A hundred in each application, or more if there would be too many for the pool."""
    *paths, broken = create(place, "broken")
    run = place.run({"tables": ["shop.*"]}, AIRFLOW__SLUICE__POOL_SLOTS=str(slots))
    assert len(claimed_in(run)) == TABLES
    packs = commands(place)
    assert len(packs) == applications
    assert max(map(len, packs)) - min(map(len, packs)) <= 1
    assert sum(map(len, packs)) == TABLES, "each table once"
    assert run["state"] == "failed", "one table is broken"
    assert became(run) == {**dict.fromkeys(map(str, paths), "tiered"), str(broken): "failed"}
    nothing_is_held(place, broken)


@pytest.mark.spark
def test_five_hundred_tables_reach_iceberg(
    place: Place, tmp_path: Path, lake_sql: Callable[[Path, str], list[Any]]
) -> None:
    paths = create(place)
    lake = tmp_path / "lake"
    environment = {**place.connection(datalake=lake_at(lake)), **SPARK}
    environment["AIRFLOW__SLUICE__POOL_SLOTS"] = "2"
    run = place.run({"tables": ["shop.*"], "spark_conf": CONF}, **environment)
    assert run["state"] == "success", place.airflow.log.read_text()[-6000:]
    packs = run["xcoms"]["acquire_lease"]["return_value"]
    assert Counter(len(pack["tables"]) for pack in packs) == {TABLES // 2: 2}
    assert became(run) == dict.fromkeys(map(str, paths), "tiered")
    snapshots = list(lake.glob("shop/*/metadata/snap-*.avro"))
    assert len(snapshots) == TABLES, "one commit for each table"
    for path in paths[::100]:
        [row] = lake_sql(lake, f"SELECT count(*), max(id) FROM lake.{path}")
        assert tuple(row) == (1, 0), path
    nothing_is_held(place)
