"""Offsets in summaries and results; the text itself is tested with the offsets files."""

from __future__ import annotations

import pytest

from sluice.errors import LakeTableMismatch
from sluice.model import TableBucket, offsets_to_text
from sluice.rounds.offsets import offsets_for_result, offsets_of_summary


def test_a_summary_has_the_text_of_flusss_own_offsets_files() -> None:
    offsets = {TableBucket(5, None, n): offset for n, offset in ((0, 100), (2, 300))}
    text = offsets_to_text(5, offsets)
    assert text == '{"version":1,"table_id":5,"bucket_offsets":[100,-1,300]}'
    assert offsets_of_summary(text) == (5, offsets)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"version":2}',
        '{"version":1}',
        '{"version":1,"a":',
        '{"version":1,"table_id":1,"bucket_offsets":["7"]}',
        '{"version":1,"table_id":1,"bucket_offsets":[-7]}',
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(LakeTableMismatch, match=r"sluice\.offsets"):
        offsets_of_summary(text)


def test_result_keys() -> None:
    offsets = {TableBucket(1, None, 3): 5, TableBucket(1, 7, 0): 6}
    assert offsets_for_result(offsets) == {"3": 5, "7/0": 6}
