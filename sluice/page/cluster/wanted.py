"""Which rows of a list are wanted, and their order."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeVar

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which tables are wanted, and in which order."""

    search: str = ""
    """Words, each of which is in the table's path or near the beginning of what is said of it."""
    states: Collection[str] = ()
    database: str | None = None
    sort: str = "attention"
    descending: bool = False


def ordered(
    rows: list[R], wanted: Wanted, rank: Callable[[R], Any], value: Callable[[R, str], Any]
) -> list[R]:
    """The rows in the wanted order; those without a value come last, whatever the direction.

    :param rows: ordered by path. Equal ones stay in this order.
    :param rank: orders them by attention.
    :param value: what ``wanted.sort`` names; None: the row has none.
    """
    if wanted.sort == "table":
        return rows[::-1] if wanted.descending else rows
    if wanted.sort == "attention":
        return sorted(rows, key=rank, reverse=wanted.descending)
    values = [(value(row, wanted.sort), row) for row in rows]
    known = [pair for pair in values if pair[0] is not None]
    known.sort(key=lambda pair: pair[0], reverse=wanted.descending)
    return [*(row for _, row in known), *(row for found, row in values if found is None)]
