"""Chooses the data files that a round rewrites, within a budget of bytes.

Files are chosen by size, as in a log-structured merge tree: a bucket's smallest files, as long as
the next one has at most a few times the bytes of all smaller ones together. So each row is
rewritten a few times while its bucket grows, and a large file only when about a quarter as many
bytes have come after it. A file that has its full size is rewritten only if many of its rows are
deleted. So a bucket may be much larger than the budget.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sluice.model import TableBucket, TableInfo
from sluice.quantities import byte_size, counted
from sluice.rounds.values.lake_files import BucketFiles, Compaction, LiveFile, LiveFiles
from sluice.rounds.values.types import CHANGES_MEMORY_BYTES, Split
from sluice.rounds.values.write_ids import write_ids_in

AUTO_COMPACTION = "table.datalake.auto-compaction"
COMPACTION_BYTES = 1 << 30
"""Default bytes of data files that a round rewrites."""
FILES_MIN = 4
"""A bucket's small files are rewritten once there are so many, the round's own included."""
REQUESTED_FILES_MIN = 2
"""The same in a round that carries out a request."""
GROWTH = 4
"""A file is rewritten if it has at most so many times the bytes of all smaller ones together."""
DEAD_SHARE = 0.3
"""A file is rewritten if more of its rows are deleted, as far as the lake's metadata shows."""
FILES_OF_BUDGET = 4
"""A new file has at most this part of the budget, so that later rounds can rewrite it, too."""
FULL_SHARE = 0.75
"""A file with so much of the size of new files is full: small ones are not merged into it."""
FILE_BYTES = 1 << 20
"""A file costs a scan about as much as so many bytes."""
SMALL_BYTES = 16 * 1024
"""Smaller files count as so many bytes: most of them are footer, whatever their rows."""
ROUND_SHARE = 0.5
"""A bucket's compaction may take this part of the round's time limit, as far as is known before."""
ROW_S, BYTE_S = 4e-6, 1 / 25_000_000
"""About the seconds that a row and a byte take, to know beforehand whether there is time."""


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """Which tables are compacted in their rounds, and how much of them."""

    always: bool = False
    """Also tables without ``table.datalake.auto-compaction``."""
    bytes_max: int = COMPACTION_BYTES
    """Bytes of data files that a round rewrites at most; 0: no table is compacted."""
    memory_bytes: int = CHANGES_MEMORY_BYTES
    """Memory of one bucket for rows while they are sorted; more are spilled to disk."""
    spill_dir: str = ""
    """Folder for spill files on an executor; empty: the system's temporary folder."""
    files_min: int = FILES_MIN
    """Small files of a bucket that are rewritten together, the round's own included."""
    heals: bool = False
    """Whether a request is carried out: all small files are rewritten, however much larger the next
    one is, and all files to which equality deletes apply, so that these can go."""

    def of_table(self, info: TableInfo, *, is_requested: bool = False) -> CompactionOptions:
        """The options for a round of one table: without bytes if it is not compacted.

        :param is_requested: a user has requested a compaction.
        """
        if is_requested:
            return replace(self, files_min=REQUESTED_FILES_MIN, heals=True)
        wanted = info.descriptor.properties.get(AUTO_COMPACTION, "false").lower() == "true"
        return self if self.always or wanted else NO_COMPACTIONS


NO_COMPACTIONS = CompactionOptions(bytes_max=0)
DEFAULT_COMPACTIONS = CompactionOptions()


@dataclass(frozen=True, slots=True)
class Candidate:
    """Files of one bucket that are worth rewriting."""

    bucket: TableBucket
    files: tuple[LiveFile, ...]
    gained_bytes: float
    """What a scan saves, as bytes."""
    is_cut: bool = False
    """Whether more of its files are worth it, but do not fit into the budget or the time."""
    beyond: str = ""
    """Why no round can rewrite any of them, if there are no files."""

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much a round rewrites, and into files of which size."""

    bytes_max: int
    file_bytes: int
    files_min: int = FILES_MIN
    seconds_max: float = math.inf
    """For one bucket."""
    heals: bool = False
    """As of :class:`CompactionOptions`."""

    @classmethod
    def of(
        cls, options: CompactionOptions, target_file_bytes: int, round_s: float = math.inf
    ) -> Sizes:
        """:param target_file_bytes: the size at which the table's files end.
        :param round_s: the time limit of the round, in seconds.
        """
        part = max(1, options.bytes_max // FILES_OF_BUDGET)
        file_bytes = min(target_file_bytes, part)
        seconds_max = ROUND_SHARE * round_s
        return cls(options.bytes_max, file_bytes, options.files_min, seconds_max, options.heals)

    def allow(self, size_bytes: int, seconds: float) -> bool:
        """Whether a round may rewrite files of one bucket that have this size and take so long."""
        return size_bytes <= self.bytes_max and seconds <= self.seconds_max


@dataclass(frozen=True, slots=True)
class Choice:
    """What a round rewrites."""

    files: Mapping[TableBucket, tuple[LiveFile, ...]]
    left: int = 0
    """Buckets of which more is worth it, but beyond the budget or the time of this round."""
    beyond: Mapping[TableBucket, str] = field(default_factory=dict)
    """Buckets of which files are worth it, but beyond the budget or the time of any round; why."""


NOTHING_CHOSEN = Choice({})


def choose(live: LiveFiles, new_rows: Mapping[TableBucket, int], sizes: Sizes) -> Choice:
    """The files of each bucket to rewrite: of the buckets that gain the most for each byte first.

    :param new_rows: rows that the round itself adds to a file of its bucket.
    """
    candidates, beyond = list[Candidate](), dict[TableBucket, str]()
    for bucket, files in live.buckets.items():
        if not files.unusable and not files.not_rewritable:
            found = candidate(bucket, files, new_rows.get(bucket, 0), sizes)
            if found is not None and found.beyond:
                beyond[bucket] = found.beyond
            elif found is not None:
                candidates.append(found)
    candidates.sort(key=lambda one: (-one.gained_bytes / max(1, one.size_bytes), str(one.bucket)))
    left = sizes.bytes_max
    chosen: dict[TableBucket, tuple[LiveFile, ...]] = {}
    for one in candidates:
        if one.files and (one.size_bytes <= left or not chosen):
            chosen[one.bucket] = one.files
            left -= one.size_bytes
    count = sum(one.is_cut or one.bucket not in chosen for one in candidates)
    return Choice(chosen, count, beyond)


def candidate(
    bucket: TableBucket, files: BucketFiles, new_rows: int, sizes: Sizes
) -> Candidate | None:
    """The files of a bucket that are worth rewriting; None: it has too few.

    There are no files if the round has so many rows for the bucket that a later one is to rewrite
    them, or if no round can: then ``beyond`` says why.
    A file beyond the budget is rewritten only alone, and if many of its rows are deleted.
    """
    dead = dead_rows(files)
    rows = sum(file.rows for file in files.files)
    own_bytes = new_rows * sum(file.size_bytes for file in files.files) // rows if rows else 0
    if own_bytes > sizes.bytes_max // 2:
        return Candidate(bucket, (), 0.0, is_cut=True)
    small, is_cut = _small_files(files.files, dead, own_bytes, sizes)
    if len(small) + (new_rows > 0) < sizes.files_min:
        small = []
    chosen = {file.path: file for file in small}
    size_bytes, seconds = sum(file.size_bytes for file in small), seconds_of(small)
    newest = max((one.sequence for one in files.keys), default=0) if sizes.heals else 0
    worn = [
        file
        for file in files.files
        if dead[file.path] > DEAD_SHARE * file.rows or file.sequence < newest
    ]
    for file in sorted(worn, key=lambda one: one.size_bytes):
        if file.path in chosen:
            continue
        size_after, seconds_after = size_bytes + file.size_bytes, seconds + seconds_of([file])
        alone = not chosen and seconds_after <= sizes.seconds_max
        if alone or sizes.allow(size_after, seconds_after):
            chosen[file.path] = file
            size_bytes, seconds = size_after, seconds_after
        else:
            is_cut = True
    if not chosen:
        return Candidate(bucket, (), 0.0, beyond=_beyond(worn, files, sizes)) if is_cut else None
    ordered = tuple(file for file in files.files if file.path in chosen)
    waste = sum(file.size_bytes * dead[file.path] / max(1, file.rows) for file in ordered)
    return Candidate(bucket, ordered, waste + FILE_BYTES * len(ordered), is_cut)


def _beyond(worn: Sequence[LiveFile], files: BucketFiles, sizes: Sizes) -> str:
    """Says what the least that would have to be rewritten takes, and what a round may take."""
    by_size = sorted(worn or files.files, key=lambda one: one.size_bytes)
    least = by_size[: 1 if worn else sizes.files_min]
    size_bytes = byte_size(sum(one.size_bytes for one in least))
    limits = f"at most {byte_size(sizes.bytes_max)} (tiering.compaction_bytes)"
    if sizes.seconds_max < math.inf:
        limits += f" in {sizes.seconds_max:.0f} s ({ROUND_SHARE:.0%} of its time limit)"
    return (
        f"{counted(len(least), 'file')} of {size_bytes} would take about {seconds_of(least):.0f} s,"
        f" and a round rewrites {limits} of a bucket"
    )


def _small_files(
    files: Sequence[LiveFile], dead: Mapping[str, float], own_bytes: int, sizes: Sizes
) -> tuple[list[LiveFile], bool]:
    """A bucket's smallest files by their live bytes, up to the first that is much larger.

    A request is for all of them: nothing may come after them that would let them be merged.
    Also returns whether the budget or the time has ended them.
    """
    found: list[LiveFile] = []
    total = float(max(own_bytes, SMALL_BYTES))
    size_bytes, seconds = 0, 0.0
    sized = [(file.size_bytes * (1 - dead[file.path] / max(1, file.rows)), file) for file in files]
    for live_bytes, file in sorted(sized, key=lambda one: (one[0], one[1].path)):
        is_full = live_bytes >= FULL_SHARE * sizes.file_bytes
        size_bytes, seconds = size_bytes + file.size_bytes, seconds + seconds_of([file])
        if is_full or (live_bytes > GROWTH * total and not sizes.heals):
            break
        if not sizes.allow(size_bytes, seconds):
            return found, True
        found.append(file)
        total += live_bytes
    return found, False


def dead_rows(files: BucketFiles) -> dict[str, float]:
    """About how many rows of each file are deleted, by its path.

    A position file of several data files does not say how many rows of each it has. So they are
    divided by rows among the older data files, as far as names show. An equality delete takes one
    row at most, of any older data file.
    """
    found = dict.fromkeys((file.path for file in files.files), 0.0)
    bases = {file.path: _base(file.path) for file in files.files}
    for mark in files.marks:
        if mark.data_file is not None:
            if mark.data_file in found:
                found[mark.data_file] += mark.rows
            continue
        base = _base(mark.path)
        older = [f for f in files.files if bases[f.path] < base] or list(files.files)
        _divide(mark.rows, older, found)
    for keys in files.keys:
        _divide(keys.rows, [f for f in files.files if f.sequence < keys.sequence], found)
    rows = {file.path: file.rows for file in files.files}
    return {path: min(dead, float(rows[path])) for path, dead in found.items()}


def _divide(dead: int, files: Sequence[LiveFile], found: dict[str, float]) -> None:
    total = sum(file.rows for file in files)
    for file in files if total else ():
        found[file.path] += dead * file.rows / total


def with_compactions(
    splits: Sequence[Split],
    live: LiveFiles,
    options: CompactionOptions,
) -> tuple[tuple[Split, ...], Choice]:
    """The splits with the files that each of them rewrites, and the choice of these."""
    limits = [split.limit.round_ms / 1000 for split in splits if split.limit is not None]
    sizes = Sizes.of(options, live.target_file_bytes, min(limits, default=math.inf))
    choice = choose(live, {split.bucket: split.weight for split in splits}, sizes)
    found = []
    for split in splits:
        if files := choice.files.get(split.bucket):
            of_bucket = live.buckets[split.bucket]
            compaction = Compaction(
                files,
                of_bucket,
                sizes.file_bytes,
                live.as_vectors,
                options.memory_bytes,
                options.spill_dir,
            )
            split = replace(split, compaction=compaction)
        found.append(split)
    return tuple(found), choice


def seconds_of(files: Sequence[LiveFile]) -> float:
    """About the seconds that it takes to rewrite these files."""
    return sum(file.rows * ROW_S + file.size_bytes * BYTE_S for file in files)


def why_too_long(compaction: Compaction, left_s: float | None) -> str:
    """Why a compaction is left out; empty if it would end in time.

    :param left_s: seconds until the round's time limit; None: there is none.
    """
    expected = seconds_of(compaction.files)
    if left_s is None or expected <= left_s:
        return ""
    return (
        f"{byte_size(compaction.size_bytes)} would take {expected:.1f} s, and"
        f" {max(left_s, 0.0):.1f} s of the round's time were left"
    )


def _base(path: str) -> int:
    """The sequence number of the base of a round's file; -1: others wrote the file."""
    ids = write_ids_in(path.rpartition("/")[2])
    return ids[0].base if len(ids) == 1 else -1
