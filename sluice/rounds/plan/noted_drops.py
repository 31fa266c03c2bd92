"""Which dropped partitions a lake snapshot knows of, so that each is noted by one commit only.

The offsets of dropped partitions stay in every later snapshot: after a rollback they show what main
lacks. So a round cannot tell from the offsets alone which partitions an earlier round has noted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from sluice.model import TableBucket
from sluice.rounds.values.note_lists import first_of

DROPPED_KEY = "sluice.dropped-partitions"
"""Key in a snapshot summary: ids of tiered partitions that no longer exist, like ``1-19,23``. A
range has all ids of the snapshot's offsets between its ends, not all integers."""


def partition_ids(offsets: Iterable[TableBucket]) -> set[int]:
    """The partitions of these buckets."""
    return {bucket.partition_id for bucket in offsets if bucket.partition_id is not None}


def dropped_summary(tiered: Set[int], dropped: Set[int]) -> dict[str, str]:
    """The entry of a snapshot's summary.

    :param tiered: the partitions that the snapshot has offsets of.
    """
    ranges: list[list[int]] = []
    follows = False
    for number in sorted(tiered):
        if number in dropped and follows:
            ranges[-1][1:] = [number]
        elif number in dropped:
            ranges.append([number])
        follows = number in dropped
    return {DROPPED_KEY: ",".join("-".join(map(str, one)) for one in ranges)}


def dropped_in(summary: Mapping[str, str], tiered: Set[int]) -> set[int] | None:
    """The dropped partitions that a snapshot's summary names; None if it does not say.

    Then an older version or Fluss's own tiering service wrote it.
    """
    if DROPPED_KEY not in summary:
        return None
    found: set[int] = set()
    for one in filter(None, summary[DROPPED_KEY].split(",")):
        first, _, last = one.partition("-")
        found |= {n for n in tiered if int(first) <= n <= int(last or first)}
    return found


def dropped_note(dropped: Set[int], known: Mapping[TableBucket, int]) -> list[str]:
    """A note on partitions that were dropped since the last commit.

    The ends of their logs are no longer known, so nobody knows whether rows were lost. A partition
    that expires usually has no new rows for a long time.
    """
    ends: dict[int, list[str]] = {}
    for bucket, offset in known.items():
        number = bucket.partition_id
        if number is not None and number in dropped:
            ends.setdefault(number, []).append(f"{bucket.bucket}:{offset}")
    if not ends:
        return []
    named = [f"partition id {one} (bucket:offset {first_of(ends[one])})" for one in sorted(ends)]
    return [
        f"dropped since the last commit: {first_of(named, '; ')}. Rows from these offsets on, if"
        " there were any, are not in the lake"
    ]
