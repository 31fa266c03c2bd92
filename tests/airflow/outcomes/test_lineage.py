"""Runs under Airflow's OpenLineage provider, which writes its events to a file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sluice.model import Column, DataType, TypeRoot
from sluice.model.types import decimal
from tests.airflow.place import HERE, AirflowProcess, Place, airflow_home, failures_of, results_of
from tests.docs.blocks import claimed_blocks

pytestmark = pytest.mark.airflow
TIER = "sluice_lake_tiering.per_application.tier"
WITHOUT_PROVIDER = """
import sys

class Away:
    def find_spec(self, name, path=None, target=None):
        parts = name.removeprefix("airflow.providers.").split(".")
        # Airflow refuses to start if it cannot read what an installed provider offers.
        if parts[0] == "openlineage" and parts[1:] not in ([], ["get_provider_info"]):
            raise ModuleNotFoundError(f"openlineage is kept away: {name}")

sys.meta_path.insert(0, Away())
"""
"""A module that Python imports at its start, if it is on the path."""


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowProcess]:
    """An Airflow of this module's own: the provider looks for its transport once."""
    home = tmp_path_factory.mktemp("lineage")
    transport = {"type": "file", "log_file_path": str(home / "events.json"), "append": True}
    environment = {
        **airflow_home(home, HERE / "driver.py"),
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(transport),
        "AIRFLOW__OPENLINEAGE__NAMESPACE": "my-airflow",
    }
    process = AirflowProcess(home, environment)
    yield process
    process.close()


@pytest.fixture
def events(airflow: AirflowProcess) -> Path:
    """The file of events, empty."""
    file = Path(airflow.environment["AIRFLOW_HOME"]) / "events.json"
    file.unlink(missing_ok=True)
    return file


def events_of(file: Path) -> list[dict[str, Any]]:
    """The events of the tier task, in their order."""
    found = [json.loads(line) for line in file.read_text().splitlines()]
    return [event for event in found if event["job"]["name"] == TIER]


def tables_of(event: dict[str, Any], side: str) -> list[str]:
    """The tables among the inputs or outputs of an event."""
    return sorted(one["name"].rpartition("/")[2] for one in event[side])


def rows_of(event: dict[str, Any]) -> dict[str, int | None]:
    """How many rows each output says that it got; None: it says nothing."""
    return {
        one["name"].rpartition("/")[2]: one["outputFacets"]
        .get("outputStatistics", {})
        .get("rowCount")
        for one in event["outputs"]
    }


def test_a_table_that_was_tiered(place: Place, events: Path) -> None:
    path = place.table("orders")
    more = [
        Column("password", DataType(TypeRoot.STRING), -1),
        Column("price", decimal(8, 2), -1, "in euros"),
    ]
    place.client.admin.add_columns(path, more)
    place.wait(path)
    assert place.run()["state"] == "success"
    start, complete = events_of(events)
    assert (start["eventType"], start["inputs"], start["outputs"]) == ("START", [], [])
    assert complete["eventType"] == "COMPLETE"
    assert complete["job"]["namespace"] == "my-airflow"
    [source], [target] = complete["inputs"], complete["outputs"]
    named = {"namespace": place.address.replace("grpc", "fluss"), "name": "shop.orders"}
    assert {name: source[name] for name in named} == named
    assert (target["namespace"], target["name"]) == ("file", f"{place.lake}/shop/orders")
    facets = target["facets"]
    [symlink] = facets["symlinks"]["identifiers"]
    assert symlink == {"namespace": f"file:{place.lake}", "name": "shop.orders", "type": "TABLE"}
    snapshot = place.client.admin.lake_snapshot(path)
    assert snapshot is not None
    assert facets["version"]["datasetVersion"] == str(snapshot.snapshot_id)
    assert target["outputFacets"]["outputStatistics"]["rowCount"] == 3
    columns_are_told(source, target, named)
    [shown] = claimed_blocks("docs/airflow-lineage.md", __file__)
    assert shortened(complete, place) == json.loads(shown.content)


def shortened(event: dict[str, Any], place: Place) -> Any:
    """The event as the page shows it: some of its keys, and a cluster and a lake of its own."""
    text = json.dumps(
        {
            "eventType": event["eventType"],
            "job": {key: event["job"][key] for key in ("namespace", "name")},
            "inputs": [{key: one[key] for key in ("namespace", "name")} for one in event["inputs"]],
            "outputs": [
                {
                    **{key: one[key] for key in ("namespace", "name")},
                    "facets": {key: one["facets"][key] for key in ("symlinks", "version")},
                    "outputFacets": {
                        "outputStatistics": {
                            "rowCount": one["outputFacets"]["outputStatistics"]["rowCount"]
                        }
                    },
                }
                for one in event["outputs"]
            ],
        }
    )
    text = text.replace(place.address.removeprefix("grpc://"), "fluss.example:9123")
    return json.loads(text.replace(str(place.lake), "/srv/lake"), object_hook=without_origin)


def without_origin(facet: dict[str, Any]) -> dict[str, Any]:
    """Without the addresses of who made a facet, and of its schema."""
    return {name: value for name, value in facet.items() if not name.startswith("_")}


def columns_are_told(source: dict[str, Any], target: dict[str, Any], named: dict[str, str]) -> None:
    """A column whose name looks like a secret's is no exception."""
    fields = source["facets"]["schema"]["fields"]
    assert [(one["name"], one["type"], one.get("description")) for one in fields] == [
        ("id", "BIGINT", None),
        ("password", "STRING", None),
        ("price", "DECIMAL(8,2)", "in euros"),
    ]
    in_lake = target["facets"]["schema"]["fields"]
    assert {one["name"]: one["type"] for one in in_lake} == {
        "id": "long",
        "password": "string",
        "price": "decimal(8,2)",
    }
    origins = target["facets"]["columnLineage"]["fields"]
    assert sorted(origins) == ["id", "password", "price"]
    for name, origin in origins.items():
        [only] = origin["inputFields"]
        assert {key: only[key] for key in ("namespace", "name", "field")} == {
            **named,
            "field": name,
        }
        assert [one["subtype"] for one in only["transformations"]] == ["IDENTITY"]


@pytest.mark.slow
def test_a_pack_reports_what_each_try_has_tiered(place: Place, events: Path) -> None:
    """One table is tiered at once, one by the retry, one never."""
    paths = [place.table(name) for name in ("ok_1", "flaky", "broken")]
    place.wait(*paths)
    assert place.run()["state"] == "failed"
    found = events_of(events)
    assert [event["eventType"] for event in found] == ["START", "FAIL", "START", "FAIL"]
    first, second = found[1], found[3]
    assert tables_of(first, "inputs") == ["shop.ok_1"]
    assert rows_of(first) == {"ok_1": 3}
    assert tables_of(second, "inputs") == ["shop.flaky", "shop.ok_1"]
    assert rows_of(second) == {"ok_1": None, "flaky": 3}, "rows are counted once"
    for event, reason in ((first, "2 of 3 tables"), (second, "shop.broken: LakeNotWritable")):
        assert reason in event["run"]["facets"]["errorMessage"]["message"]


@pytest.mark.slow
def test_a_run_without_new_rows_reports_no_table(place: Place, events: Path) -> None:
    path = place.table("late")
    place.wait(path)
    assert place.run({"dry_run": True})["state"] == "success"
    names = [json.loads(line)["job"]["name"] for line in events.read_text().splitlines()]
    assert TIER not in names
    assert "sluice_lake_tiering.drop_lease" in names, "the provider reports the other tasks"


@pytest.mark.slow
def test_without_the_provider(place: Place, tmp_path: Path) -> None:
    """Neither it nor OpenLineage's client can be imported, and nothing misses them."""
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_PROVIDER)
    environment = {
        **airflow_home(tmp_path, HERE / "driver.py"),
        "AIRFLOW__SLUICE__TIER_RETRIES": "0",
    }
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), environment["PYTHONPATH"]])
    alone = AirflowProcess(tmp_path, environment)
    try:
        paths = [place.table(name) for name in ("ok_1", "broken")]
        place.wait(*paths)
        run = Place(alone, place.client, place.address, place.work).run()
    finally:
        alone.close()
    assert run["state"] == "failed"
    assert list(results_of(run)) == ["shop.ok_1"]
    assert list(failures_of(run)) == ["shop.broken"]
    log = alone.log.read_text()
    assert "openlineage is kept away" in log, "Airflow has looked for the plugin"
    assert "OpenLineage: " not in log, "this package has not"
