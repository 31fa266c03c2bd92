"""Numbers with their units, for people."""

from __future__ import annotations

import pytest

from sluice.quantities import time_left


@pytest.mark.parametrize(
    ("left_ms", "shown"),
    [
        (-5, "0 s"),
        (119_999, "119 s"),
        (120_000, "2 min"),
        (7_199_999, "119 min"),
        (7_200_000, "2 h"),
        (3_600_000_000, "1,000 h"),
    ],
)
def test_the_time_that_is_left(left_ms: int, shown: str) -> None:
    assert time_left(left_ms) == shown
