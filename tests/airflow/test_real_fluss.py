"""The main job on a real Fluss: the DAG over ``fluss://`` with real spark-submit."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluice.client import Client, connect
from sluice.config import ClientConfig
from sluice.formats.types import schema_from_arrow
from sluice.model import Reason, TableDescriptor, TablePath
from sluice.testing.real_fluss import RealFluss
from sluice.testing.table_creation import create_table
from tests.airflow.place import AirflowProcess, wait_until
from tests.airflow.test_login import holding
from tests.airflow.test_spark_run import CONF, SPARK, lake_at
from tests.support.guarded_fluss import PASSWORD, USERNAME, GuardedFluss

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.spark,
    pytest.mark.real_fluss,
    pytest.mark.slow,
]

DUE_S = 120


def connection(fluss: RealFluss, work: Path, address: str = "", **login: str) -> dict[str, str]:
    host, _, port = (address or fluss.bootstrap).removeprefix("fluss://").rpartition(":")
    extra = {
        "transport": "fluss",
        "work_uri": work.as_uri(),
        "datalake": lake_at(fluss.warehouse),
    }
    content = {"conn_type": "fluss", "host": host, "port": int(port), "extra": extra, **login}
    return {"AIRFLOW_CONN_FLUSS_DEFAULT": json.dumps(content)}


def is_due(client: Client, path: TablePath) -> bool:
    """A real Fluss tells no states: what it hands out was due, and goes back."""
    claim = client.tiering.claim([path])
    if claim is not None:
        client.tiering.release(claim, Reason.from_text("only looked whether it is due"))
    return claim is not None


def test_runs_bring_a_table_to_the_lake(
    airflow: AirflowProcess,
    real_fluss: RealFluss,
    tmp_path: Path,
    lake_sql: Callable[[Path, str], list[Any]],
) -> None:
    database = f"dag_{uuid.uuid4().hex[:8]}"
    path, other = TablePath(database, "events"), TablePath(database, "other")
    rows = pa.table({"id": pa.array(range(1000), pa.int64())})
    properties = {"table.datalake.enabled": "true", "table.datalake.freshness": "1s"}
    descriptor = TableDescriptor(
        schema_from_arrow(rows.schema), bucket_count=2, properties=properties
    )
    with connect(real_fluss.bootstrap) as client:
        client.admin.create_database(database)
        for each in (other, path):
            create_table(client, each, descriptor, real_fluss.warehouse)
        total = 0
        for _ in range(2):
            with client.log_writer(path) as writer:
                writer.write(rows)
            total += 1000
            wait_until(lambda: is_due(client, path), DUE_S, f"{path} to be due")
            run = airflow.ask(
                "run",
                conf={"tables": [str(path)], "spark_conf": CONF},
                environment={**connection(real_fluss, tmp_path / "work"), **SPARK},
            )
            assert run["state"] == "success", airflow.log.read_text()[-6000:]
            result = run["xcoms"]["per_table.tier[0]"]["return_value"]
            assert (result["outcome"], result["rows"]) == ("committed", 1000)
            snapshot = client.admin.lake_snapshot(path)
            assert snapshot is not None
            assert snapshot.snapshot_id == result["lake_snapshot_id"]
            assert sum(snapshot.offsets.values()) == total
            [row] = lake_sql(
                real_fluss.warehouse,
                f"SELECT count(*), count(DISTINCT __bucket, __offset) FROM lake.{path}",
            )
            assert tuple(row) == (total, total)
        wait_until(
            lambda: is_due(client, other), DUE_S, f"{other}, which nobody asked for, to be due"
        )
        client.admin.drop_database(database, cascade=True)


def test_a_login_reaches_the_driver_and_is_written_nowhere(
    airflow: AirflowProcess, tmp_path: Path, lake_sql: Callable[[Path, str], list[Any]]
) -> None:
    """Real spark-submit, with Spark's own event log: what its UI shows is in there."""
    work, events = tmp_path / "work", tmp_path / "events"
    events.mkdir()
    path = TablePath("guarded", "events")
    rows = pa.table({"id": pa.array(range(1000), pa.int64())})
    properties = {"table.datalake.enabled": "true", "table.datalake.freshness": "1s"}
    with GuardedFluss(tmp_path / "fluss") as fluss:
        login = ClientConfig(fluss.guarded, username=USERNAME, password=PASSWORD)
        with connect(login) as client:
            client.admin.create_database(path.database)
            described = TableDescriptor(
                schema_from_arrow(rows.schema), bucket_count=2, properties=properties
            )
            create_table(client, path, described, fluss.warehouse)
            with client.log_writer(path) as writer:
                writer.write(rows)
            wait_until(lambda: is_due(client, path), DUE_S, f"{path} to be due")
        logged = {"spark.eventLog.enabled": True, "spark.eventLog.dir": events.as_uri()}
        there = connection(fluss, work, fluss.guarded, login=USERNAME, password=PASSWORD)
        run = airflow.ask(
            "run",
            conf={"tables": [str(path)], "spark_conf": {**CONF, **logged}},
            environment={**there, **SPARK},
        )
        assert run["state"] == "success", airflow.log.read_text()[-6000:]
        result = run["xcoms"]["per_table.tier[0]"]["return_value"]
        assert (result["outcome"], result["rows"]) == ("committed", 1000)
        [row] = lake_sql(fluss.warehouse, f"SELECT count(*), sum(id) FROM lake.{path}")
        assert tuple(row) == (1000, 499_500)
        home = Path(airflow.environment["AIRFLOW_HOME"])
        assert [file for file in events.rglob("*") if file.is_file()], "no event log"
        assert holding(PASSWORD, work, events, home, fluss.warehouse) == []
        assert holding(str(path), events, work) != [], "what is there is found"
