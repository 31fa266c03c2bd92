"""`sluice append` into a real Fluss that is killed, and goes on: each row is there once."""

from __future__ import annotations

import signal
import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluice.client import connect
from sluice.model import AggFunction, Column, Schema, TableDescriptor
from sluice.model import types as t
from tests.support.fluss.real_fluss import RealFluss
from tests.support.tables.appending import ROWS, Appending, told

pytestmark = pytest.mark.real_fluss


@pytest.fixture
def shop(real_fluss: RealFluss, tmp_path: Path) -> Appending:
    return Appending(tmp_path, lambda: real_fluss.bootstrap, f"db_{uuid.uuid4().hex[:8]}")


@pytest.mark.parametrize("layout", ["round", pytest.param("parted", marks=pytest.mark.slow)])
def test_a_command_killed_and_killed_again(shop: Appending, layout: str) -> None:
    """Once before a batch was sent, once before its answer was noted."""
    shop.create(layout)
    path = shop.file("orders.csv")
    killed = shop.append(path, "client.write.noted=kill@20")
    assert killed.wait() == -signal.SIGKILL
    first, command = told(shop.append(path).stderr)
    killed = shop.run(*command, failpoints="client.write.answered=kill@30")
    assert killed.wait() == -signal.SIGKILL
    second, command = told(shop.append(path).stderr)
    assert 0 <= first <= second < ROWS
    shop.check_first(second)
    done = shop.run(*command)
    assert done.wait() == 0, done.stderr
    shop.check_whole()


@pytest.mark.long
def test_a_table_that_got_a_column_between_the_runs(shop: Appending) -> None:
    """The second run sends batches of the schema that the first one began with."""
    shop.create("round")
    path = shop.file("orders.csv")
    killed = shop.append(path, "client.write.noted=kill@20")
    assert killed.wait() == -signal.SIGKILL
    with connect(shop.address()) as client:
        # Fluss 0.9.1 adds no column to a table that it tiers to Iceberg
        client.admin.set_options(shop.table, {"table.datalake.enabled": "false"})
        client.admin.add_columns(shop.table, [Column("z", t.INT, 3)])
    _, command = told(shop.append(path).stderr)
    done = shop.run(*command)
    assert done.wait() == 0, done.stderr
    assert "has new columns since the unfinished run of orders.csv: z;" in done.stderr
    shop.check_whole()


@pytest.mark.long
def test_rows_of_a_table_that_aggregates_count_once(shop: Appending) -> None:
    """A row that came twice would be added twice."""
    schema = Schema(
        (
            Column("id", t.BIGINT.not_null(), 0),
            Column("n", t.BIGINT, 1, agg_function=AggFunction("sum")),
            Column("note", t.STRING, 2, agg_function=AggFunction("last_value")),
        ),
        primary_key=("id",),
        highest_field_id=2,
    )
    described = TableDescriptor(
        schema, bucket_count=2, properties={"table.merge-engine": "aggregation"}
    )
    with connect(shop.address()) as client:
        client.admin.create_database(shop.table.database)
        client.admin.create_table(shop.table, described)
    path = shop.home / "counted.parquet"
    rows = {"id": np.arange(ROWS) % 1000, "n": np.ones(ROWS, np.int64), "note": ["x" * 90] * ROWS}
    pq.write_table(pa.table(rows), path)
    words = ("append", str(shop.table), str(path))
    killed = shop.run(*words, failpoints="client.write.answered=kill@9")
    assert killed.wait() == -signal.SIGKILL
    _, command = told(shop.run(*words).stderr)
    killed = shop.run(*command, failpoints="client.write.noted=kill@5")
    assert killed.wait() == -signal.SIGKILL
    stored, command = told(shop.run(*words).stderr)
    assert stored < ROWS
    done = shop.run(*command)
    assert done.wait() == 0, done.stderr
    with connect(shop.address()) as client:
        found = client.limit_scan(shop.table, 2000)
    assert sorted(found.column("id").to_pylist()) == list(range(1000))
    assert set(found.column("n").to_pylist()) == {ROWS // 1000}
