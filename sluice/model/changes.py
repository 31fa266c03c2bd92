"""Change types of changelog rows (docs/fluss/log-batches.md#change-types)."""

from __future__ import annotations

from enum import IntEnum


class ChangeType(IntEnum):
    """The change types of Fluss's log, by the number that stands in it."""

    APPEND_ONLY = 0
    INSERT = 1
    UPDATE_BEFORE = 2
    UPDATE_AFTER = 3
    DELETE = 4

    @property
    def symbol(self) -> str:
        """How Fluss writes it: ``+A``, ``+I``, ``-U``, ``+U`` or ``-D``."""
        return ("+A", "+I", "-U", "+U", "-D")[self]
