"""The offsets file against docs/fluss/lake-snapshots.md#offsets-file"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.errors import CorruptMessage
from sluice.formats.offsets_file import offsets_from_json, offsets_to_json
from sluice.model import TableBucket

VECTORS = [
    (b'{"version":1,"table_id":1}', 1, {}),
    (
        b'{"version":1,"table_id":5,"bucket_offsets":[100,-1,300,-1,500]}',
        5,
        {(None, 0): 100, (None, 2): 300, (None, 4): 500},
    ),
    (
        b'{"version":1,"table_id":7,"partition_offsets":['
        b'{"partition_id":1,"bucket_offsets":[100,-1,300]},'
        b'{"partition_id":2,"bucket_offsets":[-1,400,-1,600]}]}',
        7,
        {(1, 0): 100, (1, 2): 300, (2, 1): 400, (2, 3): 600},
    ),
]


@pytest.mark.parametrize(("content", "table_id", "known"), VECTORS)
def test_a_file_reads_and_writes_as_the_vector(
    content: bytes, table_id: int, known: dict[tuple[int | None, int], int]
) -> None:
    offsets = {TableBucket(table_id, *bucket): offset for bucket, offset in known.items()}
    assert offsets_from_json(content) == (table_id, offsets)
    backwards = dict(reversed(offsets.items()))
    assert offsets_to_json(table_id, backwards) == content


@given(
    st.booleans().flatmap(
        lambda partitioned: st.dictionaries(
            st.builds(
                TableBucket,
                st.just(3),
                st.integers(0, 2**40) if partitioned else st.none(),
                st.integers(0, 50),
            ),
            st.integers(0, 2**63 - 1),
        )
    )
)
def test_any_offsets_survive(offsets: dict[TableBucket, int]) -> None:
    assert offsets_from_json(offsets_to_json(3, offsets)) == (3, offsets)


def test_what_does_not_belong_together_is_refused() -> None:
    with pytest.raises(ValueError, match="does not belong to table 1"):
        offsets_to_json(1, {TableBucket(2, None, 0): 1})
    with pytest.raises(ValueError, match="only some of the buckets"):
        offsets_to_json(1, {TableBucket(1, None, 0): 1, TableBucket(1, 4, 0): 1})
    with pytest.raises(ValueError, match="bucket ids"):
        offsets_to_json(1, {TableBucket(1, None, 2**30): 1})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b"[" * 100_000,
        b'{"version":2,"table_id":1}',
        b'{"version":1}',
        b'{"version":1,"table_id":"1"}',
        b'{"version":1,"table_id":1,"bucket_offsets":{}}',
        b'{"version":1,"table_id":1,"bucket_offsets":[-2]}',
        b'{"version":1,"table_id":1,"bucket_offsets":[1.5]}',
        b'{"version":1,"table_id":1,"bucket_offsets":[true]}',
        b'{"version":1,"table_id":1,"bucket_offsets":[9223372036854775808]}',
        b'{"version":1,"table_id":1,"partition_offsets":[3]}',
        b'{"version":1,"table_id":1,"partition_offsets":[{"bucket_offsets":[1]}]}',
    ],
)
def test_a_broken_file_is_refused(content: bytes) -> None:
    with pytest.raises(CorruptMessage, match="offsets file"):
        offsets_from_json(content)
