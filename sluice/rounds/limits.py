"""How long a round may copy, and how much: beyond that it ends where it is and commits what it has.

A round that went on for hours would keep all of its rows out of the lake as long, and lose them
all to one failure. Cut on batch boundaries it is a round like any other; Fluss calls it a forced
finish, and its coordinator queues the table again at once (docs/fluss/tiering.md#heartbeat and
docs/fluss/tiering.md#enumerator). The rows of a KV snapshot cannot be cut, only the log behind
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sluice.clock import Clock
from sluice.model import TableInfo
from sluice.rounds.types import Split, SplitLimit, SplitResult
from sluice.statuses import FRESHNESS, freshness_ms

ROUND_MS_MIN = 60_000
"""A round has costs of its own: a freshness below this does not make rounds any shorter."""


@dataclass(frozen=True, slots=True)
class RoundLimits:
    """What the configuration says of a round's length."""

    max_ms: int = 0
    """Milliseconds from the round's start; 0: the table's freshness, and a minute at least."""
    max_bytes: int = 0
    """Encoded bytes of log batches, over all buckets; 0: no limit."""

    def round_ms(self, info: TableInfo) -> int:
        """Milliseconds that a round of this table may copy."""
        if self.max_ms:
            return self.max_ms
        return max(freshness_ms(info.descriptor.properties), ROUND_MS_MIN)


def with_limits(
    splits: Sequence[Split],
    offsets: Sequence[int],
    limits: RoundLimits,
    info: TableInfo,
    now_ms: int,
) -> tuple[Split, ...]:
    """The splits with their limits: one deadline, and bytes in proportion to what each has to do.

    In proportion, so that all buckets come equally far and none stays behind for ever.

    :param offsets: how many offsets each split covers.
    :param now_ms: the round's start, epoch milliseconds by the driver's clock.
    """
    round_ms = limits.round_ms(info)
    total = max(1, sum(offsets))
    found = []
    for split, count in zip(splits, offsets, strict=True):
        share = max(1, limits.max_bytes * count // total) if limits.max_bytes else None
        found.append(replace(split, limit=SplitLimit(now_ms + round_ms, round_ms, share)))
    return tuple(found)


class Limiter:
    """Watches one split's limit where it is copied."""

    def __init__(self, limit: SplitLimit | None, clock: Clock) -> None:
        """An executor's clock may differ from the driver's. One that is behind gives the split the
        round's whole time and no more; one that is ahead gives it less, down to a single batch.
        """
        self._limit = limit
        self._clock = clock
        if limit is not None:
            left_ms = min(limit.deadline_ms - clock.now_ms(), limit.round_ms)
            self._until_s = clock.monotonic_s() + max(0, left_ms) / 1000

    def reached(self, bytes_read: int) -> str:
        """``time`` or ``bytes`` once that limit is reached, else nothing."""
        limit = self._limit
        if limit is None:
            return ""
        if limit.max_bytes is not None and bytes_read >= limit.max_bytes:
            return "bytes"
        return "time" if self._clock.monotonic_s() >= self._until_s else ""


def forced_finish_text(
    splits: Iterable[Split], results: Iterable[SplitResult], limits: RoundLimits, info: TableInfo
) -> str:
    """What a person is told of a round that was cut; empty if it copied all that was planned."""
    stops = {split.bucket: split.stop_offset for split in splits}
    cut = [result for result in results if result.limit_reached]
    if not cut:
        return ""
    reasons = []
    if any(result.limit_reached == "time" for result in cut):
        where = "tiering.max_round_ms" if limits.max_ms else FRESHNESS
        reasons.append(f"{limits.round_ms(info) / 1000:g} s ({where})")
    if any(result.limit_reached == "bytes" for result in cut):
        reasons.append(f"{limits.max_bytes} bytes (tiering.max_round_bytes)")
    left = sum(stops[result.bucket] - result.next_offset for result in cut)
    return (
        f"cut at {' and '.join(reasons)}: {left} offsets of {len(cut)} of {len(stops)} buckets left"
    )
