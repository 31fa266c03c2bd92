"""The names of partitions by time, and which of them are old."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from sluice.errors import InvalidConfig, InvalidTable
from sluice.model import TablePath
from sluice.server.coordinator.catalog.auto_partition_rules import (
    AutoPartitions,
    auto_partitions,
    check_auto_partitions,
)

PATH = TablePath("db", "t")


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def rules(keys: tuple[str, ...] = ("day",), **options: Any) -> AutoPartitions:
    properties = {"table.auto-partition.enabled": "true", "table.auto-partition.time-zone": "UTC"}
    for name, value in options.items():
        properties[f"table.auto-partition.{name.replace('_', '-')}"] = str(value)
    check_auto_partitions(PATH, properties, keys)
    made = auto_partitions(properties, keys)
    assert made is not None
    return made


NAMES = {
    "HOUR": ["2024123122", "2024123123", "2025010100"],
    "DAY": ["20241231", "20250101", "20250102"],
    "MONTH": ["202412", "202501", "202502"],
    "QUARTER": ["20244", "20251", "20252"],
    "YEAR": ["2024", "2025", "2026"],
}


@pytest.mark.parametrize("unit", NAMES)
def test_names_begin_with_the_present(unit: str) -> None:
    made = rules(time_unit=unit.lower(), num_precreate=3)
    assert made.wanted(at("2024-12-31T22:59:59"), 1_000) == NAMES[unit]


def test_by_default_today_and_tomorrow() -> None:
    assert rules().wanted(at("2024-02-28T12:00"), 1_000) == ["20240228", "20240229"]
    assert rules(num_precreate=10**9).wanted(at("2024-02-28T12:00"), 2) == ["20240228", "20240229"]
    assert rules(num_precreate=0).wanted(at("2024-02-28T12:00"), 1_000) == []
    assert rules(num_precreate=-5).wanted(at("2024-02-28T12:00"), 1_000) == []


@pytest.mark.parametrize(
    ("zone", "name"),
    [
        ("Asia/Shanghai", "2024063006"),
        ("America/New_York", "2024062918"),
        ("GMT+08:00", "2024063006"),
        ("GMT-3", "2024062919"),
        ("GMT+0530", "2024063004"),
    ],
)
def test_time_is_that_of_the_zone(zone: str, name: str) -> None:
    made = rules(time_zone=zone, time_unit="HOUR", num_precreate=1)
    assert made.wanted(at("2024-06-29T22:30"), 1) == [name]


def test_an_hour_that_comes_twice_has_one_partition() -> None:
    """The end of summer time in Berlin, 27 October 2024 at 01:00 UTC."""
    made = rules(time_zone="Europe/Berlin", time_unit="HOUR", num_precreate=4)
    hours = ["2024102701", "2024102702", "2024102702", "2024102703"]
    assert made.wanted(at("2024-10-26T23:30"), 4) == hours


@pytest.mark.parametrize(
    ("unit", "old", "kept"),
    [
        ("HOUR", "2024010921", "2024010922"),
        ("DAY", "20240107", "20240108"),
        ("MONTH", "202310", "202311"),
        ("QUARTER", "20232", "20233"),
        ("YEAR", "2021", "2022"),
    ],
)
def test_what_is_older_than_the_retention_is_old(unit: str, old: str, kept: str) -> None:
    made, now = rules(time_unit=unit, num_retention=2), at("2024-01-10T00:00")
    assert made.expired(now, old)
    assert not made.expired(now, kept)


def test_nothing_is_old_without_a_retention() -> None:
    assert not rules(num_retention=-1).expired(at("2024-01-10T00:00"), "19700101")
    assert not rules(num_retention=2**31 - 1).expired(at("2024-01-10T00:00"), "19700101")
    assert rules(num_retention=0).expired(at("2024-01-10T00:00"), "20240109")


def test_the_time_is_in_the_named_key() -> None:
    made = rules(("region", "day"), key="day")
    assert (made.key, made.wanted(at("2024-01-10T00:00"), 10)) == (1, ["20240110", "20240111"])


@pytest.mark.parametrize(
    ("error", "match", "keys", "options"),
    [
        (InvalidConfig, "needs a partition key", (), {}),
        (InvalidTable, "name the partition key that has the time", ("a", "b"), {}),
        (InvalidTable, "one of a, b", ("a", "b"), {"key": "c"}),
        (InvalidTable, "' a ': name the partition key", ("a", "b"), {"key": " a "}),
        (InvalidTable, "must be 0", ("a", "b"), {"key": "a", "num_precreate": 1}),
        (
            InvalidConfig,
            "'Mars/Olympus': this server does not",
            ("a",),
            {"time_zone": "Mars/Olympus"},
        ),
        (InvalidConfig, "does not know the time zone", ("a",), {"time_zone": "GMT+24"}),
        (InvalidConfig, "does not know the time zone", ("a",), {"time_zone": "../../etc/passwd"}),
        (InvalidConfig, "does not know the time zone", ("a",), {"time_zone": ""}),
    ],
)
def test_options_that_do_not_fit_are_refused(
    error: type[Exception], match: str, keys: tuple[str, ...], options: dict[str, Any]
) -> None:
    with pytest.raises(error, match=match):
        rules(keys, **options)
