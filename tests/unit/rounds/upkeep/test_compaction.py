"""Which data files a round rewrites: by size, by deleted rows, and within a budget."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace

import pytest

from sluice.model import TableBucket
from sluice.model import types as t
from sluice.rounds.upkeep.compaction import (
    AUTO_COMPACTION,
    NO_COMPACTIONS,
    CompactionOptions,
    Sizes,
    choose,
    dead_rows,
    why_too_long,
)
from sluice.rounds.values.lake_files import (
    BucketFiles,
    Compaction,
    LiveFile,
    LiveFiles,
    StoredKeys,
    StoredMarks,
)
from tests.support.models.tables import table_info

ONE, TWO = TableBucket(1, None, 0), TableBucket(1, None, 1)
ROW_BYTES = 100
FOOTER_BYTES = 2_400
"""Of a data file with a dozen columns."""
SIZES = Sizes(1 << 30, 1 << 28)


def data(name: str, rows: int) -> LiveFile:
    return LiveFile(name, rows, rows * ROW_BYTES, rows)


def chosen(
    files: Sequence[LiveFile], new_rows: int = 1, sizes: Sizes = SIZES, *marks: StoredMarks
) -> list[str]:
    live = LiveFiles(1, {ONE: BucketFiles(tuple(files), marks)})
    return [file.path for file in choose(live, {ONE: new_rows}, sizes).files.get(ONE, ())]


def named(name: str, base: int) -> str:
    """The name of a file that a round has written, planned from that base."""
    return f"file:/0-0-{base}-{'0' * 16}-{uuid.uuid5(uuid.NAMESPACE_DNS, name)}.parquet"


def test_a_table_is_compacted_if_it_or_the_connection_says_so() -> None:
    plain = table_info({"a": t.BIGINT})
    wanted = table_info({"a": t.BIGINT}, properties={AUTO_COMPACTION: "TRUE"})
    options = CompactionOptions(bytes_max=7)
    assert options.of_table(wanted) is options
    assert options.of_table(plain) is NO_COMPACTIONS
    everything = CompactionOptions(always=True)
    assert everything.of_table(plain) is everything


def test_small_files_are_rewritten_once_there_are_four_with_the_new_one() -> None:
    two = [data(f"s{i}", 10) for i in range(2)]
    three = [*two, data("s2", 10)]
    large = data("large", 10_000)
    assert chosen([*two, large], 10) == []
    assert chosen([*three, large], 10) == ["s0", "s1", "s2"]
    assert chosen([*three, large], 0) == []  # the round adds none
    assert chosen([*three, data("s3", 10), large], 0) == ["s0", "s1", "s2", "s3"]


def test_a_file_is_rewritten_with_smaller_ones_of_a_quarter_of_its_size() -> None:
    small = [data(f"s{i}", 1_000) for i in range(4)]
    assert chosen([*small, data("z", 20_000)], 1_000)[-1] == "z"
    assert chosen([*small, data("z", 20_010)], 1_000)[-1] == "s3"


def test_tiny_files_are_rewritten_together_however_few_rows_a_round_adds() -> None:
    """A file with one row has a footer of some kilobytes."""
    tiny = [LiveFile(f"t{i}", 1, 2_500, 8) for i in range(3)]
    large = LiveFile("z", 1_000_000, 30_000_000, 8)
    assert chosen([*tiny, large], 1) == ["t0", "t1", "t2"]
    larger = LiveFile("u", 100, 16_000, 8)
    assert chosen([*tiny, larger, large], 1) == ["t0", "t1", "t2", "u"]


def test_no_more_is_chosen_than_the_round_has_time_for() -> None:
    files = [data(f"s{i}", 100_000) for i in range(9)]  # 0.8 s each
    sizes = Sizes.of(CompactionOptions(), 1 << 29, round_s=8.0)
    assert len(chosen(files, 100_000, sizes)) == 5
    worn = [data("a", 900_000), data("b", 100_000)]
    marks = [StoredMarks("m", 400_000, 1, "a"), StoredMarks("n", 40_000, 1, "b")]
    assert chosen(worn, 1, sizes, *marks) == ["b"]


def test_equality_deletes_wear_the_older_files() -> None:
    old, new = LiveFile("a", 100, 1, 1, sequence=1), LiveFile("b", 100, 1, 1, sequence=5)
    keys = (StoredKeys("k", 30, 1, 3), StoredKeys("l", 20, 1, 9))
    assert dead_rows(BucketFiles((old, new), keys=keys)) == {"a": 40.0, "b": 10.0}


def test_deleted_rows_make_a_file_smaller_and_worth_rewriting() -> None:
    small = [data(f"s{i}", 100) for i in range(4)]
    marks = StoredMarks("m", 600, 1, "z")
    assert chosen([*small, data("z", 2_600)], 100, SIZES, marks)[-1] == "z"
    alone = [data("z", 1_000)]
    assert chosen(alone, 1, SIZES, StoredMarks("m", 300, 1, "z")) == []
    assert chosen(alone, 1, SIZES, StoredMarks("m", 301, 1, "z")) == ["z"]


def test_full_files_are_left_alone_until_many_of_their_rows_are_deleted() -> None:
    sizes = Sizes(bytes_max=400_000, file_bytes=100_000)
    files = [*(data(f"s{i}", 100) for i in range(4)), data("full", 750), data("less", 749)]
    assert chosen(files, 100, sizes) == ["s0", "s1", "s2", "s3", "less"]
    assert "full" in chosen(files, 100, sizes, StoredMarks("m", 300, 1, "full"))


def test_a_round_rewrites_no_more_than_its_budget() -> None:
    files = [data(f"s{i}", 100) for i in range(9)]
    assert len(chosen(files, 100, Sizes(50_000, 50_000))) == 5
    assert chosen(files, 100, Sizes(20_000, 20_000)) == []  # fewer files than are worth it
    assert chosen(files, 260, Sizes(50_000, 50_000)) == []  # the round's rows alone are too many


def test_a_file_beyond_the_budget_is_rewritten_alone_if_it_is_worn() -> None:
    sizes = Sizes(50_000, 12_500)
    files = [data("huge", 1_000), *(data(f"s{i}", 10) for i in range(4))]
    assert chosen(files, 10, sizes) == ["s0", "s1", "s2", "s3"]
    marks = StoredMarks("m", 400, 1, "huge")
    assert chosen(files[:1], 10, sizes, marks) == ["huge"]
    assert chosen(files, 10, sizes, marks) == ["s0", "s1", "s2", "s3"]


def test_the_budget_is_for_the_buckets_that_gain_the_most() -> None:
    few = BucketFiles(tuple(data(f"a{i}", 500) for i in range(5)))
    many = BucketFiles(tuple(data(f"b{i}", 100) for i in range(50)))
    live = LiveFiles(1, {ONE: few, TWO: many})
    assert [*choose(live, {}, Sizes(600_000, 1 << 20)).files] == [TWO]
    assert {*choose(live, {}, Sizes(800_000, 1 << 20)).files} == {ONE, TWO}


@pytest.mark.parametrize("why", ["unusable", "not_rewritable"])
def test_buckets_that_cannot_be_read_are_left_out(why: str) -> None:
    files = BucketFiles(tuple(data(f"b{i}", 100) for i in range(50)), **{why: "a reason"})
    assert choose(LiveFiles(1, {ONE: files}), {}, SIZES).files == {}


def test_deleted_rows_are_divided_among_the_files_that_were_there() -> None:
    old, new, foreign = named("old", 3), named("new", 9), "file:/foreign.parquet"
    files = tuple(LiveFile(path, 100, 1, 1) for path in (old, new, foreign))
    several = StoredMarks(named("marks", 5), 50, 1)
    assert dead_rows(BucketFiles(files, (several,))) == {old: 25.0, new: 0.0, foreign: 25.0}
    of_one = StoredMarks(named("marks", 5), 50, 1, new)
    gone = StoredMarks(named("marks", 5), 50, 1, "file:/gone")
    assert dead_rows(BucketFiles(files, (of_one, gone))) == {old: 0.0, new: 50.0, foreign: 0.0}
    too_many = StoredMarks(named("marks", 5), 5_000, 1)
    assert dead_rows(BucketFiles(files[:1], (too_many,))) == {old: 100.0}


def test_a_compaction_without_time_is_left_out() -> None:
    compaction = Compaction((data("a", 1_000_000),), BucketFiles(), 1)
    assert why_too_long(compaction, None) == ""
    assert why_too_long(compaction, 60) == ""
    said = why_too_long(compaction, 2.5)
    assert said == "100.0 MB would take 8.0 s, and 2.5 s of the round's time were left"


class Bucket:
    """A bucket whose keys change evenly, round by round, as the lake would keep it."""

    def __init__(self, rows: int, sizes: Sizes) -> None:
        self.sizes, self.live = sizes, rows
        self.files = {named("0", 0): [rows, float(rows)]}
        self.rewritten = self.written = self.round_max = 0
        self._number = 0

    def change(self, rows: int) -> None:
        """A round that changes so many keys."""
        self._number += 1
        for entry in self.files.values():
            entry[1] -= rows * entry[1] / self.live
        files = tuple(
            LiveFile(p, int(n), int(n) * ROW_BYTES + FOOTER_BYTES, 1)
            for p, (n, _) in self.files.items()
        )
        marks = [StoredMarks(f"m-{p}", int(n - left), 1, p) for p, (n, left) in self.files.items()]
        live = LiveFiles(1, {ONE: BucketFiles(files, tuple(marks))})
        found = choose(live, {ONE: rows}, self.sizes).files.get(ONE, ())
        read = sum(file.size_bytes for file in found)
        kept = sum(self.files.pop(file.path)[1] for file in found) + rows
        per_file = self.sizes.file_bytes // ROW_BYTES
        for part in range(max(1, -(-int(kept) // per_file))):
            left = min(per_file, kept - part * per_file)
            self.files[named(f"{self._number}-{part}", self._number)] = [left, left]
        self.rewritten += int(kept) * ROW_BYTES if found else 0
        self.written += rows * ROW_BYTES + FOOTER_BYTES
        self.round_max = max(self.round_max, read)


@pytest.mark.parametrize("share", [0.00001, 0.0001, 0.001, 0.01, 0.05])
def test_a_bucket_stays_small_and_is_rewritten_a_few_times(share: float) -> None:
    bucket, most, stored = Bucket(100_000, SIZES), 0, 0.0
    for number in range(1_000):
        bucket.change(int(100_000 * share))
        if number > 100:
            most = max(most, len(bucket.files))
            stored = max(stored, sum(n for n, _ in bucket.files.values()) / 100_000)
    assert most <= 12
    assert stored < 1.5
    assert bucket.rewritten / bucket.written < 10


def test_a_bucket_of_twenty_budgets_is_compacted_too() -> None:
    rows = 400_000
    sizes = Sizes.of(CompactionOptions(bytes_max=rows * ROW_BYTES // 20), 1 << 29)
    bucket, most, stored = Bucket(rows, sizes), 0, 0.0
    for number in range(1_500):
        bucket.change(rows // 1_000)
        if number > 500:
            most = max(most, len(bucket.files))
            stored = max(stored, sum(n for n, _ in bucket.files.values()) / rows)
    assert most < 150  # 80 full ones, and those that are worn or small
    assert stored < 1.7
    assert bucket.rewritten / bucket.written < 10


def test_a_request_is_for_all_files_that_are_not_full() -> None:
    """Large files of an idle bucket have no smaller ones that they could be merged with."""
    asked = Sizes(1 << 30, 1 << 28, files_min=2, heals=True)
    large = [data(f"b{i}", 10_000 * (i + 1)) for i in range(20)]
    huge = data("huge", 2_600_000)  # nearly as large as new files are
    assert chosen([*large, huge], 0, asked) == [file.path for file in large]
    tiers = [data(f"t{i}", 100 * 10**i) for i in range(4)]
    assert chosen(tiers, 0, asked) == [file.path for file in tiers]
    assert chosen(tiers, 0) == []


def test_what_no_round_can_rewrite_has_a_reason() -> None:
    """It is not left to the next round, which could not rewrite it either."""
    keys = StoredKeys("keys", 5, 100, 9)
    files = BucketFiles((LiveFile("huge", 50_000_000, 2 << 30, 1, sequence=1),), (), "", (keys,))
    live = LiveFiles(1, {ONE: files})
    asked = Sizes(1 << 30, 1 << 28, files_min=2, seconds_max=90.0, heals=True)
    found = choose(live, {}, asked)
    assert (found.files, found.left) == ({}, 0)
    assert found.beyond[ONE] == (
        "1 file of 2.1 GB would take about 286 s, and a round rewrites at most 1.1 GB"
        " (tiering.compaction_bytes) in 90 s (50% of its time limit) of a bucket"
    )
    assert choose(live, {}, replace(asked, seconds_max=300.0)).files == {ONE: files.files}


def test_a_bucket_with_many_new_rows_is_left_to_a_later_round() -> None:
    files = BucketFiles(tuple(data(f"b{i}", 100) for i in range(50)))
    found = choose(LiveFiles(1, {ONE: files}), {ONE: 6_000}, Sizes(1_000_000, 1 << 20))
    assert (found.files, found.left, found.beyond) == ({}, 1, {})
