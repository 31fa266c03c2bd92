"""Lists in notes and messages, which have a limit: a table may have thousands of partitions."""

from __future__ import annotations

from collections.abc import Sequence

NOTED_MAX = 20


def capped(notes: Sequence[str]) -> list[str]:
    """The first notes, and how many more there are of their kind."""
    more = [f"and {len(notes) - NOTED_MAX} more such notes"] if len(notes) > NOTED_MAX else []
    return [*notes[:NOTED_MAX], *more]


def first_of(texts: Sequence[str], separator: str = ", ", limit: int = NOTED_MAX) -> str:
    """The first texts, and how many more there are."""
    more = f" and {len(texts) - limit} more" if len(texts) > limit else ""
    return separator.join(texts[:limit]) + more
