"""The native client on a real Fluss: remote segments, restarts, SASL, calls that it lacks."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import sluice.client.log.fetches
from sluice.client import Client, connect
from sluice.client.log.remote_segments import Segment, read_segment
from sluice.client.unreadable_batch import unreadable_batch
from sluice.config import ClientConfig
from sluice.errors import (
    AuthenticateError,
    CorruptRecord,
    LogOffsetOutOfRange,
    StorageError,
    UnsupportedVersion,
)
from sluice.formats.log.batch import iter_batches
from sluice.formats.types.types import schema_from_arrow
from sluice.model import TableBucket, TableDescriptor, TablePath
from sluice.rounds.values.types import OffsetRange
from tests.support.fluss.checkpoints import wait_for_checkpoint
from tests.support.fluss.guarded_fluss import PASSWORD, USERNAME, GuardedFluss
from tests.support.fluss.real_fluss import RealFluss
from tests.support.fluss.table_creation import create_table
from tests.support.harness.findings import finding
from tests.support.programs.processes import wait_for

pytestmark = pytest.mark.real_fluss

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.float64())])
REMOTE = {"log.segment.file-size": "256kb", "remote.log.task-interval-duration": "200ms"}


@pytest.fixture(scope="module")
def fluss(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedFluss]:
    with GuardedFluss(tmp_path_factory.mktemp("fluss"), lake=False, conf=REMOTE) as running:
        yield running


@pytest.fixture
def client(fluss: RealFluss) -> Iterator[Client]:
    with connect(fluss.bootstrap) as client:
        yield client


def new_table(client: Client, **properties: str) -> tuple[TablePath, TableBucket]:
    path = TablePath("native", f"t{uuid.uuid4().hex[:8]}")
    client.admin.create_database(path.database, ignore_if_exists=True)
    described = TableDescriptor(schema_from_arrow(SCHEMA), bucket_count=1, properties=properties)
    create_table(client, path, described)
    return path, TableBucket(client.admin.table_info(path).table_id, None, 0)


def append(client: Client, path: TablePath, first: int, count: int) -> None:
    ids = np.arange(first, first + count)
    with client.log_writer(path) as writer:
        writer.write(pa.table([ids, np.random.default_rng(first).random(count)], schema=SCHEMA))


def read(client: Client, path: TablePath, bucket: TableBucket) -> list[int]:
    rows = client.log_reader(path).read(bucket)
    return [i for r in rows for i in r.batch["id"].to_pylist()]


def remote_segments(fluss: RealFluss, path: TablePath, count: int) -> list[Path]:
    """Waits until the server has so many segments of a table only in remote storage.

    It deletes its own file of a segment some time after it has copied it, and reads that file until
    then. Returns the remote files in the order of their offsets, which are their names.
    """
    table = f"{path.database}/{path.table}-*"
    deadline = time.monotonic() + 120
    while True:
        own = {file.name for file in fluss.data_dir.glob(f"{table}/log-0/*.log")}
        copied = fluss.remote_dir.glob(f"log/{table}/0/*/*.log")
        found = sorted((f for f in copied if f.name not in own), key=lambda file: file.name)
        if len(found) >= count and own:
            return found
        assert time.monotonic() < deadline, (found, own)
        time.sleep(0.1)


@pytest.mark.slow
def test_remote_segments_are_read_and_those_that_are_gone_are_named(
    fluss: RealFluss, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, bucket = new_table(client, **{"table.log.tiered.local-segments": "1"})
    for part in range(8):
        append(client, path, part * 20_000, 20_000)
    remote_segments(fluss, path, 4)
    seen: list[Segment] = []

    def watched(segment: Segment, *limits: int) -> object:
        seen.append(segment)
        return read_segment(segment, *limits)

    monkeypatch.setattr(sluice.client.log.fetches, "read_segment", watched)
    deadline = time.monotonic() + 120
    while not seen:  # the server still has them for a moment after they were copied
        assert read(client, path, bucket) == list(range(160_000))
        assert time.monotonic() < deadline
    gone = Path(seen[0].uri)
    gone.rename(gone.with_suffix(".gone"))
    with pytest.raises(StorageError, match=rf"{gone} cannot be read: FileNotFound.*tried 3 times"):
        read(client, path, bucket)
    gone.with_suffix(".gone").rename(gone)
    assert read(client, path, bucket) == list(range(160_000))


@pytest.mark.slow
def test_a_read_goes_on_over_restarts_of_both_servers(fluss: RealFluss) -> None:
    config = ClientConfig(fluss.bootstrap, fetch_max_bytes_per_bucket=20_000)
    with connect(config) as client:
        path, bucket = new_table(client)
        for part in range(10):
            append(client, path, part * 2_000, 2_000)
        wait_for_checkpoint(fluss, client, path)
        rows = client.log_reader(path).read(bucket)
        found = next(rows).batch["id"].to_pylist()
        fluss.kill_tablet()
        fluss.start_tablet()
        fluss.kill_coordinator()
        fluss.start_coordinator()
        for records in rows:
            found += records.batch["id"].to_pylist()
        assert found == list(range(20_000))
        append(client, path, 20_000, 10)
        assert client.admin.list_offsets(path, [0]) == {0: 20_010}


@pytest.mark.slow
def test_sasl_plain(fluss: GuardedFluss, client: Client) -> None:
    path, bucket = new_table(client)
    config = ClientConfig(fluss.guarded, username=USERNAME, password=PASSWORD)
    with connect(config) as guarded:
        append(guarded, path, 0, 100)
        assert read(guarded, path, bucket) == list(range(100))
    for wrong in ({"password": "hunter2"}, {"username": "bob"}, {"username": "", "password": ""}):
        with connect(replace(config, **wrong)) as refused, pytest.raises(AuthenticateError):
            refused.admin.list_databases()


@pytest.mark.slow
def test_a_call_that_it_lacks_is_refused_at_once(client: Client) -> None:
    started = time.monotonic()
    with pytest.raises(UnsupportedVersion, match="does not offer ListTieringStatuses"):
        client.statuses.of_coordinator()
    assert time.monotonic() - started < 60


@pytest.mark.slow
def test_a_damaged_batch_is_named_and_read_around(fluss: RealFluss, client: Client) -> None:
    """In a remote segment, whose file a test can change."""
    path, bucket = new_table(client, **{"table.log.tiered.local-segments": "1"})
    for part in range(4):
        append(client, path, part * 20_000, 20_000)
    log = remote_segments(fluss, path, 2)[0]
    content = bytearray(log.read_bytes())
    headers = [header for header, _ in iter_batches(bytes(content))]
    damaged = headers[0]
    content[damaged.size - 3] ^= 1
    log.write_bytes(content)
    reader, start, stop = client.log_reader(path), damaged.base_offset, damaged.next_offset
    with pytest.raises(CorruptRecord, match="checksum") as caught:
        list(reader.read(bucket, start))
    assert caught.value.details["base_offset"] == start
    batch, _ = unreadable_batch(client, path, bucket, start, 0)
    assert batch == OffsetRange(bucket, start, stop)
    assert next(iter(reader.read(bucket, stop))).base_offset == stop


@pytest.mark.slow
def test_a_log_that_lost_its_beginning_says_where_it_begins(
    fluss: RealFluss, client: Client
) -> None:
    path, bucket = new_table(
        client, **{"table.log.tiered.local-segments": "1", "table.log.ttl": "1s"}
    )
    for part in range(6):
        append(client, path, part * 20_000, 20_000)
    with finding():
        wait_for("the log to lose its beginning", lambda: starts(client, path) > 0)
    with pytest.raises(LogOffsetOutOfRange):
        list(client.log_reader(path).read(bucket, 0))


def starts(client: Client, path: TablePath) -> int:
    return client.admin.list_offsets(path, [0], timestamp_ms="earliest")[0]
