"""A round in one line, for logs: what it wrote, how long each phase took, and at which rate."""

from __future__ import annotations

from collections.abc import Mapping

from sluice.quantities import byte_size, counted
from sluice.rounds.records.result import POSITIONS, RoundFailure, RoundResult

SHORT_S = 0.05
"""Of a shorter time, no rate is told."""
PHASES = (
    "recover",
    "plan",
    "copy",
    "prepare",
    "rewrite",
    "lake_commit",
    "fluss_commit",
    "expire",
)


def result_line(result: RoundResult, *, phases: bool = True) -> str:
    """Returns the line, such as
    ``shop.orders: committed, 1,200 rows in 2.1 s (plan 0.2, copy 1.1, ...), lake snapshot 5``.

    :param phases: whether it has the seconds.
    """
    words = [f"{result.table}: {result.outcome}"]
    if result.rows or result.lake_snapshot_id is not None:
        words.append(_rows(result, phases=phases))
    if result.deletes and _is_unusual(result.deletes_as):
        words.append(deleted_keys(result))
    if result.compacted:
        words.append(result.compacted)
    if result.lake_snapshot_id is not None:
        words.append(f"lake snapshot {result.lake_snapshot_id}")
    if result.bytes_written:
        words.append(f"{byte_size(result.bytes_written)} in {counted(result.files, 'file')}")
    if result.snapshots_expired:
        words.append(f"{counted(result.snapshots_expired, 'old snapshot')} expired")
    return ", ".join(words)


def deleted_keys(result: RoundResult) -> str:
    """Returns ``12 keys deleted or changed``, and how, unless that was by position."""
    how = f" by {result.deletes_as}" if _is_unusual(result.deletes_as) else ""
    return f"{counted(result.deletes, 'key')} deleted or changed{how}"


def _is_unusual(deletes_as: str) -> bool:
    """Whether users should know; a result of an older version does not say."""
    return deletes_as not in ("", POSITIONS)


def failure_line(table: str, failure: RoundFailure) -> str:
    """Returns the line, such as ``shop.orders: failed after 2.1 s (plan 0.2, copy 1.9): ...``."""
    after = f" after {_spent(failure.seconds)}" if "total" in failure.seconds else ""
    return f"{table}: failed{after}: {failure.reason}"


def _rows(result: RoundResult, *, phases: bool) -> str:
    count = counted(result.rows, "row")
    if not phases or "total" not in result.seconds:
        return count
    total = result.seconds["total"]
    return f"{count} in {_spent(result.seconds)}{rate(result.rows, total)}"


def _spent(seconds: Mapping[str, float]) -> str:
    phases = ", ".join(f"{name} {seconds[name]:.1f}" for name in PHASES if name in seconds)
    return f"{seconds['total']:.1f} s" + (f" ({phases})" if phases else "")


def rate(count: int, seconds: float) -> str:
    """Returns ``, 90,765 a second``; empty if the time is too short to tell."""
    return f", {count / seconds:,.0f} a second" if seconds >= SHORT_S else ""
