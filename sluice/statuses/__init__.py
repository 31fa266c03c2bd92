"""The rules of tiering states and epochs: pure tables of moves, without I/O, clock or lock."""

from sluice.statuses.moves import MOVES, State, TableStatus, may_enter
from sluice.statuses.statuses import (
    DEFAULT_FRESHNESS_MS,
    ERROR_CHARS_MAX,
    TieringStatuses,
)

__all__ = [
    "DEFAULT_FRESHNESS_MS",
    "ERROR_CHARS_MAX",
    "MOVES",
    "State",
    "TableStatus",
    "TieringStatuses",
    "may_enter",
]
