"""Durations and table options as Fluss writes them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.errors import InvalidConfig
from sluice.model.durations import duration_ms
from sluice.server.coordinator.catalog.options import (
    ALTERABLE,
    KNOWN,
    checked_option,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3 min", 180_000),
        ("3min", 180_000),
        ("30s", 30_000),
        ("0s", 0),
        ("500ms", 500),
        ("1500", 1_500),
        ("2 H", 7_200_000),
        ("7 d", 604_800_000),
        ("1 day", 86_400_000),
        ("5000 us", 5),
        ("PT3M", 180_000),
        ("pt1h30m", 5_400_000),
        ("P1DT0.5S", 86_400_500),
    ],
)
def test_durations(text: str, expected: int) -> None:
    assert duration_ms("k", text) == expected


@pytest.mark.parametrize("text", ["", "soon", "3 fortnights", "-3s", "1.5s", "P", "PT", "PT3", "m"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(InvalidConfig, match="k = "):
        duration_ms("k", text)


@given(st.text(max_size=12))
def test_any_text_is_a_duration_or_a_typed_error(text: str) -> None:
    with contextlib.suppress(InvalidConfig):
        assert duration_ms("k", text) >= 0


def test_options() -> None:
    assert ALTERABLE <= KNOWN
    assert checked_option("table.log.arrow.compression.type", "zstd") == "zstd"
    assert checked_option("table.datalake.enabled", "TRUE") == "true"
    assert checked_option("table.log.arrow.compression.zstd.level", "22") == "22"
    assert checked_option("table.log.tiered.local-segments", "1") == "1"
    for key, value in (
        ("table.nope", "1"),
        ("table.log.arrow.compression.type", "SNAPPY"),
        ("table.replication.factor", "one"),
        ("table.datalake.enabled", "1"),
        ("table.log.arrow.compression.zstd.level", "0"),
        ("table.log.arrow.compression.zstd.level", "23"),
        ("table.log.tiered.local-segments", "0"),
    ):
        with pytest.raises(InvalidConfig, match=key):
            checked_option(key, value)
