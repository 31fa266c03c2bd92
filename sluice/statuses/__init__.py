"""The rules of tiering states and epochs, without I/O, clock or lock."""

from sluice.statuses.freshness import DEFAULT_FRESHNESS_MS, FRESHNESS, freshness_ms
from sluice.statuses.outcomes import BACKOFF_MAX_MS, BACKOFF_MS, ERROR_CHARS_MAX
from sluice.statuses.recorded import UNKNOWN, RecordedStatus
from sluice.statuses.statuses import TieringStatuses
from sluice.statuses.transitions import TRANSITIONS, State, TableStatus, may_enter

__all__ = [
    "BACKOFF_MAX_MS",
    "BACKOFF_MS",
    "DEFAULT_FRESHNESS_MS",
    "ERROR_CHARS_MAX",
    "FRESHNESS",
    "TRANSITIONS",
    "UNKNOWN",
    "RecordedStatus",
    "State",
    "TableStatus",
    "TieringStatuses",
    "freshness_ms",
    "may_enter",
]
