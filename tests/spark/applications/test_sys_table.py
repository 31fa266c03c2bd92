"""The tables of ``sys`` in a session of a user's own: two settings, and the system tables."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import datasource

from pyspark_sluice import add_sys_tables
from sluice.client import Client, connect
from sluice.clock import SystemClock
from sluice.config import ClientConfig, ServerConfig
from sluice.model import Column, Reason, Schema, TableDescriptor, TablePath, TieringRound
from sluice.model import types as t
from sluice.model.record_fields import fields_of
from sluice.server.cluster import EmbeddedCluster
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Role
from tests.docs.blocks import claimed_blocks
from tests.support.fluss.plain_fluss import plain_fluss
from tests.support.network.sasl_listener import SaslListener
from tests.support.network.wire_server import WireServer
from tests.support.programs.processes import environment, wait_for

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
ROOT = Path(__file__).resolve().parents[3]
TABLE = "spark_catalog.sys.lake_tiering_status"
ROUNDS = "spark_catalog.sys.lake_tiering_rounds"
COLUMNS = [  # of seed 001, in Spark's words
    ("database_name", "string"),
    ("table_name", "string"),
    ("status", "string"),
    ("tiering_epoch", "bigint"),
    ("last_tiered_time", "timestamp"),
    ("last_error", "string"),
    ("last_error_time", "timestamp"),
    # and more that users ask for
    ("table_id", "bigint"),
    ("failures", "int"),
    ("next_attempt_time", "timestamp"),
    ("lag_rows", "bigint"),
    ("lag_ms", "bigint"),
    ("lake_snapshot_id", "bigint"),
    ("paused", "boolean"),
    ("last_round_ms", "bigint"),
    ("note", "string"),
    ("rounds", "bigint"),
    ("stopped", "string"),
    ("accepted", "string"),
    ("claimed_by", "string"),
    ("deletes_as", "string"),
    ("compaction_requested_time", "timestamp"),
    ("lake_rows", "bigint"),
    ("lake_files", "bigint"),
    ("lake_bytes", "bigint"),
    ("requested_time", "timestamp"),
    ("claimed_time", "timestamp"),
]
PUSHES_FILTERS = hasattr(datasource, "EqualTo")
"""Spark 4.0 asks no Python data source to filter."""
DID = TieringRound(
    outcome="committed", rows_written=3, copy_ms=12, lake_commit_ms=40, keys_deleted=2,
    deletes_as="positions", lookup_files=5, lake_rows=40, lake_files=4, lake_bytes=5_000,
    airflow_task="sluice_tier/run%2F1/tier/0/1", spark_application="app-1",
)  # fmt: skip
REASON = "S3 said 403: 'no such key' = \"x\"; 川"


@pytest.fixture
def session(spark: Any) -> Iterator[Any]:
    """A session with settings of its own; the catalog is everybody's."""
    own = spark.newSession()
    own.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    add_sys_tables(own)
    add_sys_tables(own)  # a second time changes nothing
    yield own
    own.sql("DROP DATABASE spark_catalog.sys CASCADE")


@contextmanager
def cluster_at(tmp_path: Path, listen: str = "grpc://127.0.0.1:0") -> Iterator[EmbeddedCluster]:
    config = ServerConfig(
        data_dir=str(tmp_path / "data"),
        listen=listen,
        tiering_check_interval_ms=20,
        tiering_backoff_ms=300_000,  # what fails stays Failed while it is looked at
    )
    with EmbeddedCluster(config) as cluster:
        yield cluster


def create(client: Client, name: str, **properties: str) -> TablePath:
    path = TablePath("shop", name)
    client.admin.create_database("shop", ignore_if_exists=True)
    schema = Schema((Column("id", t.BIGINT, 0),), highest_field_id=0)
    client.admin.create_table(path, TableDescriptor(schema, properties=properties))
    return path


def fill(client: Client) -> None:
    """A table tiered well, one that fails, one never tiered, and one that is not for the lake."""
    soon = {"table.datalake.enabled": "true", "table.datalake.freshness": "0s"}
    late = {"table.datalake.enabled": "true", "table.datalake.freshness": "1d"}
    good, bad = create(client, "good", **soon), create(client, "bad", **soon)
    create(client, "late", **late)
    create(client, "plain")
    for path in (good, bad):
        found: list[Any] = []
        wait_for(f"a claim of {path}", lambda p=path, f=found: f.append(claim(client, p)) or f[-1])
        if path is bad:
            client.tiering.failed(found[-1], Reason.from_text(REASON))
        else:
            client.admin.set_options(good, {"table.datalake.freshness": "1d"})
            client.tiering.finished(found[-1], details=DID)
            client.statuses.request_compaction(good)


def claim(client: Client, path: TablePath) -> Any:
    return client.tiering.claim([path])


def use(session: Any, address: str) -> None:
    session.conf.set("spark.sluice.client.bootstrap", address)


def time(ms: int | None) -> datetime | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)


def in_utc(rows: list[Any]) -> list[tuple[Any, ...]]:
    return [
        tuple(cell.astimezone(UTC) if isinstance(cell, datetime) else cell for cell in row)
        for row in rows
    ]


def rounds_are_kept(session: Any, client: Client) -> None:
    """Those of ``fill``, in SQL as in Python."""
    columns = "table_name, round_number, ended_time, outcome, rows_written, copy_ms, reason"
    columns += ", deletes_as, lookup_files, lake_bytes, airflow_task, spark_application"
    by = (5_000, "sluice_tier/run%2F1/tier/0/1", "app-1")
    rows = in_utc(session.sql(f"SELECT {columns} FROM {ROUNDS}").collect())
    ended = {path.table: time(each.ended_ms) for path, each in client.statuses.histories()}
    assert sorted(rows) == [
        ("bad", 1, ended["bad"], "failed", None, None, REASON, None, None, None, None, None),
        ("good", 1, ended["good"], "committed", 3, 12, None, "positions", 5, *by),
    ]
    query = claimed_blocks("docs/system-tables.md", __file__)[0].content.strip().rstrip(";")
    assert [tuple(row) for row in session.sql(query).collect()] == [("shop", "good", 1, 40)]


def test_the_rows_are_the_coordinators_word(session: Any, tmp_path: Path) -> None:
    with cluster_at(tmp_path) as cluster, connect(cluster.address) as client:
        fill(client)
        use(session, cluster.address)
        rows = in_utc(session.sql(f"SELECT * FROM {TABLE} ORDER BY table_name").collect())
        said = client.statuses.list()
        failing = f"SELECT table_name, last_error FROM {TABLE} WHERE status = 'Failed'"
        assert [tuple(row) for row in session.sql(failing).collect()] == [("bad", REASON)]
        rounds_are_kept(session, client)
    assert rows == [
        (
            "shop",
            s.path.table,
            s.status,
            s.tiering_epoch,
            time(s.last_tiered_ms),
            s.last_error,
            time(s.last_error_ms),
            s.table_id,
            s.failures,
            time(s.next_attempt_ms),
            s.lag_rows,
            row[11],  # the age of a lag grows
            s.lake_snapshot_id,
            s.paused,
            s.last_round_ms,
            s.note,
            s.rounds,
            s.stopped,
            s.accepted,
            s.claimed_by,
            s.deletes_as,
            time(s.compaction_requested_ms),
            s.lake_rows,
            s.lake_files,
            s.lake_bytes,
            time(s.requested_ms),
            time(s.claimed_ms),
        )
        for s, row in zip(said, rows, strict=True)
    ]
    bad, good, late = rows
    assert (*bad[1:3], *bad[4:6]) == ("bad", "Failed", None, REASON)
    assert bad[6] is not None
    assert bad[8] == 1
    assert (good[1:4], good[5:7]) == (("good", "Scheduled", 1), (None, None))
    assert good[4] is not None
    assert (bad[-7], good[-7]) == (None, "positions")
    assert bad[-6] is None
    assert isinstance(good[-6], datetime)
    assert (bad[-5:-2], good[-5:-2]) == ((None, None, None), (40, 4, 5_000))
    assert late[1:7] == ("late", "Pending", 1, None, None, None)


@pytest.mark.slow
def test_statuses_that_rounds_wrote_are_told_too(session: Any, tmp_path: Path) -> None:
    """On a cluster without the call, as an Apache Fluss: out of the table that rounds write."""
    patient = {"tiering_status_timeout_ms": 60_000, "tiering_backoff_ms": 3_600_000}
    with plain_fluss(tmp_path / "data", SystemClock()) as cluster:
        with connect(ClientConfig(cluster.address, **patient)) as client:
            fill(client)
        use(session, cluster.address)
        session.conf.set("spark.sluice.client.tiering_status_timeout_ms", "60000")
        columns = "table_name, status, tiering_epoch, last_error"
        rows = session.sql(f"SELECT {columns} FROM {TABLE} ORDER BY table_name").collect()
        where = "database_name = 'shop' AND table_name = 'bad' AND last_tiered_time IS NULL"
        bad = session.sql(f"SELECT last_error FROM {TABLE} WHERE {where}").collect()
        with connect(ClientConfig(cluster.address, **patient)) as client:
            rounds_are_kept(session, client)
    assert [tuple(row) for row in rows] == [
        ("bad", "Failed", 1, REASON),
        ("good", "Scheduled", 1, None),
        ("late", "Unknown", 0, None),
    ]
    assert [tuple(row) for row in bad] == [(REASON,)]


def test_columns_and_tables_are_described(session: Any) -> None:
    """Without any server: what there is needs none."""
    assert session.table(TABLE).dtypes == COLUMNS
    described = session.sql(f"DESCRIBE {TABLE}").collect()
    assert [(row.col_name, row.data_type) for row in described] == COLUMNS
    assert all(row.comment for row in described)
    described = session.sql(f"DESCRIBE {ROUNDS}").collect()
    fields = [entry.column for entry in fields_of(TieringRound)]
    assert [row.col_name for row in described] == ["database_name", "table_name", *fields]
    assert all(row.comment for row in described)
    tables = session.sql("SHOW TABLES IN spark_catalog.sys").collect()
    assert sorted((table.namespace, table.tableName) for table in tables) == [
        ("sys", "lake_tiering_rounds"),
        ("sys", "lake_tiering_status"),
    ]


def entry(table: str, status: str) -> pb.PbTableTieringStatus:
    path = pb.PbTablePath(database_name="shop", table_name=table)
    return pb.PbTableTieringStatus(table_path=path, status=status, tiering_epoch=3)


@pytest.mark.slow
def test_a_table_filter_becomes_one_question(session: Any) -> None:
    asked: list[str] = []

    def answer(request: pb.ListTieringStatusesRequest) -> pb.ListTieringStatusesResponse:
        named = request.HasField("table_path")
        path = request.table_path
        asked.append(f"{path.database_name}.{path.table_name}" if named else "all")
        every = [entry("a", "Failed"), entry("b", "Tiered"), entry("c", "Failed")]
        return pb.ListTieringStatusesResponse(
            tiering_statuses=[e for e in every if not named or e.table_path == path]
        )

    def tables(where: str) -> list[str]:
        query = f"SELECT table_name FROM {TABLE} WHERE {where}"  # to order it, Spark reads twice
        return sorted(row[0] for row in session.sql(query).collect())

    with WireServer({(Role.COORDINATOR, apis.LIST_TIERING_STATUSES): answer}) as server:
        use(session, server.address)
        shop = "database_name = 'shop'"
        assert tables(f"table_name = 'a' AND {shop}") == ["a"]
        assert tables(f"{shop} AND table_name = 'b' AND status = 'Failed'") == []
        assert asked == (["shop.a", "shop.b"] if PUSHES_FILTERS else ["all"] * 2)
        asked.clear()
        assert tables("status = 'Failed'") == ["a", "c"]
        assert tables("table_name = 'b'") == ["b"]
        assert tables(f"{shop} AND table_name IN ('a', 'b')") == ["a", "b"]
        assert asked == ["all"] * 3
    if not PUSHES_FILTERS:
        return
    plan = session.sql(f"SELECT * FROM {TABLE} WHERE {shop} AND table_name = 'a'")
    assert "EqualTo" not in plan._jdf.queryExecution().toString()
    assert " = a" not in plan._jdf.queryExecution().optimizedPlan().toString()


def test_a_table_filter_of_rounds_becomes_one_question(session: Any) -> None:
    asked: list[pb.ListTieringRoundsRequest] = []

    def answer(request: pb.ListTieringRoundsRequest) -> pb.ListTieringRoundsResponse:
        asked.append(request)
        return pb.ListTieringRoundsResponse(rounds=[pb.PbTieringRound(table_id=7, round_number=3)])

    if not PUSHES_FILTERS:
        return
    with WireServer({(Role.COORDINATOR, apis.LIST_TIERING_ROUNDS): answer}) as server:
        use(session, server.address)
        where = "table_name = 'a' AND database_name = 'shop' AND round_number > 2"
        rows = session.sql(f"SELECT table_name, table_id FROM {ROUNDS} WHERE {where}").collect()
    assert [tuple(row) for row in rows] == [("a", 7)]
    path = pb.PbTablePath(database_name="shop", table_name="a")
    assert asked == [pb.ListTieringRoundsRequest(table_path=path, limit=100)]


def test_a_table_that_is_not_there_has_no_row(session: Any, tmp_path: Path) -> None:
    with cluster_at(tmp_path) as cluster:
        use(session, cluster.address)
        where = "database_name = 'shop' AND table_name = 'none'"
        assert session.sql(f"SELECT * FROM {TABLE} WHERE {where}").collect() == []


def test_a_cluster_that_is_not_there_is_named_and_the_password_is_not(session: Any) -> None:
    use(session, "fluss://127.0.0.1:1")
    session.conf.set("spark.sluice.client.username", "ann")
    session.conf.set("spark.sluice.client.password", "planted-4711")
    session.conf.set("spark.sluice.client.connect_timeout_ms", "300")
    with pytest.raises(Exception, match=r"sluice\.errors\.\w+\.\w+: .*127\.0\.0\.1:1") as failure:
        session.sql(f"SELECT * FROM {TABLE}").collect()
    assert "planted-4711" not in str(failure.value)


@pytest.mark.slow
def test_user_and_password_are_settings_of_the_session(session: Any, tmp_path: Path) -> None:
    with cluster_at(tmp_path, "fluss://127.0.0.1:0") as cluster:
        with connect(cluster.address) as client:
            create(client, "orders", **{"table.datalake.enabled": "true"})
        port = int(cluster.address.rsplit(":", 1)[1])
        with SaslListener([port], "ann", "planted-4711") as listener:
            use(session, f"fluss://127.0.0.1:{listener.ports[port]}")
            session.conf.set("spark.sluice.client.username", "ann")
            session.conf.set("spark.sluice.client.password", "wrong")
            with pytest.raises(Exception, match="AuthenticateError"):
                session.sql(f"SELECT * FROM {TABLE}").collect()
            session.conf.set("spark.sluice.client.password", "planted-4711")
            rows = session.sql(f"SELECT database_name, table_name FROM {TABLE}").collect()
            assert [tuple(row) for row in rows] == [("shop", "orders")]


@pytest.mark.slow
def test_the_example_of_the_docs_runs_as_it_stands(tmp_path: Path) -> None:
    blocks = claimed_blocks("docs/system-tables.md", __file__)
    _, example, statements = (block.content for block in blocks)
    assert "grpc://127.0.0.1:9123" in example
    sql = [*statements.strip().rstrip(";").split(";"), "DROP DATABASE sys CASCADE"]
    by_name = [
        "from pyspark.sql import SparkSession",
        "spark = SparkSession.builder.getOrCreate()",
        *(f"spark.sql({statement.strip()!r})" for statement in sql),
    ]
    script = tmp_path / "example.py"
    with cluster_at(tmp_path) as cluster:
        with connect(cluster.address) as client:
            create(client, "orders", **{"table.datalake.enabled": "true"})
        here = example.replace("grpc://127.0.0.1:9123", cluster.address)
        script.write_text("\n".join([*by_name, here]))
        done = subprocess.run(
            [sys.executable, str(script)],
            cwd=tmp_path,
            env=environment(
                {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT / "spark_jobs")}
            ),
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "lake_tiering_status" in done.stdout
    assert "orders" in done.stdout
