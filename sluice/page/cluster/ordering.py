"""The order of lists by a value that not every row has."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

R = TypeVar("R")


def by_value(rows: Iterable[R], value: Callable[[R], Any], *, descending: bool) -> list[R]:
    """The rows by a value; those without one come last, whatever the direction.

    Equal ones stay in their order.

    :param value: None: the row has none.
    """
    values = [(value(row), row) for row in rows]
    known = [pair for pair in values if pair[0] is not None]
    known.sort(key=lambda pair: pair[0], reverse=descending)
    return [*(row for _, row in known), *(row for found, row in values if found is None)]
