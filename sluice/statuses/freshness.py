"""A table's freshness: the maximum age of its lake data."""

from __future__ import annotations

from collections.abc import Mapping

from sluice.model.durations import duration_ms

FRESHNESS = "table.datalake.freshness"
DEFAULT_FRESHNESS_MS = 180_000
"""The default of table.datalake.freshness."""


def freshness_ms(properties: Mapping[str, str]) -> int:
    """The freshness of a table with these properties, in milliseconds.

    :raises InvalidConfig: the option is not a duration.
    """
    text = properties.get(FRESHNESS)
    return DEFAULT_FRESHNESS_MS if text is None else duration_ms(FRESHNESS, text)
