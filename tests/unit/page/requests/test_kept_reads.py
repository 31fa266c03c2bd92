"""What the page read before, and what it never tells again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sluice.client import Client, connect
from sluice.errors import (
    AuthorizationError,
    FlussError,
    KvStorageError,
    LogStorageError,
    NetworkError,
    NotLeaderOrFollower,
    RequestTimeOut,
    StorageError,
    TableNotExist,
    UnknownServerError,
)
from sluice.model import TablePath
from sluice.page.local.place import LocalPlace
from sluice.page.requests import calls
from sluice.page.requests.calls import KEPT_MAX, KEPT_SPLITS_MAX, Calls, What
from tests.support.programs.processes import wait_for
from tests.support.statuses.status_shop import OwnClock

PATH = TablePath("shop", "orders")
ROUNDS, DETAILS, LEASES = What("rounds", PATH), What("details", PATH), What("leases")
AWAY = NetworkError("away")


@pytest.fixture
def reads() -> Iterator[Calls]:
    with connect("grpc://127.0.0.1:1") as client:  # no test calls it
        yield Calls(LocalPlace(client))


def failing(error: Exception) -> Any:
    def fail(_: Client) -> int:
        raise error

    return fail


def told(reads: Calls, what: What) -> int | None:
    """What is told of it while the cluster is away."""
    try:
        return reads.read(what, failing(AWAY)).value
    except NetworkError:
        return None


@pytest.mark.parametrize(
    "error",
    [
        RequestTimeOut("late"),
        NotLeaderOrFollower("moved"),
        StorageError("disk"),
        LogStorageError("log"),
        KvStorageError("kv"),
    ],
)
def test_an_error_that_may_pass_tells_what_was_read(reads: Calls, error: FlussError) -> None:
    assert reads.read(ROUNDS, lambda _: 1).old is None
    again = reads.read(ROUNDS, failing(error))
    assert again.value == 1
    assert again.old is not None
    assert error.message in again.old.why


def test_another_error_is_told_and_forgets_nothing(reads: Calls) -> None:
    reads.read(ROUNDS, lambda _: 1)
    with pytest.raises(UnknownServerError):
        reads.read(ROUNDS, failing(UnknownServerError("bug")))
    assert told(reads, ROUNDS) == 1


@pytest.mark.parametrize("error", [TableNotExist("gone"), AuthorizationError("no")])
def test_what_is_gone_or_not_allowed_is_forgotten_as_a_whole(
    reads: Calls, error: FlussError
) -> None:
    for what in (ROUNDS, DETAILS, LEASES):
        reads.read(what, lambda _: 1)
    with pytest.raises(type(error)):
        reads.read(DETAILS, failing(error))
    assert [told(reads, what) for what in (ROUNDS, DETAILS, LEASES)] == [None, None, 1]


def test_few_splits_are_kept(reads: Calls) -> None:
    pages = [What("splits", TablePath("shop", f"t{number}")) for number in range(KEPT_MAX)]
    each = KEPT_SPLITS_MAX // 10
    for what in pages:
        reads.read(what, lambda _: each, splits=lambda count: count)
    assert [told(reads, what) for what in pages] == [None] * (KEPT_MAX - 10) + [each] * 10
    reads.read(pages[0], lambda _: 7, is_kept=False)
    assert told(reads, pages[0]) is None


def test_a_read_is_shared_for_some_seconds() -> None:
    clock = OwnClock()
    with connect("grpc://127.0.0.1:1") as client:
        reads = Calls(LocalPlace(client, clock))
        assert reads.read(ROUNDS, lambda _: 1, shared_ms=5_000).value == 1
        clock.ms += 4_999
        again = reads.read(ROUNDS, lambda _: 2, shared_ms=5_000)
        assert (again.value, again.old) == (1, None)
        assert reads.read(ROUNDS._replace(limit=7), lambda _: 3, shared_ms=5_000).value == 3
        clock.ms += 1
        assert reads.read(ROUNDS, lambda _: 4, shared_ms=5_000).value == 4


@pytest.mark.parametrize(
    ("forgotten", "kept"), [(None, 2), (PATH, None), ("rounds", None), ("leases", 1)]
)
def test_a_slow_read_brings_nothing_back(
    reads: Calls, forgotten: TablePath | str | None, kept: int | None
) -> None:
    """Neither what is older than a later read, nor what was forgotten while it was made."""
    begins, goes_on = threading.Event(), threading.Event()

    def slow(_: Client) -> int:
        begins.set()
        assert goes_on.wait(60)
        return 1

    with ThreadPoolExecutor(1) as viewer:
        first = viewer.submit(reads.read, ROUNDS, slow)
        assert begins.wait(60)
        if forgotten is None:
            reads.read(ROUNDS, lambda _: 2)
        else:
            reads.forget(forgotten)
        goes_on.set()
        assert first.result(60).value == 1
    assert told(reads, ROUNDS) == kept


def test_one_time_limit_is_for_all_calls_of_a_read(
    reads: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "READ_MS", 50)
    goes_on = threading.Event()

    def slow(_: Client) -> int:
        assert goes_on.wait(60)
        return 1

    with pytest.raises(RequestTimeOut, match="within 50 ms"):
        reads.read(ROUNDS, slow)
    goes_on.set()
    wait_for("the read to end", lambda: told(reads, ROUNDS) == 1)
