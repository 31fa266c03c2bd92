"""Tables that are handed out and not wanted: held, and back once, when all is claimed."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from sluice.client.tiering.claim_session import HELD_MAX, ClaimSession
from sluice.errors import FencedTieringEpoch, FlussError, NetworkError
from sluice.model import Claim, TablePath
from sluice.statuses.recorded import ASSIGNED_AGAIN


class Coordinator:
    """Hands out any table; one that comes back is the last of the queue, with a new epoch."""

    def __init__(self, tables: int) -> None:
        self.queue = [Claim(i, TablePath("shop", f"t{i}"), 1, 3) for i in range(tables)]
        self.back: list[tuple[int, str]] = []
        self.gone: set[int] = set()
        self.asked: list[list[int]] = []
        self.claim_timeout_s: float | None = 120.0

    def take(self) -> Claim | None:
        return self.queue.pop(0) if self.queue else None

    def give_back(self, claim: Claim, reason: str) -> None:
        if claim.table_id in self.gone:
            raise FencedTieringEpoch("another round has started")
        self.back.append((claim.table_id, reason))

    def heartbeat(
        self,
        claims: list[Claim],
        *,
        retry: bool = True,
    ) -> dict[int, FlussError | None]:
        return {claim.table_id: None for claim in claims}

    def claim_session(self, *wanted: int) -> ClaimSession:
        def why_not(claims: Sequence[Claim]) -> list[str | None]:
            self.asked.append([claim.table_id for claim in claims])
            return [None if c.table_id in wanted else f"t{c.table_id} is paused" for c in claims]

        return ClaimSession(self.take, why_not, self.give_back, self)


def test_all_that_is_wanted_comes_before_anything_goes_back() -> None:
    fluss = Coordinator(5)
    with fluss.claim_session(1, 4) as tables:
        found = [tables.next(), tables.next(), tables.next()]
        assert [claim and claim.table_id for claim in found] == [1, 4, None]
        assert fluss.back == []
    assert fluss.back == [(i, f"t{i} is paused") for i in (0, 2, 3)]


def test_a_claim_that_a_worker_holds_does_not_go_back_and_is_not_kept_alive() -> None:
    fluss = Beating(2)
    reasons = {0: ASSIGNED_AGAIN}
    with ClaimSession(
        fluss.take,
        lambda claims: [reasons.get(claim.table_id) for claim in claims],
        fluss.give_back,
        fluss,
    ) as tables:
        assert [claim.table_id for claim in tables.take(3)] == [1]
        tables._heartbeats.beat()
    assert fluss.beats == [[1]]
    assert fluss.back == []


@pytest.mark.parametrize("together", [1, 3])
def test_a_claim_that_is_assigned_twice_is_one_and_ends_no_search(together: int) -> None:
    """Both an unsuitable and a suitable one: neither says that all due tables were seen."""
    fluss = Coordinator(4)
    unwanted, first, *others = fluss.queue
    fluss.queue = [unwanted, unwanted, first, first, *others]
    found: list[int] = []
    with fluss.claim_session(1, 3) as tables:
        while claims := tables.take(together):
            found += [claim.table_id for claim in claims]
    assert found == [1, 3]
    assert [table for table, _ in fluss.back] == [0, 2]


def test_a_table_that_comes_again_ends_the_search() -> None:
    """Its claim was taken back meanwhile: whatever waits has been seen."""
    fluss = Coordinator(2)
    again = Claim(0, TablePath("shop", "t0"), 2, 3)
    fluss.queue += [again, Claim(9, TablePath("shop", "t9"), 1, 3)]
    with fluss.claim_session(9) as tables:
        assert tables.next() is None
    assert [table for table, _ in fluss.back] == [0, 1], "once each"


def test_several_are_asked_about_at_once() -> None:
    fluss = Coordinator(6)
    with fluss.claim_session(1, 3, 4, 5) as tables:
        assert [claim.table_id for claim in tables.take(3)] == [1, 3, 4]
        assert fluss.asked == [[0, 1, 2], [3, 4]], "no more than are wanted"
        assert [claim.table_id for claim in tables.take(3)] == [5]
        assert tables.take(3) == []
    assert [table for table, _ in fluss.back] == [0, 2]


def test_what_was_claimed_with_others_goes_back_after_an_error() -> None:
    fluss = Coordinator(3)

    def unreadable(claims: Sequence[Claim]) -> list[str | None]:
        raise NetworkError("the statuses are away")

    session = ClaimSession(fluss.take, unreadable, fluss.give_back, fluss)
    with pytest.raises(NetworkError), session as tables:
        tables.take(2)
    assert [table for table, _ in fluss.back] == [0, 1]


def test_the_search_has_a_bound() -> None:
    fluss = Coordinator(HELD_MAX + 5)
    with fluss.claim_session() as tables:
        assert tables.next() is None
        assert len(fluss.queue) == 5
    assert len(fluss.back) == HELD_MAX


def test_one_that_cannot_go_back_keeps_no_other(caplog: pytest.LogCaptureFixture) -> None:
    fluss = Coordinator(3)
    fluss.gone = {1}
    with caplog.at_level(logging.WARNING), fluss.claim_session() as tables:
        assert tables.next() is None
    assert [table for table, _ in fluss.back] == [0, 2]
    assert "table shop.t1: the unsuitable claim could not be released" in caplog.text


def test_what_is_held_goes_back_after_an_error_too() -> None:
    fluss = Coordinator(2)
    with pytest.raises(NetworkError), fluss.claim_session(1) as tables:
        assert tables.next() is not None
        raise NetworkError("the coordinator is away")
    assert fluss.back == [(0, "t0 is paused")]


class Dead(Coordinator):
    """Answers nothing any more."""

    def give_back(self, claim: Claim, reason: str) -> None:
        super().give_back(claim, reason)
        raise NetworkError("the coordinator is away")


def test_a_coordinator_that_is_away_is_asked_once(caplog: pytest.LogCaptureFixture) -> None:
    """Each call has minutes; Fluss takes back by itself what is silent."""
    fluss = Dead(100)
    with caplog.at_level(logging.WARNING), fluss.claim_session() as tables:
        assert tables.next() is None
    assert [table for table, _ in fluss.back] == [0]
    assert "the claims of 100 tables could not be released" in caplog.text


class Beating(Coordinator):
    """Beats once while each table goes back."""

    tables: ClaimSession

    def __init__(self, tables: int) -> None:
        super().__init__(tables)
        self.beats: list[list[int]] = []

    def heartbeat(self, claims: list[Claim], *, retry: bool = True) -> dict[int, FlussError | None]:
        self.beats.append([claim.table_id for claim in claims])
        return super().heartbeat(claims, retry=retry)

    def give_back(self, claim: Claim, reason: str) -> None:
        super().give_back(claim, reason)
        assert not self.tables._heartbeats._stop.is_set()
        self.tables._heartbeats.beat()


def test_all_are_kept_until_the_last_has_gone_back() -> None:
    fluss = Beating(4)
    with fluss.claim_session(3) as tables:
        fluss.tables = tables
        assert tables.next() is not None
    assert fluss.beats == [[1, 2, 3], [2, 3], [3]]
    assert tables._heartbeats._stop.is_set()
