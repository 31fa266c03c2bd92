"""The order of a log table's files, by their names."""

from __future__ import annotations

import pytest

from sluice.rounds.values.write_ids import order_of

UNIQUE = "5b1c6c1e-0000-5abc-8abc-{}"


@pytest.mark.parametrize("last", ["123456789012", "abcdef123456", "abcdefabcdef"])
@pytest.mark.parametrize(
    ("suffix", "place"),
    [
        ("", (17, 3, 0, 2)),
        ("-part10", (17, 3, 10, 2)),
        ("-part10-in7", (17, 3, 10, 2)),
        ("-rewrite5", (5, 3, 0, 2)),
    ],
)
def test_names_say_where_rows_come_in_the_log(
    last: str, suffix: str, place: tuple[int, ...]
) -> None:
    """Whatever digits the id has: some look like a part of the name."""
    name = f"00003-0-17-9f3a1c22d0e14b6f-{UNIQUE.format(last)}{suffix}-00002.parquet"
    assert order_of(f"s3://lake/shop.db/events/data/{name}")[:4] == place


@pytest.mark.parametrize("name", ["00000-1-6d0f0d3e-00001.parquet", "part-00010.parquet"])
def test_files_of_others_come_first(name: str) -> None:
    assert order_of(f"data/{name}")[:4] == (-1, 0, 0, 0)
