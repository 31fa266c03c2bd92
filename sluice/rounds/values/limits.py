"""Limits of a round: how long and how much it may copy before it commits what it has.

A round of several hours would keep its rows out of the lake for that long, and lose its work in one
failure. A round that ends on a batch boundary is complete; Fluss calls it a forced
finish, and its coordinator queues the table again at once (docs/fluss/tiering.md#heartbeat and
docs/fluss/tiering.md#enumerator). The rows of a KV snapshot cannot be cut, only the log after
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from sluice.clock import Clock
from sluice.model import TableInfo
from sluice.rounds.values.types import Split, SplitLimit, SplitResult
from sluice.statuses import FRESHNESS, freshness_ms

ROUND_MS_MIN = 60_000
"""Lower bound for limits taken from the freshness, because every round has fixed costs."""


@dataclass(frozen=True, slots=True)
class RoundLimits:
    """The configured limits of a round."""

    max_ms: int = 0
    """Milliseconds from the round's start; 0: the table's freshness, but at least a minute."""
    max_bytes: int = 0
    """Encoded bytes of log batches, over all buckets; 0: no limit."""

    def round_ms(self, info: TableInfo) -> int:
        """The number of milliseconds that a round of this table may copy."""
        if self.max_ms:
            return self.max_ms
        return max(freshness_ms(info.descriptor.properties), ROUND_MS_MIN)


LOOKUP_BYTES = 1 << 30
"""Default bytes of key columns that a round may read."""
LOOKUP_FILES = 200
"""Default number of data files of one bucket whose keys a round may read."""


@dataclass(frozen=True, slots=True)
class LookupBudget:
    """How much a round may read to find the positions of deleted rows."""

    bytes_max: int = LOOKUP_BYTES
    """Bytes of key columns, of all buckets together; 0: nothing is looked up."""
    files_max: int = LOOKUP_FILES
    """Data files of one bucket."""


def with_limits(
    splits: Sequence[Split],
    offsets: Sequence[int],
    limits: RoundLimits,
    info: TableInfo,
    now_ms: int,
) -> tuple[Split, ...]:
    """The splits with their limits: a common deadline, and bytes in proportion to their sizes.

    The proportion makes all buckets advance equally, so that none falls behind.

    :param offsets: the number of offsets that each split covers.
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
    """Checks the limit of one split while it is copied."""

    def __init__(self, limit: SplitLimit | None, clock: Clock) -> None:
        """Computes the deadline by this machine's clock, which may differ from the driver's.

        If this clock is behind, the split gets at most the full time of the round. If it is ahead,
        the split gets less, down to a single batch.
        """
        self._limit = limit
        self._clock = clock
        if limit is not None:
            left_ms = min(limit.deadline_ms - clock.now_ms(), limit.round_ms)
            self._until_s = clock.monotonic_s() + max(0, left_ms) / 1000

    def reached(self, bytes_read: int) -> str:
        """``time`` or ``bytes`` if that limit is reached, else an empty text."""
        limit = self._limit
        if limit is None:
            return ""
        if limit.max_bytes is not None and bytes_read >= limit.max_bytes:
            return "bytes"
        return "time" if self._clock.monotonic_s() >= self._until_s else ""

    def time_left(self, check: Callable[[], None] | None = None) -> TimeLeft:
        """How long what follows the copy may take.

        :param check: raises ClaimLost once the round was cancelled.
        """
        return TimeLeft(self._left_s, check or _no_check)

    def _left_s(self) -> float | None:
        return None if self._limit is None else self._until_s - self._clock.monotonic_s()


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """How long the work on a split may still take."""

    left_s: Callable[[], float | None]
    """Seconds until the round's time limit; None: there is none."""
    check: Callable[[], None]
    """Raises ClaimLost once the round was cancelled."""

    def is_over(self) -> bool:
        """Whether the time limit is reached.

        :raises ClaimLost: the round was cancelled.
        """
        self.check()
        left_s = self.left_s()
        return left_s is not None and left_s <= 0


def _no_check() -> None:
    pass


def offsets_left(splits: Iterable[Split], results: Iterable[SplitResult]) -> int:
    """The number of planned offsets that a round left because it reached a limit."""
    stops = {split.bucket: split.stop_offset for split in splits}
    return sum(stops[r.bucket] - r.next_offset for r in results if r.limit_reached)


def forced_finish_text(
    splits: Sequence[Split], results: Sequence[SplitResult], limits: RoundLimits, info: TableInfo
) -> str:
    """Which limits ended a round early and what is left; empty if it copied all that was
    planned.
    """
    cut = [result for result in results if result.limit_reached]
    if not cut:
        return ""
    reasons = []
    if any(result.limit_reached == "time" for result in cut):
        where = "tiering.max_round_ms" if limits.max_ms else FRESHNESS
        reasons.append(f"{limits.round_ms(info) / 1000:g} s ({where})")
    if any(result.limit_reached == "bytes" for result in cut):
        reasons.append(f"{limits.max_bytes} bytes (tiering.max_round_bytes)")
    left = offsets_left(splits, cut)
    return (
        f"ended early after {' and '.join(reasons)}: {left} offsets in {len(cut)} of {len(splits)}"
        " buckets are left for the next round"
    )
