"""Which snapshots expire after a round: the rule alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from sluice.model import types as t
from sluice.rounds.values.expiry import (
    AUTO_EXPIRE,
    GOING_MAX,
    GOING_MIN,
    MAIN,
    ROUND_MS_KEY,
    TAG,
    ExpiryRule,
    Reference,
    StoredSnapshots,
    is_expired_after_rounds,
)
from sluice.rounds.values.history import HistoryEntry
from sluice.rounds.values.offsets import OFFSETS_FILE_KEY
from sluice.rounds.values.types import COMMIT_USER, COMMIT_USER_KEY
from tests.support.models.tables import table_info

HOUR_MS = 3_600_000
NOW_MS = 1_000 * HOUR_MS
OURS = {COMMIT_USER_KEY: COMMIT_USER}
MAX_AGE = "history.expire.max-snapshot-age-ms"
MIN_KEPT = "history.expire.min-snapshots-to-keep"
HOURLY = {MAX_AGE: str(10 * HOUR_MS)}
"""Snapshots of more than ten hours are old."""
RULE = ExpiryRule(NOW_MS, 1, 1, frozenset({0}))
"""Of a round that has committed snapshot 0, and was planned from snapshot 1."""


def entry(
    number: int, *, age_h: float | None = None, parent: int | None = None, ours: bool = True
) -> HistoryEntry:
    """A snapshot of main: number n is n hours old, and follows number n + 1."""
    made_ms = NOW_MS - round((number if age_h is None else age_h) * HOUR_MS)
    after = number + 1 if parent is None else parent
    return HistoryEntry(number, after, 1_000 - number, OURS if ours else {}, made_ms)


def stored(
    count: int = 30,
    *changed: HistoryEntry,
    properties: Mapping[str, str] = HOURLY,
    **references: Reference,
) -> StoredSnapshots:
    """A snapshot each hour, by rounds."""
    entries = {n: entry(n) for n in range(count)} | {one.snapshot_id: one for one in changed}
    main = {MAIN: Reference(0, is_branch=True), TAG: Reference(0)}
    return StoredSnapshots(entries, {**main, **references}, properties)


def staying(rule: ExpiryRule, of: StoredSnapshots) -> list[int]:
    going = rule.choose(of)
    assert len(going) >= GOING_MIN
    return sorted(of.entries.keys() - set(going))


def test_snapshots_of_more_than_the_tables_age_go_the_oldest_first() -> None:
    assert RULE.choose(stored()) == tuple(range(29, 10, -1))
    five_days = stored(140, properties={})
    assert staying(RULE, five_days) == list(range(121))


def test_the_least_number_of_main_stays() -> None:
    assert staying(RULE, stored(properties={**HOURLY, MIN_KEPT: "15"})) == list(range(15))


@pytest.mark.parametrize("name", [MAX_AGE, MIN_KEPT, "history.expire.max-ref-age-ms"])
def test_a_property_that_is_no_number_is_named(name: str) -> None:
    of = stored(properties={name: "5d"}, old=Reference(3))
    with pytest.raises(ValueError, match=f"{name}='5d' is not a whole number"):
        RULE.choose(of)


def test_nothing_goes_before_five_or_a_tenth_can_go() -> None:
    assert RULE.choose(stored(15)) == ()
    assert len(RULE.choose(stored(16))) == GOING_MIN
    long = {MAX_AGE: str(99 * HOUR_MS)}
    assert RULE.choose(stored(109, properties=long)) == ()
    assert len(RULE.choose(stored(110, properties=long))) == 10


def test_a_snapshot_younger_than_twice_the_longest_round_stays() -> None:
    """So does the one that was main's at that time: somebody may have planned from it."""
    long = replace(RULE, round_ms=8 * HOUR_MS)
    assert staying(long, stored()) == list(range(17))
    slow = replace(entry(12), summary={**OURS, ROUND_MS_KEY: str(9 * HOUR_MS)})
    assert staying(long, stored(30, slow)) == list(range(19))
    theirs = replace(slow, summary={ROUND_MS_KEY: str(10 * HOUR_MS)})  # by another writer
    assert staying(long, stored(30, theirs)) == list(range(17))
    strange = replace(slow, summary={**OURS, ROUND_MS_KEY: "soon"})
    assert staying(RULE, stored(30, strange)) == list(range(11))


def test_a_snapshot_that_was_mains_until_just_now_stays() -> None:
    """A table without new rows for days: its readers began on an old snapshot."""
    of = stored(30, entry(1, age_h=40), *(entry(n, age_h=40 + n) for n in range(2, 30)))
    rule = replace(RULE, base=0, kept=frozenset())
    assert staying(rule, of) == [0, 1]


def test_what_is_tagged_registered_current_or_the_base_stays() -> None:
    old = stored(30, *(entry(n, age_h=90 + n) for n in range(30)))
    assert staying(RULE, old) == [0, 1]
    registered = replace(RULE, kept=frozenset({0, 20}))
    assert staying(registered, old) == [0, 1, 20]
    tagged = replace(old, references={**old.references, TAG: Reference(25)})
    assert staying(RULE, tagged) == [0, 1, 25]
    assert staying(replace(RULE, base=4), old) == [0, 1, 2, 3, 4]  # main's way to the base


def test_main_stays_if_the_base_is_not_on_it() -> None:
    """Expiry by others has cut it off: rounds find it by what is left of main."""
    old = stored(30, *(entry(n, age_h=90 + n) for n in range(30)))
    assert replace(RULE, base=None).choose(old) == ()
    cut = {n: one for n, one in old.entries.items() if n != 3}
    rule = replace(RULE, base=20)
    assert staying(rule, replace(old, entries=cut)) == [0, 1, 2, 20]


def test_a_snapshot_that_stays_keeps_the_tiering_snapshot_below_it() -> None:
    """A user may go back to it, and only that one says which offsets it has."""
    others = [entry(n, ours=False) for n in range(8, 14)]
    assert staying(RULE, stored(30, *others)) == [*range(15)]
    old = stored(40, *(entry(n, ours=False) for n in range(20, 24)), audit=Reference(20))
    left = staying(RULE, old)
    assert left == [*range(11), *range(20, 25)]
    again = replace(old, entries={n: old.entries[n] for n in left})
    again = replace(again, entries={**again.entries, **{n: entry(n) for n in range(30, 50)}})
    assert 24 in staying(RULE, again)  # the next expiry finds the way to it, too


def test_an_expiry_has_a_bound() -> None:
    assert len(RULE.choose(stored(1_000))) == GOING_MAX


def test_branches_and_tags_stay_up_to_their_own_age() -> None:
    references = {
        "old": Reference(20, max_ref_age_ms=19 * HOUR_MS),
        "young": Reference(21, max_ref_age_ms=22 * HOUR_MS),
        "forever": Reference(25),
    }
    assert staying(RULE, stored(**references)) == [*range(11), 21, 25]
    short = {**HOURLY, "history.expire.max-ref-age-ms": str(HOUR_MS)}
    assert staying(RULE, stored(properties=short, **references)) == [*range(11), 21]
    tag = {TAG: Reference(22)}
    assert staying(RULE, stored(properties=short, **tag)) == [*range(11), 22]
    assert not RULE.keeps_reference(stored(lost=Reference(99)), "lost")


def test_a_branch_keeps_its_own_number_and_age() -> None:
    side = [entry(n, parent=n + 1 if n < 109 else 29) for n in range(100, 110)]
    few = Reference(100, is_branch=True, min_snapshots_to_keep=3)
    assert staying(RULE, stored(30, *side, side=few)) == [*range(11), 100, 101, 102]
    aged = Reference(100, is_branch=True, max_snapshot_age_ms=106 * HOUR_MS)
    assert staying(RULE, stored(30, *side, side=aged)) == [*range(11), *range(100, 107)]


def test_a_snapshot_that_nobody_references_stays_up_to_the_tables_age() -> None:
    young = entry(50, age_h=9, parent=12, ours=False)
    old = entry(51, age_h=11, parent=13, ours=False)
    assert staying(RULE, stored(30, young, old)) == [*range(11), 12, 50]


def test_offsets_files_go_with_the_last_snapshot_that_names_them() -> None:
    named = {n: {**OURS, OFFSETS_FILE_KEY: f"/f{n // 2}"} for n in range(20, 25)}
    of = stored(30, *(replace(entry(n), summary=summary) for n, summary in named.items()))
    assert of.offsets_files_of_only((29, 24, 23, 22, 21)) == ["/f11", "/f12"]


@pytest.mark.parametrize(
    ("option", "everywhere", "expected"),
    [("true", False, True), ("TRUE", False, True), ("false", True, True), ("false", False, False)],
)
def test_the_option_of_a_table_or_the_setting(
    option: str, everywhere: bool, expected: bool
) -> None:
    info = table_info({"a": t.BIGINT})
    properties = {**info.descriptor.properties, AUTO_EXPIRE: option}
    with_option = replace(info, descriptor=replace(info.descriptor, properties=properties))
    assert is_expired_after_rounds(with_option, everywhere) is expected
    assert not is_expired_after_rounds(info, False)
