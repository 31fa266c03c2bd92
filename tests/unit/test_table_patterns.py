"""Which tables names and patterns choose."""

from __future__ import annotations

import pytest

from sluice.model import TablePath
from sluice.model.patterns import TablePatterns, matches


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ([], []),
        (["shop.a", "staff.b"], ["shop.a", "staff.b"]),
        (["shop.A"], []),
        (["shop.*"], ["shop.a", "shop.b"]),
        (["*.a", "shop.b"], ["shop.a", "shop.b"]),
        (["shop.?"], ["shop.a", "shop.b"]),
        (["shop.[!a]", "staff.b"], ["shop.b", "staff.b"]),
        (["*"], ["shop.a", "shop.b", "staff.b"]),
    ],
)
def test_names_and_patterns_choose_tables(given: list[str], chosen: list[str]) -> None:
    paths = [TablePath("shop", "a"), TablePath("shop", "b"), TablePath("staff", "b")]
    patterns = TablePatterns(given)
    assert [str(path) for path in paths if patterns.matches(path)] == chosen
    assert [str(path) for path in paths if matches(path, given)] == chosen
