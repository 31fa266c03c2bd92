"""Log writer and reader when the cluster, its disk or a batch fails: nothing lost or doubled."""

from __future__ import annotations

import errno
import threading
from itertools import chain
from typing import Any

import pyarrow as pa
import pytest

from sluice.client import Client, connect
from sluice.config import ClientConfig
from sluice.errors import (
    CorruptRecord,
    InvalidTable,
    LogStorageError,
    NetworkError,
    RecordTooLarge,
    RequestTimeOut,
)
from tests.support.harness.findings import finding
from tests.support.programs.processes import wait_for
from tests.support.tables.orders import PATH, PLAIN, bucket, create, ids, orders, write


def test_a_batch_over_the_message_limit_is_named(client: Client, cluster: Any) -> None:
    create(client, PLAIN, properties={"table.log.arrow.compression.type": "NONE"})
    with connect(ClientConfig(bootstrap=cluster.address, max_message_bytes=10_000)) as small:
        writer = small.log_writer(PATH)
        with pytest.raises(RecordTooLarge, match=r"shop\.orders bucket 0: a batch of 1 rows"):
            writer.write(pa.table({"id": [1], "region": ["x" * 20_000]}))
        writer.abort()


def test_no_answer_is_larger_than_the_client_accepts(client: Client, cluster: Any) -> None:
    """The largest answer to a fetch is 16 MiB by default, and messages here are smaller."""
    create(client, PLAIN, properties={"table.log.arrow.compression.type": "NONE"})
    write(client, *(orders(n, 1, "x" * 30_000) for n in range(80)))
    with connect(ClientConfig(bootstrap=cluster.address, max_message_bytes=65_536)) as small:
        assert ids(small.log_reader(PATH).read(bucket(client))) == list(range(80))


@pytest.mark.parametrize("row_bytes", [10, 600, 12_000])
def test_no_batch_is_larger_than_the_client_sends(
    client: Client, cluster: Any, row_bytes: int
) -> None:
    """A usual batch is 1 MiB by default, and messages here are smaller."""
    create(client, PLAIN, properties={"table.log.arrow.compression.type": "NONE"})
    count = 500_000 // row_bytes
    with connect(ClientConfig(bootstrap=cluster.address, max_message_bytes=65_536)) as small:
        write(small, orders(0, count, "x" * row_bytes))
        assert ids(small.log_reader(PATH).read(bucket(client))) == list(range(count))


def test_a_server_that_goes_away_surfaces_with_the_bucket(client: Client, cluster: Any) -> None:
    create(client, PLAIN)
    config = ClientConfig(
        bootstrap=cluster.address, retry_timeout_ms=500, request_timeout_ms=20_000
    )
    with connect(config) as hasty:
        writer = hasty.log_writer(PATH)
        writer.write(orders(0, 1))
        writer.flush()
        cluster.stop()
        writer.write(orders(1, 1))
        with pytest.raises(NetworkError, match=r"table shop\.orders bucket 0: .*gave up after"):
            writer.flush()
        with pytest.raises(NetworkError, match="bucket 0"):
            writer.write(orders(2, 1))
        writer.abort()
    cluster.start()


def test_leaving_by_an_error_sends_nothing_more(client: Client) -> None:
    create(client, PLAIN)
    before = set(threading.enumerate())
    with pytest.raises(ZeroDivisionError), client.log_writer(PATH) as writer:
        writer.write(orders(0, 10))
        raise ZeroDivisionError
    assert client.admin.list_offsets(PATH) == {0: 0}
    with pytest.raises(InvalidTable, match="closed"):
        writer.write(orders(0, 1))
    with finding():
        wait_for("its threads to end", lambda: not writers_since(before))


def writers_since(before: set[threading.Thread]) -> list[threading.Thread]:
    """Other tests may have left threads that still end."""
    now = set(threading.enumerate()) - before
    return [thread for thread in now if thread.name.startswith("sluice-write")]


@pytest.mark.parametrize("buckets", [1, 4])
def test_nothing_is_lost_or_doubled_when_the_server_restarts(
    client: Client, cluster: Any, buckets: int
) -> None:
    create(client, PLAIN, bucket_count=buckets, bucket_keys=("id",))
    written = threading.Event()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            with client.log_writer(PATH) as writer:
                for i in range(300):
                    writer.write(orders(i * 10, 10))
                    if i % 3 == 0:
                        writer.flush()
                    if i == 100:
                        written.set()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert written.wait(60)
    for _ in range(2):
        cluster.stop(grace_s=0)
        cluster.start()
    thread.join(60)
    assert errors == []
    reader = client.log_reader(PATH)
    found = [ids(reader.read(bucket(client, number))) for number in range(buckets)]
    assert sorted(chain.from_iterable(found)) == list(range(3000))
    assert all(part == sorted(part) for part in found)


def test_a_batch_whose_answer_is_late_is_stored_once(client: Client, cluster: Any) -> None:
    create(client, PLAIN)
    begun, release = threading.Event(), threading.Event()
    appends: list[None] = []

    def hold() -> None:
        appends.append(None)
        if len(appends) == 2:
            begun.set()
            release.wait(60)

    cluster.files.before_append = hold
    config = ClientConfig(bootstrap=cluster.address, request_timeout_ms=300)
    with connect(config) as hasty, hasty.log_writer(PATH) as writer:
        writer.write(orders(0, 10))
        writer.flush()
        writer.write(orders(10, 10))
        with pytest.raises(RequestTimeOut, match="not all batches were stored"):
            writer.flush(timeout_s=1.0)  # long enough for a second try
        assert begun.wait(60)
        release.set()
        writer.write(orders(20, 10))
        writer.flush()
    assert len(appends) == 3
    assert ids(client.log_reader(PATH).read(bucket(client))) == list(range(30))


def test_a_full_disk_is_named_and_costs_nothing_that_was_stored(
    client: Client, cluster: Any
) -> None:
    create(client, PLAIN)
    write(client, orders(0, 10))

    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    cluster.files.before_append = full
    writer = client.log_writer(PATH)
    writer.write(orders(10, 10))
    with pytest.raises(LogStorageError, match=r"orders bucket 0: .*No space left.*3 attempts"):
        writer.flush()
    writer.abort()
    cluster.files.before_append = lambda: None
    write(client, orders(10, 10))
    assert ids(client.log_reader(PATH).read(bucket(client))) == list(range(20))


def test_a_damaged_batch_is_not_passed_on(client: Client, cluster: Any, tmp_path: Any) -> None:
    create(client, PLAIN)
    write(client, orders(0, 1000))
    (segment,) = [p for p in (tmp_path / "data").rglob("*.log") if p.stat().st_size > 100]
    content = bytearray(segment.read_bytes())
    content[-10] ^= 1
    segment.write_bytes(content)
    with pytest.raises(CorruptRecord, match=r"bucket 0 of table shop\.orders: .*checksum"):
        list(client.log_reader(PATH).read(bucket(client)))
