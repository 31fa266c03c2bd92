"""The steps of a watch over very many tables, on a server with Fluss's calls only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from sluice.client import Client
from sluice.client.statuses.lag import Lag
from sluice.client.statuses.status_table import StatusTable
from sluice.client.statuses.watch import StatusWatch
from sluice.config import ClientConfig
from sluice.errors import NetworkError
from sluice.model import Column, Schema, TableDescriptor, TablePath, TieringRound
from sluice.model import types as t
from sluice.model.round_record import ROUNDS_KEPT
from sluice.wire import apis
from tests.support.network.proxy import error
from tests.support.statuses.status_shop import LAKE, SCHEMA, Shop, behind_proxy, status_shop


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with status_shop(tmp_path / "data") as made:
        yield made


@pytest.fixture
def watch(shop: Shop) -> Iterator[StatusWatch]:
    with closing(shop.client.status_watch()) as made:
        yield made


def test_a_dropped_table_leaves_the_others_described(shop: Shop, watch: StatusWatch) -> None:
    path = shop.create("orders", **{"table.datalake.freshness": "7min"})
    plain = TablePath("shop", "plain")
    shop.client.admin.create_table(plain, TableDescriptor(SCHEMA, bucket_count=3))
    assert set(watch.paths()) == {path, plain}
    found = watch.described([path, TablePath("shop", "dropped"), plain])
    assert set(found) == {path, plain}
    assert (found[path].is_tiered, found[path].freshness_ms) == (True, 420_000)
    assert (found[plain].is_tiered, found[plain].bucket_count) == (False, 3)


def test_statuses_without_a_status_table_are_unknown_and_not_unread(
    shop: Shop, watch: StatusWatch
) -> None:
    tables = [*watch.described([shop.create("orders")]).values()]
    (status,) = watch.recorded(tables)
    assert status.note == "no round of Sluice is recorded"
    assert not status.is_unread
    (status,) = watch.recorded(tables, "the table is away")
    assert (status.is_unread, status.note) == (True, "the table is away")


def test_rounds_of_many_tables_are_their_newest_ones(shop: Shop, watch: StatusWatch) -> None:
    """A slot of the ring that a later round did not replace holds an older round."""
    with closing(
        StatusTable(ClientConfig(shop.address, tiering_status_timeout_ms=60_000))
    ) as table:
        ended = [
            TieringRound(
                table_id=table_id, round_number=number, ended_ms=number, outcome="committed"
            )
            for table_id, numbers in ((1, range(1, 6)), (2, [1, 2, 3, ROUNDS_KEPT + 1]))
            for number in numbers
        ]
        table.rounds.write(ended, lambda: False)
    found = watch.recorded_rounds({1: 5, 2: ROUNDS_KEPT + 3, 3: 7}, 4)
    assert {table_id: [one.round_number for one in each] for table_id, each in found.items()} == {
        1: [5, 4, 3, 2],
        2: [ROUNDS_KEPT + 1],
    }
    assert watch.recorded_rounds({}, 4) == {}


def test_partitions_and_their_lags(shop: Shop, watch: StatusWatch) -> None:
    path = TablePath("shop", "days")
    columns = (Column("id", t.BIGINT, 0), Column("day", t.STRING, 1))
    schema = Schema(columns, highest_field_id=1)
    descriptor = TableDescriptor(schema, partition_keys=("day",), bucket_count=1, properties=LAKE)
    shop.client.admin.create_table(path, descriptor)
    for day in ("1", "2"):
        shop.client.admin.create_partition(path, {"day": day})
    assert len(shop.client.admin.partitions(path)) == 2
    lag = watch.lag(watch.described([path])[path])
    assert (lag.rows, lag.ms) == (0, 0)


def test_rows_without_an_age_are_told_by_both_ways_to_read_a_lag(shop: Shop) -> None:
    """The batches cannot be fetched, as from a remote storage without access."""
    path = shop.create("orders")
    with shop.client.log_writer(path) as writer:
        writer.write(pa.table({"id": pa.array([1, 2], pa.int64())}))
    with (
        behind_proxy(shop) as (proxy, address),
        Client(ClientConfig(address, retry_timeout_ms=100), shop.clock) as client,
        closing(client.status_watch()) as watch,
    ):
        table = watch.described([path])[path]
        assert watch.lag(table) == Lag(2, 0, None)
        proxy.plan_always(apis.FETCH_LOG, error(-1, "no access to the storage"))
        assert watch.lag(table) == Lag(2, None, None)
        (status,) = client.statuses.list(path)
        assert (status.lag_rows, status.lag_ms) == (2, None)


def test_a_closed_watch_refuses(shop: Shop) -> None:
    watch = shop.client.status_watch()
    watch.paths()
    watch.close()
    with pytest.raises(NetworkError):
        watch.paths()
