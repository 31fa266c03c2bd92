"""How old the lake of a table may be, by its properties."""

from __future__ import annotations

import pytest

from sluice.errors import InvalidConfig
from sluice.statuses.freshness import DEFAULT_FRESHNESS_MS, FRESHNESS, freshness_ms


def test_a_table_that_says_nothing_has_the_default() -> None:
    assert freshness_ms({"table.datalake.enabled": "true"}) == DEFAULT_FRESHNESS_MS


def test_what_a_table_says_counts() -> None:
    assert freshness_ms({FRESHNESS: "1 s"}) == 1_000


def test_what_is_no_duration_is_named() -> None:
    with pytest.raises(InvalidConfig, match=r"table\.datalake\.freshness"):
        freshness_ms({FRESHNESS: "soon"})
