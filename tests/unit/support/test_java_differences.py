"""The comparison of the Java client's answers is strict in every direction."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.conformance.difference import Difference
from tests.support.clients.java_differences import (
    LISTED,
    LISTED_1_0,
    OWN_WORDS,
    OWN_WORDS_1_0,
    wrong,
)

REAL = {
    ("tables", "a"): "1",
    ("tables", "b"): "NoTable",
    ("tables", "b, in words"): "Table 'b' is not there.",
    ("tables", "c"): "2",
}
SAME = REAL | {("tables", "b, in words"): "table b does not exist", ("tables", "c"): "3"}
KNOWN = {("tables", "c"): Difference("3", "why")}
WORDS = {"tables": ("b",)}


def test_equal_but_for_what_is_listed() -> None:
    assert wrong(REAL, SAME, KNOWN, WORDS) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({("tables", "a"): "2"}, "('tables', 'a'): '2'; Fluss: '1'"),
        ({("tables", "d"): "1"}, "('tables', 'd'): '1'; Fluss: None"),
        ({("tables", "b"): "OtherError"}, "('tables', 'b'): 'OtherError'; Fluss: 'NoTable'"),
        ({("tables", "c"): "2"}, "('tables', 'c'): '2', listed as '3'; Fluss: '2'"),
        ({("tables", "c"): "4"}, "('tables', 'c'): '4', listed as '3'; Fluss: '2'"),
        (
            {("tables", "b, in words"): REAL["tables", "b, in words"]},
            "('tables', 'b, in words'): \"Table 'b' is not there.\"",
        ),
    ],
)
def test_what_differs_or_is_wrongly_listed(change: dict[tuple[str, str], str], says: str) -> None:
    [line] = wrong(REAL, SAME | change, KNOWN, WORDS)
    assert line.startswith(says)


def test_words_that_are_not_listed_are_the_same() -> None:
    [line] = wrong(REAL, SAME, KNOWN, {})
    assert line.startswith("('tables', 'b, in words'): 'table b does not exist'")


def test_what_is_listed_is_asked() -> None:
    more = KNOWN | {("tables", "e"): Difference("1", "why"), ("lake", "x"): Difference("1", "why")}
    assert wrong(REAL, SAME, more, WORDS) == ["('tables', 'e'): listed, and not asked"]


@pytest.mark.parametrize(
    ("listed", "own_words"), [(LISTED, OWN_WORDS), (LISTED_1_0, OWN_WORDS_1_0)]
)
def test_no_question_is_in_both_lists(
    listed: Mapping[tuple[str, str], Difference], own_words: Mapping[str, tuple[str, ...]]
) -> None:
    own = {(subject, question) for subject, of in own_words.items() for question in of}
    assert not own & set(listed)
