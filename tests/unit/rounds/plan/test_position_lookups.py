"""Which buckets are looked up, and how a round's budget is divided among them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.model import TableBucket
from sluice.rounds.plan.position_lookups import key_bytes, shares, why_too_much, with_lookups
from sluice.rounds.round.compaction import plan_lookups
from sluice.rounds.values.lake_files import BucketFiles, LiveFile, LiveFiles, PositionLookup
from sluice.rounds.values.limits import LookupBudget
from sluice.rounds.values.types import KeyedSplitOptions, Split, StartMode
from tests.support.models.memory_lake import MemoryLakeTable
from tests.support.models.memory_writer import KeyedFile

BUCKETS = [TableBucket(1, None, number) for number in range(4)]
FILE = LiveFile("a", 5, 100, 40)


def split(number: int, mode: StartMode | None = StartMode.INCREMENTAL) -> Split:
    keyed = None if mode is None else KeyedSplitOptions(("id",), mode)
    return Split(BUCKETS[number], (), 0, 9, keyed=keyed)


def table_with(**rows: int) -> MemoryLakeTable:
    """A data file for each bucket: ``b0=3`` has three rows."""
    table = MemoryLakeTable("mem:/t")
    for name, count in rows.items():
        content = tuple(((i,), {"id": i}) for i in range(count))
        table.keyed[name] = KeyedFile((name[1:],), content)
        table.files[name] = []
    table._put(frozenset(rows), {})
    return table


class TestShares:
    def test_what_small_buckets_leave_goes_to_large_ones(self) -> None:
        needed = dict(zip(BUCKETS, (10, 500, 0, 400), strict=True))
        found = shares(needed, 1000)
        assert [found[bucket] for bucket in BUCKETS] == [333, 590, 250, 495]

    def test_all_get_a_part_if_none_has_enough(self) -> None:
        assert set(shares(dict.fromkeys(BUCKETS, 10**9), 100).values()) == {25}
        assert shares({}, 100) == {}

    @given(
        st.lists(st.integers(0, 1000), min_size=1, max_size=4),
        st.integers(0, 3000),
    )
    def test_the_budget_is_kept_and_used(self, needs: list[int], total: int) -> None:
        needed = dict(zip(BUCKETS, needs, strict=False))
        found = shares(needed, total)
        assert found.keys() == needed.keys()
        read = sum(needed[bucket] for bucket in needed if needed[bucket] <= found[bucket])
        assert read <= total
        assert sum(min(needed[b], found[b]) for b in needed) <= total
        if sum(needs) <= total:
            assert all(needed[bucket] <= found[bucket] for bucket in needed)
        assert all(part >= total // len(needed) for part in found.values())


class TestPlan:
    def test_only_splits_that_may_delete_rows_are_looked_up(self) -> None:
        splits = [
            split(0),
            split(1, StartMode.KV_SNAPSHOT),
            split(2, StartMode.FULL_LOG),
            split(3, None),
        ]
        planned = plan_lookups(table_with(b0=3, b1=2), splits, LookupBudget(900, 7))
        [first, *others] = planned.splits
        assert others == splits[1:]
        lookup = first.keyed.lookup
        assert [(file.path, file.rows) for file in lookup.files.files] == [("b0", 3)]
        assert (lookup.bytes_max, lookup.files_max, lookup.as_vectors) == (900, 7, False)
        assert planned.live.buckets.keys() == {BUCKETS[0]}

    @pytest.mark.parametrize("budget", [LookupBudget(0), LookupBudget(-1)])
    def test_without_a_budget_the_lake_is_not_read(self, budget: LookupBudget) -> None:
        table = table_with(b0=3)
        table.blind = True
        planned = plan_lookups(table, [split(0)], budget)
        assert (planned.splits, planned.live) == ((split(0),), None)

    @pytest.mark.parametrize("mode", [None, StartMode.SCAN])
    def test_nor_if_no_split_deletes_rows(self, mode: StartMode | None) -> None:
        table = table_with(b0=3)
        table.blind = True
        planned = plan_lookups(table, [split(0, mode)], LookupBudget())
        assert (planned.splits, planned.live) == ((split(0, mode),), None)

    def test_buckets_share_the_budget_and_know_the_tables_form(self) -> None:
        table = table_with(b0=1, b1=100)
        table.as_vectors = True
        planned = plan_lookups(table, [split(0), split(1), split(2)], LookupBudget(300, 7))
        lookups = [one.keyed.lookup for one in planned.splits]
        assert [lookup.bytes_max for lookup in lookups] == [150, 292, 100]
        assert all(lookup.as_vectors for lookup in lookups)
        assert lookups[2].files == BucketFiles()

    def test_buckets_that_are_not_known_stay_as_they_are(self) -> None:
        live = LiveFiles(7, {BUCKETS[1]: BucketFiles((FILE,))})
        found = with_lookups([split(0), split(1), split(2, None)], live, LookupBudget())
        assert found[0] == split(0)
        assert found[1].keyed.lookup.files == live.buckets[BUCKETS[1]]
        assert found[2] == split(2, None)


class TestCost:
    LOOKUP = PositionLookup(BucketFiles((FILE,)), bytes_max=100, files_max=3)

    @pytest.mark.parametrize(
        ("files", "size_bytes", "why"),
        [
            (0, 0, ""),
            (3, 100, ""),
            (4, 1, "4 data files may have the keys, more than tiering.position_lookup_files = 3"),
            (1, 101, "the key columns have 101 bytes, more than the bucket's part"),
            (4, 101, "4 data files"),
        ],
    )
    def test_a_bucket_within_its_limits(self, files: int, size_bytes: int, why: str) -> None:
        said = why_too_much(self.LOOKUP, files, size_bytes)
        assert said.startswith(why)
        assert bool(said) == bool(why)

    def test_a_bucket_that_cannot_be_looked_up(self) -> None:
        lookup = replace(self.LOOKUP, files=BucketFiles((), (), "an ORC file"))
        assert why_too_much(lookup, 0, 0) == "an ORC file"

    def test_the_keys_of_a_bucket(self) -> None:
        assert key_bytes(BucketFiles()) == 0
        assert key_bytes(BucketFiles((FILE, FILE))) == 80
