"""Offsets in summaries, in files beside them, and in results."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest

from sluice.errors import LakeCommitRefused, LakeNotWritable, LakeOffsetsLost, LakeTableMismatch
from sluice.model import Partition, TableBucket, TablePath, offsets_to_text
from sluice.rounds.values.offsets import (
    OFFSETS_FILE_BYTES_KEY,
    OFFSETS_FILE_KEY,
    OFFSETS_FILE_SHA256_KEY,
    OFFSETS_KEY,
    SUMMARY_BYTES_MAX,
    offsets_file_name,
    offsets_for_result,
    offsets_of,
    store_offsets,
    write_id_of_offsets_file,
)
from sluice.rounds.values.types import WRITE_ID_KEY, LakeSnapshot
from tests.support.models.memory_lake import MemoryLakeTable
from tests.unit.rounds.conftest import World

PATH = TablePath("db", "t")
MANY = {TableBucket(5, n, n % 3): 7 * n for n in range(12_000)}


@pytest.fixture
def table() -> MemoryLakeTable:
    return MemoryLakeTable("mem:/t")


def snapshot(summary: dict[str, str]) -> LakeSnapshot:
    return LakeSnapshot(77, 1, summary)


def test_a_summary_has_the_text_of_flusss_own_offsets_files(table: MemoryLakeTable) -> None:
    offsets = {TableBucket(5, None, n): offset for n, offset in ((0, 100), (2, 300))}
    summary = store_offsets(table, 5, offsets, "w")
    text = '{"version":1,"table_id":5,"bucket_offsets":[100,-1,300]}'
    assert summary == {OFFSETS_KEY: text}
    assert offsets_of(PATH, table, snapshot(summary)) == offsets
    assert table.beside == {}


def test_offsets_over_64_kb_lie_in_a_file_beside(table: MemoryLakeTable) -> None:
    summary = store_offsets(table, 5, MANY, "some-write-id")
    assert sum(map(len, summary.values())) < 500
    location = summary[OFFSETS_FILE_KEY]
    assert location == "mem:/t/metadata/_sluice-offsets-some-write-id.json"
    assert len(table.beside[location]) > SUMMARY_BYTES_MAX
    assert offsets_of(PATH, table, snapshot(summary)) == MANY


def test_the_limit_itself_still_stands_in_the_summary(table: MemoryLakeTable) -> None:
    def offsets(last: int) -> dict[TableBucket, int]:
        return {TableBucket(5, None, n): 1 for n in range(last)}

    fits = (SUMMARY_BYTES_MAX - len(offsets_to_text(5, offsets(1)))) // 2 + 1
    assert OFFSETS_KEY in store_offsets(table, 5, offsets(fits), "w")
    assert OFFSETS_FILE_KEY in store_offsets(table, 5, offsets(fits + 1), "w")


def test_the_name_of_the_file_tells_who_wrote_it() -> None:
    assert write_id_of_offsets_file(offsets_file_name("a-b")) == "a-b"
    for other in ("v1.metadata.json", "a-b.json", "_sluice-offsets-a"):
        assert write_id_of_offsets_file(other) is None


def _change(content: bytes) -> bytes:
    return content[:-3] + bytes([content[-3] ^ 1]) + content[-2:]


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda _: None, "the file does not exist"),
        (lambda content: content[:-1], "were written"),
        (lambda content: content + b" ", "more than"),
        (_change, "checksum differs"),
        (lambda _: b"", "has 0 bytes"),
    ],
)
def test_a_damaged_file_is_named(
    table: MemoryLakeTable, damage: Callable[[bytes], bytes | None], told: str
) -> None:
    summary = store_offsets(table, 5, MANY, "w")
    location = summary[OFFSETS_FILE_KEY]
    damaged = damage(table.beside.pop(location))
    if damaged is not None:
        table.beside[location] = damaged
    with pytest.raises(LakeOffsetsLost, match=told) as caught:
        offsets_of(PATH, table, snapshot(summary))
    for text in (location, "snapshot 77 of lake table db.t", "sluice repair db.t"):
        assert text in str(caught.value)
    assert str(caught.value).startswith(state := caught.value.details["state"])
    assert "sluice repair" not in state


@pytest.mark.parametrize("size", ["", "-1", "x", "9" * 30])
def test_a_size_that_is_none_is_never_read(table: MemoryLakeTable, size: str) -> None:
    summary = store_offsets(table, 5, MANY, "w") | {OFFSETS_FILE_BYTES_KEY: size}
    with pytest.raises(LakeOffsetsLost, match=OFFSETS_FILE_BYTES_KEY):
        offsets_of(PATH, table, snapshot(summary))


def test_a_file_with_the_right_checksum_and_no_offsets_is_refused(table: MemoryLakeTable) -> None:
    content = b"[]"
    summary = {
        OFFSETS_FILE_KEY: table.write_metadata_file("x", content),
        OFFSETS_FILE_BYTES_KEY: "2",
        OFFSETS_FILE_SHA256_KEY: hashlib.sha256(content).hexdigest(),
    }
    with pytest.raises(LakeTableMismatch, match="cannot be read"):
        offsets_of(PATH, table, snapshot(summary))


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
def test_other_texts_are_refused(table: MemoryLakeTable, text: str) -> None:
    with pytest.raises(LakeTableMismatch, match=r"sluice\.offsets"):
        offsets_of(PATH, table, snapshot({OFFSETS_KEY: text}))


def test_offsets_of_another_table_are_refused(table: MemoryLakeTable) -> None:
    summary = store_offsets(table, 5, MANY, "w") | {"sluice.table-id": "6"}
    with pytest.raises(LakeTableMismatch, match="table id 5, not 6"):
        offsets_of(PATH, table, snapshot(summary))


def test_a_snapshot_of_flusss_own_tiering_has_none(table: MemoryLakeTable) -> None:
    assert offsets_of(PATH, table, snapshot({"fluss-offsets": "/x"})) is None


def test_result_keys() -> None:
    offsets = {TableBucket(1, None, 3): 5, TableBucket(1, 7, 0): 6}
    assert offsets_for_result(offsets) == {"3": 5, "7/0": 6}


# ---- in rounds ----


@pytest.fixture
def many(partitioned: World) -> World:
    """12,000 partitions, each with a row in its one bucket."""
    ids = range(100, 12_100)
    partitioned.cluster.partitions_by_id = {n: Partition(n, (f"p{n}",)) for n in ids}
    for n in ids:
        partitioned.append(0, 1, partition_id=n)
    return partitioned


def files_beside(world: World) -> set[str]:
    return set(world.table.beside)


def test_a_round_of_many_partitions_is_recovered_from_its_file(
    many: World, arm: Callable[[str], None]
) -> None:
    arm("round.fluss_commit.before=raise")
    with pytest.raises(RuntimeError):
        many.round()
    summary = many.table.snapshots()[0].summary
    assert files_beside(many) == {summary[OFFSETS_FILE_KEY]}
    assert summary[WRITE_ID_KEY] in summary[OFFSETS_FILE_KEY]
    [(location, content)] = many.table.beside.items()
    many.table.beside[location] = content[:-1]
    with pytest.raises(LakeOffsetsLost):
        many.round()
    assert many.cluster.registered == []
    many.table.beside[location] = content
    result = many.round()
    assert result.recovered_snapshot_id == many.table.snapshots()[0].snapshot_id
    many.assert_exactly_once()


def test_a_refused_round_takes_its_offsets_file_with_it(many: World) -> None:
    claim = many.cluster.begin_round()
    many.lake.create(many.cluster.table_info(claim.path))

    def overtake() -> None:
        assert len(files_beside(many)) == 1
        many.round()

    many.table.before_commit = overtake
    with pytest.raises(LakeCommitRefused):
        many.round(claim)
    assert files_beside(many) == {many.table.snapshots()[0].summary[OFFSETS_FILE_KEY]}
    many.assert_exactly_once()


def test_a_file_that_cannot_be_written_fails_the_round_before_its_commit(many: World) -> None:
    table = many.lake.create(many.cluster.table_info(many.cluster.begin_round().path))

    def full(name: str, content: bytes) -> str:
        raise LakeNotWritable(f"no room for {len(content)} bytes of {name}")

    table.write_metadata_file = full  # type: ignore[method-assign]
    with pytest.raises(LakeNotWritable, match="no room"):
        many.round()
    assert (table.snapshots(), table.files) == ([], {})
