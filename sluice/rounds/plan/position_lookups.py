"""Plans where a round looks up the rows that it deletes, within a budget of bytes and files.

A row that is deleted by its position is deleted for every engine that reads the lake; equality
deletes are not understood by all of them, and make scans slow. Positions cost a round the key
columns of the live files. A bucket that would cost too much gets equality deletes for this round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sluice.model import TableBucket
from sluice.quantities import byte_size, counted
from sluice.rounds.values.lake_files import BucketFiles, LiveFiles, PositionLookup
from sluice.rounds.values.limits import LookupBudget
from sluice.rounds.values.ports import LakeTable
from sluice.rounds.values.types import Split, StartMode

OFF = "tiering.position_lookup_bytes is 0"


def planned_lookups(
    table: LakeTable, splits: Sequence[Split], budget: LookupBudget, *, also_compacts: bool = False
) -> tuple[tuple[Split, ...], LiveFiles | None]:
    """Gives each split that may delete rows the live files of its bucket and a part of the budget.

    :param also_compacts: the files are wanted even if no row may be looked up.
    :returns: the splits, and the files; None: no split needs them.
    :raises LakeNotWritable: the lake's metadata cannot be read.
    """
    wanted = [split for split in splits if _may_delete(split)]
    if not wanted or (budget.bytes_max <= 0 and not also_compacts):
        return tuple(splits), None
    live = table.live_files(wanted)
    return (with_lookups(splits, live, budget) if budget.bytes_max > 0 else tuple(splits)), live


def with_lookups(
    splits: Sequence[Split], live: LiveFiles, budget: LookupBudget
) -> tuple[Split, ...]:
    """The splits with a look-up for each bucket whose live files are known.

    Buckets without new rows look up nothing, so they have no part of the budget.
    """
    wanted = {s.bucket for s in splits if not s.is_idle and s.bucket in live.buckets}
    parts = shares({b: key_bytes(live.buckets[b]) for b in wanted}, budget.bytes_max)
    found = []
    for split in splits:
        if split.keyed is not None and split.bucket in live.buckets:
            part = parts.get(split.bucket, 0)
            lookup = PositionLookup(
                live.buckets[split.bucket], part, budget.files_max, live.as_vectors
            )
            split = replace(split, keyed=replace(split.keyed, lookup=lookup))
        found.append(split)
    return tuple(found)


def shares(needed: Mapping[TableBucket, int], total: int) -> dict[TableBucket, int]:
    """Divides a budget: what small buckets do not need is left to the larger ones.

    A bucket that needs more than its part may still get by with it, because the bounds of its files
    exclude some of them once its changed keys are known.
    """
    found: dict[TableBucket, int] = {}
    left = total
    ascending = sorted(needed, key=lambda bucket: needed[bucket])
    for place, bucket in enumerate(ascending):
        part = left // (len(ascending) - place)
        found[bucket] = part
        left -= min(part, needed[bucket])
    return found


def key_bytes(files: BucketFiles) -> int:
    """The bytes of all key columns of a bucket."""
    return sum(file.key_bytes for file in files.files)


def why_too_much(lookup: PositionLookup, files: int, size_bytes: int) -> str:
    """Why a bucket gets equality deletes; empty if its look-up is within the budget.

    :param files: data files whose bounds do not exclude the changed keys.
    :param size_bytes: the bytes of their key columns.
    """
    if lookup.files.unusable:
        return lookup.files.unusable
    if files > lookup.files_max:
        return (
            f"{counted(files, 'data file')} may have the keys, more than"
            f" tiering.position_lookup_files = {lookup.files_max}: compact the table"
        )
    if size_bytes > lookup.bytes_max:
        return (
            f"the key columns have {byte_size(size_bytes)}, more than the bucket's part of"
            f" tiering.position_lookup_bytes, {byte_size(lookup.bytes_max)}"
        )
    return ""


def _may_delete(split: Split) -> bool:
    """Whether the lake may have earlier rows of the split's keys."""
    return split.keyed is not None and split.keyed.start_mode is StartMode.INCREMENTAL
