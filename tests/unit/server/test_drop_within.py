"""Partitions are dropped unless their logs have rows, and no append comes in between."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait

import pytest

from sluice.errors import StorageError, UnknownTableOrBucket
from sluice.formats.log.batch import iter_batches
from sluice.model import TableBucket
from sluice.server.tablet.logs.log import BucketLog
from sluice.server.tablet.logs.manager import LogManager
from tests.unit.server.support import Node, batch


@pytest.fixture
def buckets(node: Node) -> list[TableBucket]:
    """Two buckets with a row each."""
    table = node.caller.create_table(bucket_count=2)
    for number in (0, 1):
        node.caller.produce(table, batch("row"), number)
    return [TableBucket(table, None, number) for number in (0, 1)]


def logs_of(node: Node) -> LogManager:
    assert node.cluster._parts is not None
    return node.cluster._parts._logs


def append(log: BucketLog) -> int:
    ((header, content),) = iter_batches(batch("more"))
    return log.append(header, bytes(content))


@pytest.mark.parametrize(("ends", "dropped"), [((1, 1), True), ((1, 0), False), ((0, 1), False)])
def test_a_row_in_any_bucket_keeps_all(
    node: Node, buckets: list[TableBucket], ends: tuple[int, int], dropped: bool
) -> None:
    calls: list[None] = []
    logs = logs_of(node)
    limits = dict(zip(buckets, ends, strict=True))
    assert logs.drop_within(limits, lambda: calls.append(None)) == dropped == bool(calls)
    log = logs.opened(buckets[0])
    assert log is not None
    if dropped:
        with pytest.raises(UnknownTableOrBucket, match="was dropped"):
            append(log)
    else:
        assert append(log) == 1


def test_an_append_waits_for_the_drop_and_fails(node: Node, buckets: list[TableBucket]) -> None:
    logs = logs_of(node)
    log = logs.opened(buckets[1])
    assert log is not None
    with ThreadPoolExecutor(1) as threads:
        running: list[Future[int]] = []

        def drop() -> None:
            running.append(threads.submit(append, log))
            assert not wait(running, 0.1).done

        assert logs.drop_within(dict.fromkeys(buckets, 1), drop)
        with pytest.raises(UnknownTableOrBucket):
            running[0].result(60)
    assert log.end_offset == 1


def test_the_first_append_to_a_bucket_waits_for_the_drop(node: Node) -> None:
    """It has no log yet that could be held."""
    table = node.caller.create_table(bucket_count=2)
    node.caller.produce(table, batch("row"), 0)
    logs = logs_of(node)
    written, new = (TableBucket(table, None, number) for number in (0, 1))
    hosted = logs._tables.find(table)
    assert hosted is not None
    with ThreadPoolExecutor(1) as threads:
        running: list[Future[BucketLog]] = []

        def drop() -> None:
            running.append(threads.submit(logs.find, hosted, new))
            assert not wait(running, 0.1).done
            assert logs.opened(new) is None

        assert logs.drop_within({written: 1, new: 0}, drop)
        assert running[0].result(60) is logs.opened(new)


def test_a_drop_that_fails_leaves_the_logs_open(node: Node, buckets: list[TableBucket]) -> None:
    def drop() -> None:
        raise StorageError("the disk is full")

    with pytest.raises(StorageError):
        logs_of(node).drop_within(dict.fromkeys(buckets, 1), drop)
    assert node.caller.produce(buckets[0].table_id, batch("row")) == 1
