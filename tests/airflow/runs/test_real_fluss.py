"""The main job on a real Fluss: the DAG over ``fluss://`` with real spark-submit."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluice.client import Client, connect
from sluice.config import ClientConfig
from sluice.formats.types.types import schema_from_arrow
from sluice.model import Reason, TableDescriptor, TablePath
from sluice.rounds.records.plan_file import claim_of
from sluice_airflow.acquire.acquire import acquire
from sluice_airflow.acquire.keeper import ClaimKeeper
from sluice_airflow.claims.claimed_again import newest_claim
from sluice_airflow.claims.claims import ClaimedTable
from sluice_airflow.config.connection import FlussConnection
from tests.airflow.page.test_login import holding
from tests.airflow.place import AirflowProcess, results_of, wait_until
from tests.airflow.runs.test_spark_run import CONF, SPARK, lake_at
from tests.support.fluss.guarded_fluss import PASSWORD, USERNAME, GuardedFluss
from tests.support.fluss.real_fluss import RealFluss
from tests.support.fluss.table_creation import create_table

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
            [result] = results_of(run).values()
            assert (result["outcome"], result["rows"]) == ("committed", 1000)
            snapshot = client.admin.lake_snapshot(path)
            assert snapshot is not None
            assert str(snapshot.snapshot_id) == result["lake_snapshot_id"]
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


def named_once(client: Client, fluss: RealFluss, name: str, batches: int) -> TablePath:
    """A table of a database of its own that is due tomorrow, with three rows in each batch."""
    path = TablePath(f"named_{uuid.uuid4().hex[:8]}", name)
    rows = pa.table({"id": pa.array(range(3), pa.int64())})
    properties = {"table.datalake.enabled": "true", "table.datalake.freshness": "1d"}
    client.admin.create_database(path.database)
    descriptor = TableDescriptor(
        schema_from_arrow(rows.schema), bucket_count=1, properties=properties
    )
    create_table(client, path, descriptor, fluss.warehouse)
    for _ in range(batches):
        with client.log_writer(path) as writer:
            writer.write(rows)
    return path


def test_a_named_table_is_tiered_up_to_its_end(
    airflow: AirflowProcess, real_fluss: RealFluss, tmp_path: Path
) -> None:
    """It is not due, and each round of this driver (driver.py) commits one row."""
    with connect(real_fluss.bootstrap) as client:
        path = named_once(client, real_fluss, "early", 1)
        run = airflow.ask(
            "run",
            conf={"tables": [str(path)]},
            environment=connection(real_fluss, tmp_path / "work"),
        )
        assert run["state"] == "success", airflow.log.read_text()[-6000:]
        snapshot = client.admin.lake_snapshot(path)
        assert snapshot is not None
        assert sum(snapshot.offsets.values()) == 3
        [result] = results_of(run).values()
        assert (result["rounds"], result["rows_before"], result["rows"]) == (3, 2, 1)
        assert result["tiering_epoch"] == 3
        account = run["xcoms"]["drop_lease"]["account"]
        assert account["summary"] == "1 table: 1 tiered (3 rows)"
        client.admin.drop_database(path.database, cascade=True)


@pytest.mark.long
def test_wait_reaches_the_end_by_rounds_of_real_spark(
    airflow: AirflowProcess,
    real_fluss: RealFluss,
    tmp_path: Path,
    lake_sql: Callable[[Path, str], list[Any]],
) -> None:
    """Each round ends after one batch, and the next one begins where it ended."""
    limit = {"spark.sluice.tiering.max_round_bytes": 1}
    with connect(real_fluss.bootstrap) as client:
        path = named_once(client, real_fluss, "events", 3)
        run = airflow.ask(
            "run",
            conf={"tables": [f"{path.database}.*"], "wait": True, "spark_conf": {**CONF, **limit}},
            environment={**connection(real_fluss, tmp_path / "work"), **SPARK},
        )
        assert run["state"] == "success", airflow.log.read_text()[-6000:]
        [result] = results_of(run).values()
        assert (result["rounds"], result["rows_before"] + result["rows"]) == (3, 9)
        [row] = lake_sql(
            real_fluss.warehouse,
            f"SELECT count(*), count(DISTINCT __bucket, __offset) FROM lake.{path}",
        )
        assert tuple(row) == (9, 9)
        client.admin.drop_database(path.database, cascade=True)


def lake_tables(client: Client, fluss: RealFluss, count: int) -> list[TablePath]:
    """Tables of a database of their own, which are soon due."""
    database = f"kept_{uuid.uuid4().hex[:8]}"
    client.admin.create_database(database)
    paths = [TablePath(database, f"t{number}") for number in range(count)]
    properties = {"table.datalake.enabled": "true", "table.datalake.freshness": "1s"}
    schema = schema_from_arrow(pa.schema([("id", pa.int64())]))
    descriptor = TableDescriptor(schema, bucket_count=1, properties=properties)
    for path in paths:
        create_table(client, path, descriptor, fluss.warehouse)
    return paths


def claim_all(
    client: Client, fluss: RealFluss, work_uri: str, job: str, most: int, pattern: str
) -> list[ClaimedTable]:
    """The claims of a run, once so many tables are due."""
    address = FlussConnection(fluss.bootstrap, work_uri=work_uri)
    found: list[ClaimedTable] = []

    def claims() -> bool:
        found[:] = acquire(client, address, job, [pattern], most)
        return len(found) == most

    wait_until(claims, DUE_S, f"{most} tables of {pattern} to be due")
    return found


def test_the_keeper_takes_a_lost_claim_again(real_fluss: RealFluss, tmp_path: Path) -> None:
    """The coordinator returns whichever table is next: the others are released."""
    work_uri, job = (tmp_path / "work").as_uri(), f"sluice-{uuid.uuid4()}"
    with connect(real_fluss.bootstrap) as client, connect(real_fluss.bootstrap) as another:
        mine, other = lake_tables(client, real_fluss, 2)
        [entry] = claim_all(client, real_fluss, work_uri, job, 1, str(mine))
        keeper = ClaimKeeper(client, work_uri, job)
        assert not keeper.beat()
        wait_until(lambda: is_due(another, other), DUE_S, f"{other} to be due")
        another.tiering._give_back(claim_of(entry), Reason.from_text("another client"))
        assert keeper.beat()
        wait_until(lambda: keeper.claim_again() == 1, DUE_S, f"{mine} to be claimed again")
        again = claim_of(newest_claim(entry))
        assert again.tiering_epoch > claim_of(entry).tiering_epoch
        assert client.tiering.still_claimed(again)
        assert [client.statuses.list(path)[0].failures for path in (mine, other)] == [0, 0]
        wait_until(lambda: is_due(another, other), DUE_S, f"{other} to be due again")
        client.admin.drop_database(mine.database, cascade=True)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_200_claims_of_two_runs_wait_for_ten_minutes(real_fluss: RealFluss, tmp_path: Path) -> None:
    """As in a full pool, or of a paused DAG. Fluss takes a worker for lost after two minutes."""
    work_uri, jobs = (tmp_path / "work").as_uri(), [f"sluice-{uuid.uuid4()}" for _ in range(2)]
    with connect(real_fluss.bootstrap) as client:
        paths = lake_tables(client, real_fluss, 200)
        keepers, claims = [], []
        for job in jobs:
            pattern = f"{paths[0].database}.*"
            entries = claim_all(client, real_fluss, work_uri, job, 100, pattern)
            claims += [claim_of(entry) for entry in entries]
            keepers.append(ClaimKeeper(client, work_uri, job))
            for keeper in keepers:
                keeper.beat()
        until = time.monotonic() + 600
        while time.monotonic() < until:
            for keeper in keepers:
                assert not keeper.beat(), "a claim was lost"
            time.sleep(20)
        assert set(client.tiering.heartbeat(claims).values()) == {None}
        assert len(claims) == 200
        client.admin.drop_database(paths[0].database, cascade=True)


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
        [result] = results_of(run).values()
        assert (result["outcome"], result["rows"]) == ("committed", 1000)
        [row] = lake_sql(fluss.warehouse, f"SELECT count(*), sum(id) FROM lake.{path}")
        assert tuple(row) == (1000, 499_500)
        home = Path(airflow.environment["AIRFLOW_HOME"])
        assert [file for file in events.rglob("*") if file.is_file()], "no event log"
        assert holding(PASSWORD, work, events, home, fluss.warehouse) == []
        assert holding(str(path), events, work) != [], "what is there is found"
