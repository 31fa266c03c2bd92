"""The page's background reader on a real Fluss, which reports neither statuses nor lags."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from sluice.client import Client, connect
from sluice.config import ClientConfig
from sluice.formats.types.types import schema_from_arrow
from sluice.model import Claim, Reason, TableBucket, TableDescriptor, TablePath, TieringRound
from sluice.page.cluster.cluster_reader import ClusterReader
from sluice.page.cluster.seen import SeenTable
from tests.real_fluss.place import DUE_S, LAKE, PATIENCE_MS, make_status_tables
from tests.support.fluss.real_fluss import RealFluss
from tests.support.fluss.table_creation import create_table
from tests.support.programs.processes import wait_for

pytestmark = [pytest.mark.real_fluss, pytest.mark.timeout(600)]

ROWS = pa.table({"id": pa.array(range(3), pa.int64())})
DONE = TieringRound(outcome="committed", rows_written=3, lag_rows_after=0)


@pytest.fixture
def cluster(real_fluss: RealFluss) -> Iterator[tuple[Client, str, Path]]:
    """A patient client, a database of its own, and the warehouse."""
    database = f"db_{uuid.uuid4().hex[:10]}"
    settings = ClientConfig(real_fluss.bootstrap, tiering_status_timeout_ms=PATIENCE_MS)
    with connect(settings) as client:
        make_status_tables(client)
        client.admin.create_database(database)
        yield client, database, real_fluss.warehouse
        client.admin.drop_database(database, cascade=True)


@pytest.fixture
def reader(cluster: tuple[Client, str, Path]) -> Iterator[ClusterReader]:
    reader = ClusterReader(cluster[0], read_every_s=0.2)
    yield reader
    reader.stop()


def create(cluster: tuple[Client, str, Path], name: str) -> TablePath:
    client, database, warehouse = cluster
    path = TablePath(database, name)
    schema = schema_from_arrow(ROWS.schema)
    create_table(client, path, TableDescriptor(schema, bucket_count=1, properties=LAKE), warehouse)
    with client.log_writer(path) as writer:
        writer.write(ROWS)
    return path


def claim(client: Client, path: TablePath) -> Claim:
    """Waits until the table is due; Fluss waits for its freshness first."""
    deadline = time.monotonic() + DUE_S
    while (found := client.tiering.claim([path])) is None:
        assert time.monotonic() < deadline, f"{path} was not handed out"
        time.sleep(0.1)
    return found


def sees(reader: ClusterReader, path: TablePath, what: Callable[[SeenTable], object]) -> SeenTable:
    found: list[SeenTable] = []

    def is_so() -> bool:
        found[:] = [each for each in [reader.seen.tables.get(path)] if each and what(each)]
        return bool(found)

    wait_for(f"{path} to be seen so, of {reader.seen.error}", is_so)
    return found[0]


def test_statuses_lags_and_rounds_of_a_cluster_that_reports_none(
    cluster: tuple[Client, str, Path], reader: ClusterReader
) -> None:
    client = cluster[0]
    tiered, failing, waiting = (create(cluster, name) for name in ("tiered", "failing", "waiting"))
    ended = claim(client, tiered)
    ends = {TableBucket(ended.table_id, None, 0): ROWS.num_rows}
    file = client.tiering.prepare_lake_snapshot(ended.table_id, tiered, ends)
    client.tiering.commit_lake_snapshot(ended, 1, file, ends, {}, -1)
    client.tiering.finished_many([(ended, DONE)])
    client.tiering.failed(claim(client, failing), Reason.from_text("disk full"))
    reader.start()

    seen = sees(reader, tiered, lambda each: each.lag_read_ms is not None)
    assert reader.seen.is_fluss
    assert (seen.status.lag_rows, seen.status.lag_ms, seen.status.rounds) == (0, 0, 1)
    wait_for("its round to be read", lambda: reader.rounds_of([seen])[1])
    assert [point.rows_written for point in reader.rounds_of([seen])[0][0]] == [3]

    seen = sees(reader, failing, lambda each: each.failing_since_ms is not None)
    assert seen.failing_since_ms == seen.status.last_error_ms
    assert seen.status.last_error == "disk full"

    seen = sees(reader, waiting, lambda each: each.status.lag_ms is not None)
    assert seen.status.lag_rows == ROWS.num_rows
    assert seen.status.status == "Unknown"  # no round is recorded

    client.statuses.pause(waiting)
    reader.read_soon(waiting)
    sees(reader, waiting, lambda each: each.status.paused)
    client.admin.drop_table(waiting)
    wait_for("the drop", lambda: waiting not in reader.seen.tables)
