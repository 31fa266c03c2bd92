"""Numbers with their nouns and units, for people."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """A number and its noun: ``1 row``, ``1,200 rows``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def byte_size(size: int) -> str:
    """A number of bytes: ``999 bytes``, ``1.2 kB``, ``3.4 GB``."""
    if size < 1000:
        return counted(size, "byte")
    value, units = size / 1000, ["kB", "MB", "GB", "TB", "PB"]
    while value >= 999.95 and len(units) > 1:
        value /= 1000
        units.pop(0)
    return f"{value:,.1f} {units[0]}"


def time_left(left_ms: int) -> str:
    """How long something is still valid: ``50 s``, ``16 min``, ``30 h``; rounded down."""
    seconds = max(0, left_ms) // 1000
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600:,} h"
