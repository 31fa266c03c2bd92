"""What is sent again, how often and after what wait; time and chance belong to the test."""

from __future__ import annotations

import pytest

from sluice.client.connection.retry import RULES, RetryPolicy, call_with_retries, rule_for
from sluice.errors import (
    BY_CODE,
    CorruptRecord,
    FencedTieringEpoch,
    FlussError,
    LogStorageError,
    NetworkError,
    NotLeaderOrFollower,
    PartitionNotExists,
    RequestTimeOut,
    SchemaNotExist,
    TableNotExist,
    UnknownServerError,
)


class Time:
    """A clock that sleeping moves."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.waits: list[float] = []

    def now(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now_s += seconds


def run(
    errors: list[FlussError], *, idempotent: bool = True, timeout_ms: int = 60_000
) -> tuple[Time, list[FlussError]]:
    """Fails with each of the errors in turn, then answers; what was seen between attempts."""
    time, seen = Time(), list[FlussError]()
    left = list(errors)

    def attempt() -> str:
        if left:
            raise left.pop(0)
        return "answer"

    answer = call_with_retries(
        attempt,
        RetryPolicy(timeout_ms),
        idempotent=idempotent,
        on_retry=lambda error, rule: seen.append(error),
        sleep=time.sleep,
        now=time.now,
        random=lambda: 1.0,
    )
    assert answer == "answer"
    return time, seen


def test_waits_double_up_to_a_ceiling() -> None:
    time, seen = run([NetworkError("down")] * 7)
    assert time.waits == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    assert len(seen) == 7


def test_jitter_takes_anything_from_nothing_to_the_ceiling() -> None:
    policy = RetryPolicy(1000)
    assert policy.wait_s(3, lambda: 0.0) == 0.0
    assert policy.wait_s(3, lambda: 0.5) == 0.2
    assert policy.wait_s(10_000, lambda: 1.0) == 2.0


def test_gives_up_in_time_and_says_how_often_it_tried() -> None:
    with pytest.raises(NetworkError, match=r"^down \(gave up after 4 attempts in 0.7 s\)$"):
        run([NetworkError("down")] * 99, timeout_ms=1000)


def test_without_time_for_retries_the_error_comes_as_it_is() -> None:
    with pytest.raises(NetworkError, match="^down$"):
        run([NetworkError("down")], timeout_ms=0)


@pytest.mark.parametrize("error", [NetworkError("lost"), RequestTimeOut("late")])
def test_an_unknown_outcome_is_repeated_only_if_that_is_safe(error: FlussError) -> None:
    run([error], idempotent=True)
    with pytest.raises(type(error)):
        run([error], idempotent=False)


def test_what_was_never_sent_or_was_refused_is_always_repeated() -> None:
    run([NetworkError("down", sent=False), NotLeaderOrFollower("moved")], idempotent=False)


@pytest.mark.parametrize(
    "cls",
    [TableNotExist, PartitionNotExists, SchemaNotExist, FencedTieringEpoch, CorruptRecord],
)
def test_no_such_thing_and_fenced_are_final(cls: type[FlussError]) -> None:
    with pytest.raises(cls, match="^no$"):
        run([cls("no")])


def test_an_error_marked_final_is_final() -> None:
    with pytest.raises(NetworkError, match="^closed$"):
        run([NetworkError("closed", final=True)])


def test_a_storage_that_keeps_failing_is_not_tried_forever() -> None:
    with pytest.raises(LogStorageError, match="after 3 attempts"):
        run([LogStorageError("disk full")] * 99)


def test_every_rule_is_for_an_error_of_fluss_and_unknown_ones_have_none() -> None:
    assert set(RULES) <= set(BY_CODE.values())
    assert rule_for(UnknownServerError("?"), idempotent=True) is None


def test_details_survive_the_last_attempt() -> None:
    with pytest.raises(NetworkError) as caught:
        run([NetworkError("down", sent=False)] * 99, timeout_ms=500)
    assert caught.value.details == {"sent": False, "gave_up": True}
