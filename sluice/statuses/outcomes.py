"""What a round's end changes in a table's kept status, whoever keeps it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from sluice.model import KeptStatus, TieringRound
from sluice.model.record_fields import fields_of

ERROR_CHARS_MAX = 4_096
"""Maximum length of a stored failure reason."""

BACKOFF_MS = 10_000
"""Wait after a table's first failure; it doubles with each further failure."""

BACKOFF_MAX_MS = 300_000
"""Maximum wait after failures, or the table's freshness if that is longer."""

_REPORTED_CHARS_MAX = ERROR_CHARS_MAX // 2
"""Maximum length of the accepted ranges of one report. A status has room for all of them, so a
report that is repeated changes nothing."""

_SHARED = {one.name for one in fields_of(KeptStatus)} & {
    one.name for one in fields_of(TieringRound)
} - {"accepted", "deletes_as"}
"""Fields that a status takes from a round as they are. Two have a rule of their own."""

_SEPARATOR = "; "
_MORE = re.compile(r"and (\d+) more")
_MORE_CHARS_MAX = 30


def after_success(
    before: KeptStatus | None,
    now_ms: int,
    claimed_ms: int | None,
    details: TieringRound | None = None,
) -> dict[str, Any]:
    """The fields that a successful round sets.

    :param claimed_ms: when the round began; None: not known.
    :param details: what the worker reported.
    """
    return {
        "rounds": _rounds(before) + 1,
        "last_tiered_ms": now_ms,
        "last_round_ms": None if claimed_ms is None else max(now_ms - claimed_ms, 0),
        "last_error": None,
        "last_error_ms": None,
        "stopped": None,
        "failures": 0,
        "next_attempt_ms": None,
        **_accepted(before, details),
        **_deletes_as(details),
        **_requested(before, details),
        **_told(details),
    }


def after_failure(
    before: KeptStatus | None,
    now_ms: int,
    reason: str | None,
    *,
    freshness_ms: int,
    backoff_ms: int,
    details: TieringRound | None = None,
) -> dict[str, Any]:
    """The fields that a failed round sets: one more failure, and a longer wait.

    :param backoff_ms: wait after the first failure; 0: no wait.
    :param details: what the worker reported: the round may have committed other buckets.
    """
    failures = ((before.failures if before is not None else None) or 0) + 1
    return {
        "rounds": _rounds(before) + 1,
        "last_error": None if reason is None else reason[:ERROR_CHARS_MAX],
        "last_error_ms": now_ms,
        "stopped": None,
        "failures": failures,
        "next_attempt_ms": now_ms + wait_ms(backoff_ms, failures, freshness_ms),
        **_accepted(before, details),
        **_deletes_as(details),
        **_requested(before, details),
        **_told(details),
    }


def wait_ms(backoff_ms: int, failures: int, freshness_ms: int) -> int:
    """How long a table waits after this number of failures in a row."""
    if failures < 1:
        return 0
    doublings = min(failures - 1, 62)  # more than any limit; the number stays small
    return min(backoff_ms << doublings, max(freshness_ms, BACKOFF_MAX_MS))


def newly_accepted(before: KeptStatus | None, details: TieringRound | None) -> str | None:
    """The ranges that users accepted as missing and that the status does not have yet.

    An end may be reported twice, and each round after a repair reports its ranges again until
    another snapshot follows.
    """
    old = set(_ranges(before.accepted if before is not None else None))
    reported = _ranges(details.accepted if details is not None else None)
    kept = _fitting(reported, _REPORTED_CHARS_MAX)
    new = [one for one in kept if one not in old]
    is_first = new == kept  # a repeated report has counted what it leaves out
    more = len(reported) - len(kept) if new and is_first else 0
    return _SEPARATOR.join([*new, *_more(more)]) or None


def _accepted(before: KeptStatus | None, details: TieringRound | None) -> dict[str, str]:
    """All ranges that users accepted as missing, the newest first; the oldest are only counted."""
    new = newly_accepted(before, details)
    if new is None:
        return {}
    ranges = [*_ranges(new), *_ranges(before.accepted if before is not None else None)]
    counts = [int(found[1]) for one in ranges if (found := _MORE.fullmatch(one))]
    ranges = [one for one in ranges if not _MORE.fullmatch(one)]
    kept = _fitting(ranges, ERROR_CHARS_MAX - _MORE_CHARS_MAX)
    more = sum(counts) + len(ranges) - len(kept)
    return {"accepted": _SEPARATOR.join([*kept, *_more(more)])}


def _deletes_as(details: TieringRound | None) -> dict[str, str | None]:
    """How a round deleted keys; no change by a round that deleted none.

    A worker of an older version deletes keys and does not say how: then it is not known.
    """
    if details is None or not (details.keys_deleted or details.deletes_as):
        return {}
    told = details.deletes_as
    return {"deletes_as": told[:ERROR_CHARS_MAX] if told else None}


def _requested(before: KeptStatus | None, details: TieringRound | None) -> dict[str, None]:
    """Ends the request for a compaction that a round has completed; a newer one stays."""
    done_ms = None if details is None else details.compaction_request_ms
    if before is None or done_ms is None or before.compaction_requested_ms != done_ms:
        return {}
    return {"compaction_requested_ms": None}


def _told(details: TieringRound | None) -> dict[str, Any]:
    """What a status has of the last round that told it, such as the size of the lake table."""
    told = {name: getattr(details, name, None) for name in _SHARED}
    return {name: value for name, value in told.items() if value is not None}


def _more(ranges: int) -> list[str]:
    return [f"and {ranges} more"] if ranges else []


def _ranges(accepted: str | None) -> list[str]:
    return list(dict.fromkeys(accepted.split(_SEPARATOR))) if accepted else []


def _fitting(ranges: Sequence[str], chars_max: int) -> list[str]:
    """The first of the ranges that fit into a text of this length."""
    lengths = accumulate(len(one) + len(_SEPARATOR) for one in ranges)
    return list(ranges[: sum(length <= chars_max for length in lengths)])


def _rounds(before: KeptStatus | None) -> int:
    return (before.rounds if before is not None else None) or 0
