"""Offsets of producers: the first registration counts, until it expires."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sluice.errors import InvalidProducerId
from sluice.server.coordinator.calls import producer_offsets
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from tests.unit.server.support import Caller, Node, OwnedClock

CREATED, ALREADY_EXISTS = 0, 1
DAY_MS = 24 * 60 * 60 * 1000
Offsets = dict[tuple[int, int | None, int], int]
"""(table id, partition id, bucket) -> log end offset."""


def register(
    caller: Caller, offsets: Offsets, producer: str = "job-1", ttl_ms: int | None = None
) -> int:
    request = pb.RegisterProducerOffsetsRequest(producer_id=producer, ttl_ms=ttl_ms)
    for (table_id, partition_id, bucket), offset in offsets.items():
        request.table_offsets.add(table_id=table_id).bucket_offsets.add(
            partition_id=partition_id, bucket_id=bucket, log_end_offset=offset
        )
    return int(caller.call(apis.REGISTER_PRODUCER_OFFSETS, request).result)


def get(caller: Caller, producer: str = "job-1") -> tuple[int, Offsets] | None:
    """When the offsets expire, and the offsets; None: there are none."""
    request = pb.GetProducerOffsetsRequest(producer_id=producer)
    answer = caller.call(apis.GET_PRODUCER_OFFSETS, request)
    if not answer.HasField("producer_id"):
        assert answer == pb.GetProducerOffsetsResponse()
        return None
    assert answer.producer_id == producer
    return answer.expiration_time, {
        (
            table.table_id,
            each.partition_id if each.HasField("partition_id") else None,
            each.bucket_id,
        ): each.log_end_offset
        for table in answer.table_offsets
        for each in table.bucket_offsets
    }


def delete(caller: Caller, producer: str = "job-1") -> None:
    request = pb.DeleteProducerOffsetsRequest(producer_id=producer)
    caller.call(apis.DELETE_PRODUCER_OFFSETS, request)


FIRST: Offsets = {(0, None, 0): 3, (0, None, 1): 0, (7, 2, 0): 1 << 40}


def test_the_first_registration_counts_also_after_a_restart(
    start: Callable[..., Node], clock: OwnedClock
) -> None:
    node = start(clock=clock)
    assert get(node.caller) is None
    assert register(node.caller, FIRST) == CREATED
    assert register(node.caller, {(0, None, 0): 99}) == ALREADY_EXISTS
    assert register(node.caller, {}, "job-2") == CREATED
    expected = clock.ms + DAY_MS, FIRST
    assert get(node.caller) == expected
    node.restart()
    assert get(node.caller) == expected
    assert get(node.caller, "job-2") == (clock.ms + DAY_MS, {})
    delete(node.caller)
    delete(node.caller)
    assert get(node.caller) is None
    assert register(node.caller, {(0, None, 0): 99}) == CREATED
    assert get(node.caller) == (clock.ms + DAY_MS, {(0, None, 0): 99})


def test_offsets_expire(start: Callable[..., Node], clock: OwnedClock) -> None:
    caller = start(clock=clock).caller
    register(caller, FIRST, ttl_ms=5_000)
    clock.jump(5_000)
    assert register(caller, {}) == ALREADY_EXISTS
    clock.jump(1)
    assert get(caller) is None
    assert register(caller, {(1, None, 0): 4}, ttl_ms=2**63 - 1) == CREATED
    assert get(caller) == (2**63 - 1, {(1, None, 0): 4})


def test_of_two_offsets_of_a_bucket_the_last_one_counts(caller: Caller) -> None:
    request = pb.RegisterProducerOffsetsRequest(producer_id="job-1")
    for offset in (4, 2):
        table = request.table_offsets.add(table_id=1)
        table.bucket_offsets.add(bucket_id=0, log_end_offset=offset)
    caller.call(apis.REGISTER_PRODUCER_OFFSETS, request)
    found = get(caller)
    assert found is not None
    assert found[1] == {(1, None, 0): 2}


@pytest.mark.parametrize("producer", ["", ".", "..", "a b", "a/b", "x" * 201])
def test_wrong_ids_are_refused(caller: Caller, producer: str) -> None:
    for call in (lambda: register(caller, {}, producer), lambda: get(caller, producer)):
        with pytest.raises(InvalidProducerId, match="use 1 to 200 letters"):
            call()
    with pytest.raises(InvalidProducerId):
        delete(caller, producer)


def test_there_are_not_endlessly_many(
    start: Callable[..., Node], clock: OwnedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_offsets, "PRODUCERS_MAX", 3)
    caller = start(clock=clock).caller
    for n in range(3):
        assert register(caller, FIRST, f"job-{n}", ttl_ms=1_000 * (n + 1)) == CREATED
    with pytest.raises(InvalidProducerId, match="'job-3': the server keeps the offsets of 3"):
        register(caller, FIRST, "job-3")
    assert register(caller, {}, "job-1") == ALREADY_EXISTS
    clock.jump(1_001)
    assert register(caller, FIRST, "job-3") == CREATED, "job-0 has expired and makes room"
