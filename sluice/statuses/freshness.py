"""How old the lake of a table may be."""

from __future__ import annotations

from collections.abc import Mapping

from sluice.model.durations import duration_ms

FRESHNESS = "table.datalake.freshness"
DEFAULT_FRESHNESS_MS = 180_000
"""table.datalake.freshness when a table says nothing."""


def freshness_ms(properties: Mapping[str, str]) -> int:
    """Of a table with these properties, in milliseconds.

    :raises InvalidConfig: it is no duration.
    """
    text = properties.get(FRESHNESS)
    return DEFAULT_FRESHNESS_MS if text is None else duration_ms(FRESHNESS, text)
