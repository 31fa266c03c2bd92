"""Rows into batches, batches onto their way: buffers, sender and prefetch by themselves."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.client.batches.row_buffers import BATCH_ROWS_MAX, RowBuffers
from sluice.client.batches.sender import BatchSender
from sluice.client.log.prefetch import prefetched
from sluice.errors import CorruptRecord, RequestTimeOut, UnknownServerError
from sluice.model import TableBucket
from tests.support.harness.findings import finding
from tests.support.programs.processes import wait_for

A, B = TableBucket(1, None, 0), TableBucket(1, None, 1)


def rows(first: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(range(first, first + count), pa.int64())})


# ---- row buffers ----


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 400)), max_size=20),
    st.integers(1, 2000),
    st.integers(1, 4000),
)
def test_every_row_comes_out_once_in_its_order(
    writes: list[tuple[str, int]], batch_bytes: int, total: int
) -> None:
    buffers: RowBuffers[str] = RowBuffers(batch_bytes, total)
    given_in: dict[str, list[int]] = {"a": [], "b": []}
    taken: dict[str, list[int]] = {"a": [], "b": []}
    for at, (key, count) in enumerate(writes):
        part = rows(at * 1000, count)
        given_in[key] += part["id"].to_pylist()
        for out, batch, _ in buffers.add(key, part):
            assert 0 < batch.nbytes <= max(batch_bytes, 8)
            taken[out] += batch["id"].to_pylist()
    for out, batch, _ in buffers.take_all():
        taken[out] += batch["id"].to_pylist()
    assert taken == given_in
    assert list(buffers.take_all()) == []


def test_batches_have_about_the_wanted_size() -> None:
    buffers: RowBuffers[str] = RowBuffers(8000, 1 << 30)
    sizes = [batch.num_rows for _, batch, _ in buffers.add("a", rows(0, 2500))]
    assert sizes == [1000, 1000]
    assert [batch.num_rows for _, batch, _ in buffers.add("a", rows(0, 600))] == [1000]


def test_narrow_rows_do_not_make_batches_of_any_length() -> None:
    buffers: RowBuffers[str] = RowBuffers(1 << 30, 1 << 40)
    batches = [batch for _, batch, _ in buffers.add("a", rows(0, 2 * BATCH_ROWS_MAX + 1))]
    assert [batch.num_rows for batch in batches] == [BATCH_ROWS_MAX, BATCH_ROWS_MAX]


def test_what_waits_over_all_keys_is_bounded() -> None:
    buffers: RowBuffers[int] = RowBuffers(8000, 40_000)
    out = [key for key in range(20) for _ in buffers.add(key, rows(0, 300))]
    assert len(out) >= 8  # 20 * 2400 bytes are more than 40,000


# ---- sender ----


def sender(send: object, threads: int = 2, queued_bytes_max: int = 100) -> BatchSender:
    return BatchSender(
        send,  # type: ignore[arg-type]
        threads=threads,
        queued_bytes_max=queued_bytes_max,
        name="test-sender",
    )


def test_batches_of_a_bucket_go_one_after_another_buckets_side_by_side() -> None:
    lock = threading.Lock()
    under_way: set[TableBucket] = set()
    together = threading.Barrier(2)
    sent: dict[TableBucket, list[bytes]] = {A: [], B: []}

    def send(bucket: TableBucket, records: bytes) -> None:
        with lock:
            assert bucket not in under_way
            under_way.add(bucket)
        together.wait(60)
        with lock:
            sent[bucket].append(records)
            under_way.remove(bucket)

    sending = sender(send)
    for i in range(10):
        sending.put(A, b"%d" % i)
        sending.put(B, b"%d" % i)
    sending.drain(60)
    sending.stop()
    assert sent == {A: [b"%d" % i for i in range(10)], B: [b"%d" % i for i in range(10)]}


def test_a_writer_waits_while_too_much_is_queued() -> None:
    release = threading.Semaphore(0)
    sending = sender(lambda bucket, records: release.acquire(timeout=60), queued_bytes_max=10)
    done = threading.Event()

    def write() -> None:
        for _ in range(3):
            sending.put(A, b"12345")
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    assert not done.wait(0.05)
    release.release()
    assert done.wait(60)
    release.release(2)
    sending.drain(60)
    thread.join()
    sending.stop()


def test_a_batch_larger_than_the_queue_goes_alone() -> None:
    sent: list[int] = []
    sending = sender(lambda bucket, records: sent.append(len(records)), queued_bytes_max=10)
    for _ in range(3):
        sending.put(A, b"x" * 50)
    sending.drain(60)
    sending.stop()
    assert sent == [50, 50, 50]


def test_after_a_failure_nothing_more_is_sent_and_every_call_says_so() -> None:
    sent: list[bytes] = []

    def send(bucket: TableBucket, records: bytes) -> None:
        sent.append(records)
        raise CorruptRecord("bucket 0: bad")

    sending = sender(send)
    sending.put(A, b"first")
    with pytest.raises(CorruptRecord, match="bucket 0: bad"):
        sending.drain(60)
    for _ in range(2):
        with pytest.raises(CorruptRecord, match="bucket 0: bad"):
            sending.put(A, b"second")
        with pytest.raises(CorruptRecord, match="bucket 0: bad"):
            sending.check()
    sending.stop()
    assert sent == [b"first"]


def test_a_failure_wakes_a_writer_that_waits_for_room() -> None:
    go = threading.Event()

    def send(bucket: TableBucket, records: bytes) -> None:
        assert go.wait(60)
        raise CorruptRecord("bad")

    sending = sender(send, queued_bytes_max=5)
    sending.put(A, b"12345")
    timer = threading.Timer(0.05, go.set)
    timer.start()
    with pytest.raises(CorruptRecord):
        sending.put(A, b"12345")
    timer.join()
    sending.stop()


def test_an_unexpected_error_surfaces_too() -> None:
    def send(bucket: TableBucket, records: bytes) -> None:
        raise ZeroDivisionError("oops")

    sending = sender(send)
    sending.put(A, b"x")
    with pytest.raises(UnknownServerError, match="bucket 1:0: ZeroDivisionError: oops"):
        sending.drain(60)
    sending.stop()


def test_waiting_has_a_deadline_that_names_the_buckets() -> None:
    release = threading.Event()
    sending = sender(lambda bucket, records: release.wait(60))
    sending.put(A, b"x")
    sending.put(B, b"x")
    with pytest.raises(RequestTimeOut, match=r"buckets with unsent batches: 1:0, 1:1"):
        sending.drain(0.01)
    release.set()
    sending.drain(60)
    sending.stop()
    with finding():
        wait_for(
            "the sender's threads to end",
            lambda: not [t for t in threading.enumerate() if t.name.startswith("test-sender")],
        )


# ---- prefetch ----


def test_prefetching_keeps_order_and_brings_the_error_last() -> None:
    def make(abandoned: threading.Event) -> Iterator[int]:
        yield from range(5)
        raise CorruptRecord("at the end")

    seen: list[int] = []
    with pytest.raises(CorruptRecord, match="at the end"):
        for item in prefetched(make, 2, "test-prefetch"):
            seen.append(item)  # noqa: PERF402 - what came before the error counts
    assert seen == [0, 1, 2, 3, 4]


def test_prefetching_runs_ahead_but_not_far() -> None:
    made = 0
    third = threading.Event()

    def make(abandoned: threading.Event) -> Iterator[int]:
        nonlocal made
        for i in range(100):
            made += 1
            if made == 3:
                third.set()
            yield i

    items = prefetched(make, 1, "test-prefetch")
    assert next(items) == 0
    assert third.wait(60)  # one in hand, one on the shelf, one waiting for room there
    assert made == 3
    items.close()


def test_leaving_early_ends_the_thread() -> None:
    ended = threading.Event()

    def make(abandoned: threading.Event) -> Iterator[int]:
        try:
            while not abandoned.is_set():
                yield 1
        finally:
            ended.set()

    items = prefetched(make, 1, "test-prefetch")
    next(items)
    items.close()
    assert ended.wait(60)
