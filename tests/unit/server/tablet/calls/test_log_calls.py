"""ProduceLog, FetchLog, ListOffsets and InitWriter over gRPC."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable

import pytest

from sluice.errors import (
    CorruptRecord,
    DuplicateSequence,
    InvalidRequiredAcks,
    InvalidTimestamp,
    LogOffsetOutOfRange,
    OutOfOrderSequence,
    RecordTooLarge,
    SchemaNotExist,
    UnknownTableOrBucket,
    UnknownWriterId,
)
from sluice.formats.log.batch import iter_batches, read_header
from sluice.server.tablet.logs import fetch
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from tests.unit.server.support import Caller, Node, OwnedClock, batch


def headers(records: bytes) -> list[tuple[int, int]]:
    return [(h.base_offset, h.record_count) for h, _ in iter_batches(records)]


def test_offsets_follow_rows(caller: Caller) -> None:
    table = caller.create_table()
    assert caller.produce(table, batch("a", "b")) == 0
    assert caller.produce(table, batch("c")) == 2
    assert caller.produce(table, batch()) == 3  # an empty batch takes an offset too
    assert caller.produce(table, batch("d")) == 4
    assert caller.offsets(table) == [5]
    assert caller.offsets(table, kind=0) == [0]
    answer = caller.fetch(table, -2)
    assert headers(answer.records) == [(0, 2), (2, 1), (3, 0), (4, 1)]
    assert answer.high_watermark == 5


def test_what_is_fetched_is_what_was_sent(caller: Caller) -> None:
    table = caller.create_table()
    sent = batch("x" * 100, "y")
    before = time.time_ns() // 1_000_000
    caller.produce(table, batch("a"))
    caller.produce(table, sent)
    (_, (header, view)) = iter_batches(caller.fetch(table, 0).records)
    assert header.base_offset == 1
    assert before <= header.timestamp_ms <= time.time_ns() // 1_000_000
    assert bytes(view[8:13]) == sent[8:13]
    assert bytes(view[21:]) == sent[21:]


def test_a_fetch_begins_with_the_batch_that_holds_the_offset(caller: Caller) -> None:
    table = caller.create_table()
    for _ in range(3):
        caller.produce(table, batch("a", "b", "c"))
    assert headers(caller.fetch(table, 4).records) == [(3, 3), (6, 3)]
    assert caller.fetch(table, 9).records == b""


def test_records_are_set_also_where_there_are_none(caller: Caller) -> None:
    """Fluss's Java client reads the field before it asks for it (docs/fluss/messages.md)."""
    table = caller.create_table(bucket_count=4)
    caller.produce(table, batch("a", "b"), 1)
    request = pb.FetchLogRequest(follower_server_id=-1, max_bytes=1 << 20)
    wanted = request.tables_req.add(table_id=table, projection_pushdown_enabled=False)
    for bucket, offset in ((0, 0), (1, 0), (1, 2), (2, 9), (9, 0)):
        wanted.buckets_req.add(bucket_id=bucket, fetch_offset=offset, max_fetch_bytes=1 << 20)
    (answer,) = caller.call(apis.FETCH_LOG, request).tables_resp
    idle, busy, caught_up, beyond, missing = answer.buckets_resp
    for bucket, size in ((idle, 0), (busy, len(batch("a", "b"))), (caught_up, 0)):
        assert bucket.HasField("records")
        assert len(bucket.records) == size
        assert not bucket.HasField("error_code")
    for bucket in (beyond, missing):
        assert bucket.HasField("error_code")
        assert not bucket.HasField("records")
        assert not bucket.HasField("high_watermark")


@pytest.mark.parametrize("offset", [10, -1, -3])
def test_offsets_outside_are_refused(caller: Caller, offset: int) -> None:
    table = caller.create_table()
    caller.produce(table, batch("a", "b", "c"))
    with pytest.raises(LogOffsetOutOfRange, match=rf"offset {offset} .* 0 to 3"):
        caller.fetch(table, offset)


def test_limits_are_kept_but_the_first_batch_is_whole(caller: Caller) -> None:
    table = caller.create_table()
    data = batch("x" * 1000)
    for _ in range(5):
        caller.produce(table, data)
    one = len(data)
    assert len(caller.fetch(table, 0, max_fetch_bytes=1).records) == one
    assert len(caller.fetch(table, 0, max_fetch_bytes=3 * one).records) == 3 * one
    assert len(caller.fetch(table, 0, max_fetch_bytes=3 * one - 1).records) == 2 * one
    assert len(caller.fetch(table, 0, max_bytes=2 * one).records) == 2 * one
    assert len(caller.fetch(table, 2, max_bytes=0).records) == one


def test_the_limit_of_all_buckets(caller: Caller) -> None:
    table = caller.create_table(bucket_count=3)
    data = batch("x" * 1000)
    for bucket in range(3):
        caller.produce(table, data, bucket)
    request = pb.FetchLogRequest(follower_server_id=-1, max_bytes=2 * len(data))
    wanted = request.tables_req.add(table_id=table, projection_pushdown_enabled=False)
    for bucket in range(3):
        wanted.buckets_req.add(bucket_id=bucket, fetch_offset=0, max_fetch_bytes=10)
    (answer,) = caller.call(apis.FETCH_LOG, request).tables_resp
    assert [len(b.records) for b in answer.buckets_resp] == [len(data), len(data), 0]
    assert [b.high_watermark for b in answer.buckets_resp] == [1, 1, 1]


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fetch waits for minutes if it asks for them: nobody has to be quick, nor waits them out."""
    monkeypatch.setattr(fetch, "WAIT_MAX_MS", 200_000)


@pytest.mark.usefixtures("patience")
def test_a_fetch_waits_for_data(caller: Caller) -> None:
    table = caller.create_table()
    answers: list[bytes] = []
    wait = {"min_bytes": 1, "max_wait_ms": 200_000}
    reader = threading.Thread(target=lambda: answers.append(caller.fetch(table, 0, **wait).records))
    reader.start()
    caller.produce(table, batch("a"))
    reader.join(60)  # far less than it would wait for nothing
    assert len(answers) == 1
    assert headers(answers[0]) == [(0, 1)]


def test_a_fetch_does_not_wait_for_ever(caller: Caller) -> None:
    table = caller.create_table()
    assert caller.fetch(table, 0, min_bytes=1, max_wait_ms=20).records == b""
    assert caller.fetch(table, 0, min_bytes=1).records == b""  # 100 ms if it does not say


@pytest.mark.usefixtures("patience")
def test_a_stop_lets_waiting_fetches_answer(start: Callable[..., Node]) -> None:
    node = start()
    table = node.caller.create_table()
    answers: list[bytes] = []
    wait = {"min_bytes": 1, "max_wait_ms": 200_000}
    reader = threading.Thread(
        target=lambda: answers.append(node.caller.fetch(table, 0, **wait).records)
    )
    reader.start()
    while not node.cluster._parts._fetcher._waiters:  # type: ignore[union-attr]
        time.sleep(0.001)
    node.cluster.stop(60)
    reader.join(60)
    assert answers == [b""]


class StopsBehind:
    """A lock, and what somebody else does as soon as it is given back the first time."""

    def __init__(self, lock: threading.Lock, act: Callable[[], None]) -> None:
        self._lock = lock
        self._act: Callable[[], None] | None = act

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        act, self._act = self._act, None
        if act is not None:
            act()


@pytest.mark.usefixtures("patience")
def test_a_stop_just_before_a_fetch_waits_is_not_missed(node: Node) -> None:
    table = node.caller.create_table()
    assert node.cluster._parts is not None
    fetcher = node.cluster._parts._fetcher
    fetcher._lock = StopsBehind(fetcher._lock, fetcher.stop)  # type: ignore[assignment]
    answers: list[bytes] = []
    wait = {"min_bytes": 1, "max_wait_ms": 200_000}
    reader = threading.Thread(
        target=lambda: answers.append(node.caller.fetch(table, 0, **wait).records)
    )
    reader.start()
    reader.join(60)
    assert answers == [b""]


def test_list_offsets_by_time(start: Callable[..., Node], clock: OwnedClock) -> None:
    node = start(clock=clock)
    table = node.caller.create_table()
    for at in (1_000, 2_000, 2_000, 3_000):
        clock.ms = at
        node.caller.produce(table, batch("a", "b"))
    clock.ms = 1_500  # a clock that goes back does not take the log's times back
    node.caller.produce(table, batch("c"))
    clock.ms = 5_000
    expected = {0: 0, 1_000: 0, 1_001: 2, 2_000: 2, 2_500: 6, 3_000: 6, 3_001: 9, 5_000: 9}
    for timestamp, offset in expected.items():
        assert node.caller.offsets(table, kind=2, startTimestamp=timestamp) == [offset]
    with pytest.raises(InvalidTimestamp):
        node.caller.offsets(table, kind=2, startTimestamp=5_001)


def test_bad_batches_are_refused_and_nothing_is_stored(start: Callable[..., Node]) -> None:
    caller = start(max_batch_rows=10).caller
    table = caller.create_table()
    good = batch("a", "b")
    flipped = bytearray(good)
    flipped[-1] ^= 1
    magic = bytearray(good)
    magic[12] = 9
    base = bytearray(good)
    struct.pack_into("<q", base, 0, -5)
    for error, match, records in (
        (CorruptRecord, "checksum", bytes(flipped)),
        (CorruptRecord, "magic 9", bytes(magic)),
        (CorruptRecord, "base offset -5", bytes(base)),
        (CorruptRecord, r"db\.t", good[:-1]),
        (CorruptRecord, r"db\.t", good + good),
        (CorruptRecord, r"db\.t", b""),
        (SchemaNotExist, "schema id 2.*up to 1", batch("a", schema_id=2)),
        (RecordTooLarge, "11 rows, more than the limit of 10", batch(*"abcdefghijk")),
        (UnknownWriterId, "writer id 77", batch("a", writer_id=77, sequence=0)),
    ):
        with pytest.raises(error, match=match):
            caller.produce(table, records)
    assert caller.offsets(table) == [0]
    assert caller.produce(table, good) == 0


def test_unknown_tables_and_buckets(caller: Caller) -> None:
    table = caller.create_table(bucket_count=2)
    for table_id, bucket, partition in ((table + 1, 0, None), (table, 2, None), (table, 0, 5)):
        with pytest.raises(UnknownTableOrBucket):
            caller.produce(table_id, batch("a"), bucket, partition)
        with pytest.raises(UnknownTableOrBucket):
            caller.fetch(table_id, 0, bucket, partition)
    with pytest.raises(UnknownTableOrBucket):
        caller.offsets(table + 1)
    caller.produce(table, batch("a"))
    caller.drop_table()
    with pytest.raises(UnknownTableOrBucket):
        caller.produce(table, batch("a"))


def test_one_bad_bucket_does_not_harm_the_others(caller: Caller) -> None:
    table = caller.create_table(bucket_count=2)
    request = pb.ProduceLogRequest(acks=1, table_id=table, timeout_ms=1_000)
    request.buckets_req.add(bucket_id=0, records=b"nonsense")
    request.buckets_req.add(bucket_id=1, records=batch("a"))
    bad, good = caller.call(apis.PRODUCE_LOG, request).buckets_resp
    assert (bad.error_code, bad.HasField("base_offset")) == (14, False)
    assert (good.HasField("error_code"), good.base_offset) == (False, 0)


def test_acks(caller: Caller) -> None:
    table = caller.create_table()
    request = pb.ProduceLogRequest(acks=2, table_id=table, timeout_ms=1_000)
    with pytest.raises(InvalidRequiredAcks, match="acks = 2"):
        caller.call(apis.PRODUCE_LOG, request)


def test_an_oversized_message_is_refused_and_the_connection_lives(
    start: Callable[..., Node],
) -> None:
    caller = start(max_message_bytes=100_000).caller
    table = caller.create_table()
    with pytest.raises(RecordTooLarge):
        caller.produce(table, bytes(200_000))
    assert caller.produce(table, batch("a")) == 0


# -- idempotent writers


def test_a_repeated_batch_is_stored_once(node: Node) -> None:
    caller = node.caller
    table = caller.create_table()
    writer = caller.init_writer()
    first = [batch(str(n), "-", writer_id=writer, sequence=n) for n in range(7)]
    for n, records in enumerate(first):
        assert caller.produce(table, records) == 2 * n
    for _ in range(2):
        for n in range(2, 7):  # the last five are remembered
            assert caller.produce(table, first[n]) == 2 * n
        with pytest.raises(DuplicateSequence, match="sequence 1 is already stored"):
            caller.produce(table, first[1])
        with pytest.raises(OutOfOrderSequence, match="expected sequence 7, got 8"):
            caller.produce(table, batch("x", writer_id=writer, sequence=8))
        assert caller.offsets(table) == [14]
        node.restart()
        caller = node.caller
    assert caller.produce(table, batch("x", writer_id=writer, sequence=7)) == 14


def test_each_bucket_counts_for_itself(caller: Caller) -> None:
    table = caller.create_table(bucket_count=2)
    writer = caller.init_writer()
    assert caller.produce(table, batch("a", writer_id=writer, sequence=0), 0) == 0
    with pytest.raises(OutOfOrderSequence, match="sequence 1, not 0"):
        caller.produce(table, batch("a", writer_id=writer, sequence=1), 1)
    assert caller.produce(table, batch("a", writer_id=writer, sequence=0), 1) == 0


def test_writer_ids_are_never_given_twice(node: Node) -> None:
    ids = [node.caller.init_writer() for _ in range(3)]
    node.restart()
    ids += [node.caller.init_writer() for _ in range(3)]
    assert len(set(ids)) == 6


def test_many_writers_at_once_lose_nothing(caller: Caller) -> None:
    table = caller.create_table()
    errors: list[BaseException] = []

    def write(name: str) -> None:
        try:
            writer = caller.init_writer()
            for n in range(30):
                caller.produce(table, batch(f"{name}{n}", writer_id=writer, sequence=n))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    found = caller.read_all(table)
    assert [offset for offset, _ in found] == list(range(120))
    writers = [struct.unpack_from("<qi", content, 7) for _, content in found]
    assert len(set(writers)) == 120
    for writer in {w for w, _ in writers}:
        assert [s for w, s in writers if w == writer] == list(range(30))
    assert read_header(caller.fetch(table, 0).records).writer_id >= 0
