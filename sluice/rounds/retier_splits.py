"""The splits of a round that tiers a table again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sluice.model import TableInfo
from sluice.rounds.bucket_repairs import BucketRepairs, rebuilding
from sluice.rounds.keyed_options import KeyedRoundOptions
from sluice.rounds.retier import RetierPlan
from sluice.rounds.types import Split, StartMode


def retier_splits(
    start: RetierPlan, info: TableInfo, splits: Sequence[Split], keyed: KeyedRoundOptions
) -> tuple[tuple[Split, ...], BucketRepairs]:
    """The splits of an ordinary round, up to the registered offsets, and what they leave out.

    The next round copies the rest: a batch behind the registered offsets that cannot be read must
    not prevent the repair, because it can be skipped only in a table that is not behind.
    """
    lost = {one.bucket: one for one in start.rebuilt}
    found = []
    for split in map(start.begun, splits):
        floor = start.minimum_offsets.get(split.bucket)
        if floor is None:
            continue
        if split.bucket in lost:
            found.append(rebuilding(split, lost[split.bucket], info, keyed, floor))
            continue
        if split.start_offset < floor or _is_begun_elsewhere(split):
            skipped = tuple(one for one in start.skipped if one.bucket == split.bucket)
            stop = max(split.start_offset, min(split.stop_offset, floor))
            found.append(replace(split, stop_offset=stop, skipped=skipped))
    rebuilt = tuple(lost[split.bucket] for split in found if split.bucket in lost)
    return tuple(found), BucketRepairs(start.lost, start.skipped, rebuilt)


def _is_begun_elsewhere(split: Split) -> bool:
    """Whether the split begins with a KV snapshot or a scan, and not with the log."""
    return split.keyed is not None and split.keyed.start_mode is not StartMode.INCREMENTAL
