"""What a user may write as the argument ``until`` of a table sensor."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from sluice.errors import ConfigurationError
from sluice_airflow.goals.until import Until

MAY_MS = 1_777_593_600_000
MAY = datetime(2026, 5, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("now", Until()),
        (" now ", Until()),
        (MAY, Until(time_ms=MAY_MS)),
        (MAY.replace(tzinfo=None), Until(time_ms=MAY_MS)),
        (MAY.astimezone(timezone(timedelta(hours=2))), Until(time_ms=MAY_MS)),
        ("2026-05-01", Until(time_ms=MAY_MS)),
        ("2026-05-01T00:00:00Z", Until(time_ms=MAY_MS)),
        ("2026-05-01 02:00:00+02:00", Until(time_ms=MAY_MS)),
        (MAY + timedelta(microseconds=1), Until(time_ms=MAY_MS + 1)),
        (1200, Until(offsets_sum=1200)),
        ("1200", Until(offsets_sum=1200)),
        ({"0": 12, "7/1": "5"}, Until(ends={"0": 12, "7/1": 5})),
        ({0: 12}, Until(ends={"0": 12})),
        ("{'0': 12}", Until(ends={"0": 12})),
        ('{"7/1": 5}', Until(ends={"7/1": 5})),
    ],
)
def test_a_value_is_understood(value: Any, expected: Until) -> None:
    found = Until.parse(value)
    assert found == expected
    assert Until(**found.to_json()) == found


@pytest.mark.parametrize(
    "value",
    [
        "",
        "None",
        None,
        True,
        1.5,
        -1,
        "-1",
        2**63,
        "9" * 30,
        "tomorrow",
        "2026-13-01",
        "{'0': 12",
        "{",
        "{}",
        {},
        {"0": -1},
        {"0": True},
        {"0": None},
        {"a": 1},
        {"1/2/3": 1},
        {"-1": 1},
        ["0"],
        "{1: __import__('os')}",
    ],
)
def test_another_value_is_refused_with_the_allowed_forms(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="^until: .*use 'now', a time such as"):
        Until.parse(value)
