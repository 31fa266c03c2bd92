"""Times that Fluss's row formats would cut are refused, before two keys become one."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from sluice.client import Client, connect
from sluice.config import ServerConfig
from sluice.errors import InvalidTable
from sluice.model import Column, DataType, Schema, TableDescriptor, TablePath, TypeRoot
from sluice.model import types as t
from sluice.server.cluster import EmbeddedCluster

PATH = TablePath("shop", "hours")
FINE = [dt.time(11, 0, 0, 1), dt.time(11, 0, 0, 2)]
WHOLE = [dt.time(11, 0, 0, 1000), dt.time(11, 0, 0, 2000)]
TIMES = DataType(TypeRoot.ARRAY, element=t.time(6))


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    config = ServerConfig(str(tmp_path), listen="grpc://127.0.0.1:0")
    with EmbeddedCluster(config) as cluster, connect(cluster.address) as connected:
        connected.admin.create_database("shop")
        yield connected


def create(client: Client, kind: DataType, *, keyed: bool, log_format: str = "ARROW") -> None:
    columns = (Column("k", t.INT.not_null(), 0), Column("at", kind, 1))
    client.admin.create_table(
        PATH,
        TableDescriptor(
            Schema(columns, ("k",) if keyed else (), 1),
            bucket_count=1,
            properties={"table.log.format": log_format},
        ),
    )


def rows(times: list[dt.time]) -> pa.Table:
    keys = pa.array(range(len(times)), pa.int32())
    return pa.table({"k": keys, "at": pa.array(times, pa.time64("us"))})


def test_two_keys_stay_two(client: Client) -> None:
    column = Column("k", t.time(6).not_null(), 0)
    client.admin.create_table(PATH, TableDescriptor(Schema((column,), ("k",), 0), bucket_count=1))
    with (
        client.kv_writer(PATH) as writer,
        pytest.raises(InvalidTable, match=r"column 'k' has the time 11:00:00\.000001, and this"),
    ):
        writer.upsert(pa.table({"k": pa.array(FINE, pa.time64("us"))}))
    with client.kv_writer(PATH) as writer:
        writer.upsert(pa.table({"k": pa.array(WHOLE, pa.time64("us"))}))
        with pytest.raises(InvalidTable, match="keeps milliseconds"):
            writer.delete(pa.table({"k": pa.array(FINE, pa.time64("us"))}))
    assert client.admin.list_offsets(PATH) == {0: 2}


@pytest.mark.parametrize("log_format", ["INDEXED", "COMPACTED"])
def test_a_log_of_rows_cuts_none(client: Client, log_format: str) -> None:
    create(client, t.time(6), keyed=False, log_format=log_format)
    with (
        client.log_writer(PATH) as writer,
        pytest.raises(InvalidTable, match="round it, or use a TIMESTAMP"),
    ):
        writer.write(rows(FINE))
    with client.log_writer(PATH) as writer:
        writer.write(rows(WHOLE))


def test_a_log_of_arrow_keeps_them(client: Client) -> None:
    create(client, t.time(6), keyed=False)
    with client.log_writer(PATH) as writer:
        writer.write(rows(FINE))
    assert client.admin.list_offsets(PATH) == {0: 2}


def test_times_inside_a_value_count(client: Client) -> None:
    create(client, TIMES, keyed=True)
    lists = pa.array([WHOLE, [*WHOLE, FINE[0]]], pa.list_(pa.time64("us")))
    with client.kv_writer(PATH) as writer, pytest.raises(InvalidTable, match="column 'at' has"):
        writer.upsert(pa.table({"k": pa.array([1, 2], pa.int32()), "at": lists}))
