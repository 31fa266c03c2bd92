"""A secret in an error of an executor, on its way to the places where users read the reason."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from sluice.client import Client, connect
from sluice.client.tiering.heartbeats import Heartbeats
from sluice.config import ServerConfig, load_config
from sluice.driver.local import _report_failure, _run
from sluice.driver.spark.round import CopyPartition
from sluice.errors import SplitFailed
from sluice.formats.types.types import schema_from_arrow
from sluice.model import TableBucket, TableDescriptor, TablePath
from sluice.rounds.values.progress import NoProgress
from sluice.rounds.values.reasons import failure_of
from sluice.rounds.values.types import LogRecords, Split, SplitFailure
from sluice.server.cluster import EmbeddedCluster
from sluice.stop_signals import Terminated
from tests.support.models.memory_lake import MemoryLake

SECRET = "Planted+4716"
CONFIG = load_config(environment={}, overrides={"datalake.iceberg.s3.secret-access-key": SECRET})
PATH = TablePath("shop", "orders")


@pytest.fixture
def client(tmp_path: Any) -> Iterator[Client]:
    config = ServerConfig(data_dir=str(tmp_path), listen="grpc://127.0.0.1:0")
    with EmbeddedCluster(config) as cluster, connect(cluster.address) as client:
        yield client


class RefusingLake(MemoryLake):
    """Its storage quotes a key that has no form by which it could be recognised."""

    def create(self, info: Any, layout: Any = None) -> Any:
        table = super().create(info)
        table.writer_factory = lambda *_: refuse
        return table


def refuse(split: Split, task: int = 0) -> Any:
    raise OSError(f"login as {SECRET} refused")


def test_a_secret_on_a_thread_reaches_neither_file_nor_status(client: Client) -> None:
    data = pa.table({"id": pa.array(range(3), pa.int64())})
    client.admin.create_database("shop")
    properties = {"table.datalake.enabled": "true"}
    descriptor = TableDescriptor(
        schema_from_arrow(data.schema), bucket_count=1, properties=properties
    )
    client.admin.create_table(PATH, descriptor)
    with client.log_writer(PATH) as writer:
        writer.write(data)
    config = replace(CONFIG, client=client.config)
    claim = client.tiering.claim([PATH])
    assert claim is not None
    lake: Any = RefusingLake()
    beats = Heartbeats(client.tiering)
    with pytest.raises(SplitFailed) as raised:
        _run(config, client, lake, claim, beats, threading.Event(), NoProgress(), None)
    _report_failure(client, claim, raised.value, config.secrets(), "sluice tier")
    [status] = client.statuses.list(PATH)
    said = "bucket 0 of table shop.orders: OSError: OSError: login as *** refused"
    assert status.last_error == said
    written = failure_of(raised.value, config.secrets()).to_json()
    assert (written["kind"], written["reason"]) == ("SplitFailed", said)
    assert written["deepest_cause"] == "OSError: login as *** refused"
    assert written["seconds"]["copy"] >= 0
    assert SECRET not in json.dumps(written)


@pytest.mark.parametrize(
    ("stop", "text"),
    [
        (Terminated(), "SIGTERM ended `sluice repair`"),
        (KeyboardInterrupt(), "Ctrl-C ended `sluice repair`"),
    ],
)
def test_the_status_shows_the_signal_that_ended_a_command(
    client: Client, stop: KeyboardInterrupt, text: str
) -> None:
    client.admin.create_database("shop")
    properties = {"table.datalake.enabled": "true"}
    schema = schema_from_arrow(pa.schema({"id": pa.int64()}))
    client.admin.create_table(PATH, TableDescriptor(schema, bucket_count=1, properties=properties))
    claim = client.tiering.claim([PATH])
    assert claim is not None
    assert _report_failure(client, claim, stop, (), "sluice repair")
    [status] = client.statuses.list(PATH)
    assert (status.stopped, status.failures) == (f"StoppedByUser: {text}", 0)


class Accumulator:
    """What a task adds to Spark's accumulator."""

    def __init__(self) -> None:
        self.added: list[Any] = []

    def add(self, outcomes: list[Any]) -> None:
        self.added += outcomes


class Empty:
    def read(self, split: Split) -> Iterator[LogRecords]:
        yield from ()


def test_a_secret_on_an_executor_does_not_reach_the_driver() -> None:
    copy = CopyPartition(Empty(), refuse, int, Accumulator(), CONFIG.secrets())
    split = Split(TableBucket(1, None, 0), (), 0, 2)
    [outcome] = pickle.loads(pickle.dumps(copy))([split])
    assert isinstance(outcome, SplitFailure)
    assert outcome.reason.text == "OSError: login as *** refused"
    assert SECRET.encode() not in pickle.dumps(outcome)
