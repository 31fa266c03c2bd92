"""Change types of changelog rows (docs/fluss/log-batches.md#change-types)."""

from __future__ import annotations

from enum import IntEnum


class ChangeType(IntEnum):
    """The change types of Fluss's log, by their stored numbers."""

    APPEND_ONLY = 0
    INSERT = 1
    UPDATE_BEFORE = 2
    UPDATE_AFTER = 3
    DELETE = 4

    @property
    def symbol(self) -> str:
        """The symbol in Fluss: ``+A``, ``+I``, ``-U``, ``+U`` or ``-D``."""
        return ("+A", "+I", "-U", "+U", "-D")[self]
