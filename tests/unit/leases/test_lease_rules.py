"""The rules of leases, one by one; the random histories are in test_leases_stateful.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.errors import AuthorizationError, InvalidLease, LeaseNotExist
from sluice.leases import (
    BUCKETS_PER_CALL_MAX,
    DURATION_MAX_MS,
    DURATION_MIN_MS,
    LEASES_MAX,
    PLAIN,
    RESTART_GRACE_MS,
    Change,
    Leases,
    SnapshotsByBucket,
    SnapshotsByTable,
)
from sluice.model import NOBODY, Caller, TableBucket

HOUR = 3_600_000


def there(bucket: TableBucket, snapshot_id: int) -> bool:
    """Snapshots below 100 are gone."""
    return snapshot_id >= 100


def acquire(
    leases: Leases,
    wanted: SnapshotsByTable,
    lease_id: str = "a",
    now: int = 0,
    duration: int = HOUR,
) -> SnapshotsByTable:
    found = leases.acquire(lease_id, duration, wanted, now, now, there)
    leases.apply([found.change] if found.change else [])
    return found.unavailable


def held(leases: Leases, lease_id: str = "a") -> SnapshotsByTable:
    lease = leases.get(lease_id)
    return {} if lease is None else lease.held


def leased(leases: Leases, snapshot_id: int, bucket: int = 0, partition: int | None = None) -> bool:
    return leases.is_leased(TableBucket(1, partition, bucket), snapshot_id)


def test_what_is_gone_is_told_and_the_rest_is_held() -> None:
    leases = Leases()
    wanted = {1: {(PLAIN, 0): 100, (PLAIN, 1): 7}, 2: {(5, 0): 8}}
    assert acquire(leases, wanted) == {1: {(PLAIN, 1): 7}, 2: {(5, 0): 8}}
    assert held(leases) == {1: {(PLAIN, 0): 100}}
    assert leased(leases, 100)
    assert not leased(leases, 7, bucket=1)
    assert leases.held == 1


def test_a_lease_that_would_hold_nothing_is_not_made() -> None:
    leases = Leases()
    assert acquire(leases, {1: {(PLAIN, 0): 7}}) == {1: {(PLAIN, 0): 7}}
    assert leases.all() == []


def test_nothing_changes_before_a_change_is_applied() -> None:
    leases = Leases()
    leases.acquire("a", HOUR, {1: {(PLAIN, 0): 100}}, 0, 0, there)
    assert leases.all() == []
    assert not leased(leases, 100)


def test_acquired_again_a_bucket_gets_the_new_snapshot() -> None:
    leases = Leases()
    acquire(leases, {1: {(PLAIN, 0): 100, (PLAIN, 1): 100}})
    acquire(leases, {1: {(PLAIN, 0): 101}}, now=5)
    assert held(leases) == {1: {(PLAIN, 0): 101, (PLAIN, 1): 100}}
    assert (leased(leases, 100), leased(leases, 101), leases.held) == (False, True, 2)


def test_a_bucket_whose_new_snapshot_is_gone_keeps_the_old_one_and_time_runs_anew() -> None:
    leases = Leases()
    acquire(leases, {1: {(PLAIN, 0): 100}})
    assert acquire(leases, {1: {(PLAIN, 0): 9}}, now=500) == {1: {(PLAIN, 0): 9}}
    assert held(leases) == {1: {(PLAIN, 0): 100}}
    lease = leases.get("a")
    assert lease is not None
    assert (lease.created_ms, lease.renewed_ms, lease.expires_ms) == (0, 500, 500 + HOUR)


def test_a_snapshot_of_two_leases_is_free_when_both_let_go() -> None:
    leases = Leases()
    for lease_id in ("a", "b"):
        acquire(leases, {1: {(PLAIN, 0): 100}}, lease_id)
    for lease_id, still in (("a", True), ("b", False)):
        change = leases.drop(lease_id)
        assert change is not None
        leases.apply([change])
        assert leased(leases, 100) is still
    assert leases.held == 0


def test_renewed_it_lasts_from_now_on() -> None:
    leases = Leases()
    acquire(leases, {1: {(PLAIN, 0): 100}}, duration=HOUR)
    leases.apply([leases.renew("a", 5_000, 100, 100)])
    assert [change.lease_id for change in leases.expired(5_099, RESTART_GRACE_MS)] == []
    assert [change.lease_id for change in leases.expired(5_100, RESTART_GRACE_MS)] == ["a"]


def test_nothing_expires_in_the_first_ten_minutes_after_a_start() -> None:
    leases = Leases()
    acquire(leases, {1: {(PLAIN, 0): 100}})
    assert leases.expired(10 * HOUR, RESTART_GRACE_MS - 1) == []
    assert len(leases.expired(10 * HOUR, RESTART_GRACE_MS)) == 1


def test_a_dropped_lease_cannot_be_renewed_in_either_way() -> None:
    leases = Leases()
    acquire(leases, {1: {(PLAIN, 0): 100}})
    change = leases.drop("a")
    assert change is not None
    leases.apply([change])
    assert leases.drop("a") is None
    with pytest.raises(LeaseNotExist, match="lease a does not exist"):
        leases.renew("a", HOUR, 1, 1)
    for nothing in ({}, {1: {}}):
        with pytest.raises(LeaseNotExist):
            acquire(leases, nothing)
    assert leases.all() == []


def test_acquire_of_nothing_renews() -> None:
    leases = Leases()
    acquire(leases, {1: {(PLAIN, 0): 100}})
    assert acquire(leases, {}, now=7) == {}
    lease = leases.get("a")
    assert lease is not None
    assert (lease.expires_ms, lease.buckets) == (7 + HOUR, 1)


def test_released_buckets_are_let_go_and_an_empty_lease_vanishes() -> None:
    leases = Leases()
    acquire(leases, {1: {(5, 0): 100, (5, 1): 101, (6, 0): 102}})
    change = leases.release("a", [TableBucket(1, 5, 0), TableBucket(9, None, 0)])
    assert change is not None
    leases.apply([change])
    assert held(leases) == {1: {(5, 1): 101, (6, 0): 102}}
    assert leases.release("a", [TableBucket(1, 5, 0)]) is None
    assert leases.release("unknown", [TableBucket(1, 5, 1)]) is None
    change = leases.release("a", [TableBucket(1, 5, 1), TableBucket(1, 6, 0)])
    assert change is not None
    assert change.after is None
    leases.apply([change])
    assert leases.all() == []


def test_a_dropped_partition_or_table_is_let_go() -> None:
    leases = Leases()
    acquire(leases, {1: {(5, 0): 100, (6, 0): 100}, 2: {(PLAIN, 0): 100}}, "a")
    acquire(leases, {1: {(5, 0): 100}}, "b")
    assert leases.partitions() == {(1, 5), (1, 6), (2, None)}
    leases.apply(leases.table_dropped(1, 5))
    assert held(leases, "a") == {1: {(6, 0): 100}, 2: {(PLAIN, 0): 100}}
    assert leases.get("b") is None
    leases.apply(leases.table_dropped(1))
    assert held(leases, "a") == {2: {(PLAIN, 0): 100}}
    assert leases.table_dropped(3) == []


def test_oldest_is_the_lowest_snapshot_id() -> None:
    leases = Leases()
    acquire(leases, {1: {(PLAIN, 0): 105, (PLAIN, 1): 103}, 2: {(7, 0): 104}})
    lease = leases.get("a")
    assert lease is not None
    assert lease.oldest() == (103, 1, (PLAIN, 1))


@pytest.mark.parametrize("lease_id", ["", "a b", "a/b", "ä", "a\n", "x" * 201, "a;b"])
def test_wrong_ids(lease_id: str) -> None:
    leases = Leases()
    with pytest.raises(InvalidLease, match="lease id"):
        acquire(leases, {1: {(PLAIN, 0): 100}}, lease_id)
    with pytest.raises(InvalidLease, match="lease id"):
        leases.renew(lease_id, HOUR, 0, 0)
    with pytest.raises(InvalidLease, match="lease id"):
        leases.release(lease_id, [])


@pytest.mark.parametrize("lease_id", ["a", "sluice-c6ef648e-97e3", "A.b_c:d-9", "x" * 200])
def test_right_ids(lease_id: str) -> None:
    assert acquire(Leases(), {1: {(PLAIN, 0): 100}}, lease_id) == {}


@pytest.mark.parametrize("duration", [-1, 0, DURATION_MIN_MS - 1, DURATION_MAX_MS + 1, 2**63 - 1])
def test_wrong_durations(duration: int) -> None:
    leases = Leases()
    with pytest.raises(InvalidLease, match=f"invalid duration {duration} ms"):
        acquire(leases, {1: {(PLAIN, 0): 100}}, duration=duration)
    acquire(leases, {1: {(PLAIN, 0): 100}})
    with pytest.raises(InvalidLease, match=f"invalid duration {duration} ms"):
        leases.renew("a", duration, 0, 0)


def test_the_most_buckets_of_one_call() -> None:
    many = {(PLAIN, n): 100 for n in range(BUCKETS_PER_CALL_MAX + 1)}
    with pytest.raises(InvalidLease, match="200001 buckets in one call exceed the limit of 200000"):
        acquire(Leases(), {1: many})
    with pytest.raises(InvalidLease, match="200001 buckets in one call"):
        Leases().release("a", [TableBucket(1, None, n) for n in range(BUCKETS_PER_CALL_MAX + 1)])


def test_the_most_leases() -> None:
    leases = Leases()
    for n in range(LEASES_MAX):
        acquire(leases, {1: {(PLAIN, 0): 100}}, f"lease-{n}")
    with pytest.raises(InvalidLease, match="limit of 10000 leases is reached"):
        acquire(leases, {1: {(PLAIN, 0): 100}}, "one-more")
    acquire(leases, {1: {(PLAIN, 0): 101}}, "lease-0")  # those there are go on


def test_the_most_buckets_of_all_leases_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice.leases.limits.HELD_MAX", 3)
    leases = Leases()
    acquire(leases, {1: {(PLAIN, 0): 100, (PLAIN, 1): 100}})
    acquire(leases, {2: {(PLAIN, 0): 100}}, "b")
    with pytest.raises(
        InvalidLease, match="all leases together would have 4 buckets, more than the limit of 3"
    ):
        acquire(leases, {1: {(PLAIN, 2): 100}})
    acquire(leases, {1: {(PLAIN, 0): 101}})  # in place of another


class Watched(dict[int, SnapshotsByBucket]):
    """The held snapshots of a lease. Whoever reads them looks whether one is leased."""

    def __init__(self, holds: SnapshotsByTable, look: Callable[[], bool]) -> None:
        super().__init__(holds)
        self.look, self.seen = look, list[bool]()

    def get(self, *arguments: Any) -> Any:
        self.seen.append(self.look())
        return super().get(*arguments)


def test_a_kept_snapshot_is_leased_at_every_moment_of_a_change() -> None:
    """The thread that deletes snapshots looks without a lock: a change holds before it releases."""
    leases = Leases()
    acquire(leases, {1: {(PLAIN, 0): 100, (PLAIN, 1): 100}})
    found = leases.acquire("a", HOUR, {1: {(PLAIN, 1): 101}}, 5, 5, there)
    assert found.change is not None
    assert found.change.after is not None
    watched = Watched(found.change.after.held, lambda: leased(leases, 100))
    leases.apply([replace(found.change, after=replace(found.change.after, held=watched))])
    assert watched.seen == [True], "when the new lease is counted"
    assert (leased(leases, 100), leased(leases, 101, bucket=1)) == (True, True)


# ---- what belongs to whom

RIA, ROB, ADA = (
    Caller("ria", is_admin=False),
    Caller("rob", is_admin=False),
    Caller("ada", is_admin=True),
)
WHO = st.sampled_from([RIA, ROB, ADA, NOBODY])
STEP = st.tuples(
    st.sampled_from(["acquire", "release", "drop", "table"]),
    st.sampled_from("abc"),
    WHO,
    st.dictionaries(st.tuples(st.just(PLAIN), st.integers(0, 3)), st.integers(99, 102)),
)


@given(st.lists(STEP, max_size=30))
def test_places_are_counted_for_the_owner_whoever_changes_a_lease(steps: list[Any]) -> None:
    leases = Leases()
    for now, (what, lease_id, by, wanted) in enumerate(steps):
        lease = leases.get(lease_id)
        may = lease is None or by.is_admin or lease.owner in ("", by.name)
        buckets = [TableBucket(1, None, bucket) for _, bucket in wanted]
        changes: Sequence[Change | None] = ()
        try:
            if what == "acquire" and wanted:
                found = leases.acquire(lease_id, HOUR, {1: wanted}, now, now, there, by)
                changes = [found.change]
            elif what == "release":
                changes = [leases.release(lease_id, buckets, by)]
            elif what == "drop":
                changes = [leases.drop(lease_id, by)]
            elif what == "table":
                changes, may = leases.table_dropped(1), True
        except AuthorizationError:
            assert not may
        else:
            assert may or (what == "acquire" and not wanted)
        leases.apply(change for change in changes if change)
        after = leases.get(lease_id)
        if lease is not None and after is not None:
            assert after.owner == lease.owner
        for name in ("", "ria", "rob", "ada"):
            owned = [one for one in leases.all() if one.owner == name]
            assert leases.places_of(name) == (len(owned), sum(one.buckets for one in owned))
