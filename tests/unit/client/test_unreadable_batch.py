"""Batches that cannot be read: what the error names, and what may be skipped."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluice.client import Client
from sluice.client.tiering.log_source import ClientLogSource
from sluice.client.unreadable_batch import unreadable_batch
from sluice.errors import ConfigurationError, CorruptRecord
from sluice.formats.log.batch import LENGTH_OVERHEAD, encode_log_batch
from sluice.model import Column, Schema, TableDescriptor
from sluice.model import types as t
from sluice.rounds.values.types import OffsetRange, Split
from tests.support.tables.forged_batches import append_unchecked
from tests.support.tables.orders import PATH, PLAIN, bucket, create, ids, orders, write
from tests.unit.client.conftest import Cluster

NAMES = (
    "`sluice repair shop.orders` with the same --warehouse or --config names the batch that the"
    " last round could not read"
)
BY_DAY = TableDescriptor(
    Schema((Column("id", t.BIGINT, 0), Column("day", t.STRING, 1)), highest_field_id=1),
    partition_keys=("day",),
    bucket_count=1,
)
LENGTH_AT, DELTA_AT = 8, 28  # of a batch's header, version 0


@pytest.fixture
def log(client: Client, cluster: Any, tmp_path: Path) -> Path:
    """A log with the batches 0 to 9, 10 to 19 and 20 to 29.

    As on Apache Fluss, the server sends what its file has: it does not check its own appends.
    """
    create(client, PLAIN)
    write(client, orders(0, 10), orders(10, 10), orders(20, 10))
    (segment,) = [p for p in (tmp_path / "data").rglob("*.log") if p.stat().st_size > 100]
    return segment


def damage(log: Path, batch: int, at: int = -3, change: int = 1) -> None:
    """Changes one byte of a batch."""
    content = bytearray(log.read_bytes())
    position, size = places(log)[batch]
    content[position + (at if at >= 0 else size + at)] ^= change
    log.write_bytes(content)


def places(log: Path) -> list[tuple[int, int]]:
    """Position and size of each batch, by the length fields."""
    found, position, content = list[tuple[int, int]](), 0, log.read_bytes()
    while position < len(content):
        (length,) = struct.unpack_from("<i", content, position + LENGTH_AT)
        found.append((position, length + LENGTH_OVERHEAD))
        position += length + LENGTH_OVERHEAD
    return found


def put(log: Path, position: int, content: bytes) -> None:
    """Overwrites bytes of the log."""
    with log.open("r+b") as file:
        file.seek(position)
        file.write(content)


def set_length(log: Path, batch: int, size: int) -> None:
    """Sets the length field of a batch, for a batch of that many bytes."""
    position, _ = places(log)[batch]
    put(log, position + LENGTH_AT, struct.pack("<i", size - LENGTH_OVERHEAD))


def give_up(client: Client, count: int) -> None:
    """Gives up what the server has found to be damaged."""
    damaged = client.damage.list(PATH)
    assert len(damaged) == count
    for one in damaged:
        client.damage.skip(one)


def found(client: Client, offset: int, tiered: int = 0) -> OffsetRange:
    batch, _ = unreadable_batch(client, PATH, bucket(client), offset, tiered)
    return batch


@pytest.mark.parametrize(("batch", "start"), [(0, 0), (1, 10), (2, 20)])
@pytest.mark.parametrize("at", [-3, DELTA_AT])
def test_the_error_names_the_batch_and_its_end_is_found(
    client: Client, log: Path, batch: int, start: int, at: int
) -> None:
    damage(log, batch, at)
    with pytest.raises(
        CorruptRecord, match=rf"bucket 0 of table shop\.orders: .*offset {start}"
    ) as no:
        list(client.log_reader(PATH).read(bucket(client)))
    assert no.value.details["base_offset"] == start
    stop = start + 10
    if at == DELTA_AT and batch == 2:
        stop = start  # no batch follows, and its own header is not valid
    assert found(client, start) == OffsetRange(bucket(client), start, stop)


@pytest.mark.parametrize("at", [-3, DELTA_AT])
def test_the_batches_around_it_can_be_read(client: Client, log: Path, at: int) -> None:
    damage(log, 1, at)
    reader = client.log_reader(PATH)
    assert ids(reader.read(bucket(client), 0, 10)) == list(range(10))
    assert ids(reader.read(bucket(client), 20)) == list(range(20, 30))


def test_a_range_that_the_server_has_given_up_is_named_and_may_be_skipped(
    client: Client, cluster: Any, tmp_path: Path
) -> None:
    create(client, PLAIN)
    write(client, orders(0, 10), orders(10, 10), orders(20, 10))
    cluster.stop()
    (log,) = [p for p in (tmp_path / "data").rglob("*.log") if p.stat().st_size > 100]
    damage(log, 1)
    cluster.start()
    reader = client.log_reader(PATH)
    for start in (0, 20):
        with pytest.raises(CorruptRecord, match="refuses .*skip-damaged shop.orders 0:10`") as no:
            list(reader.read(bucket(client), start))
        assert "base_offset" not in no.value.details, "no round may skip it yet"
    with pytest.raises(CorruptRecord, match="skip-damaged shop.orders 0:10`"):
        found(client, 10)
    give_up(client, 1)
    assert ids(reader.read(bucket(client), 0, 10)) == list(range(10))
    assert ids(reader.read(bucket(client), 20)) == list(range(20, 30))
    for start in (0, 10, 13):
        with pytest.raises(CorruptRecord, match="offsets 10 to 19 are lost.*offset 20") as no:
            list(reader.read(bucket(client), start))
        assert (no.value.details["base_offset"], no.value.details["next_offset"]) == (10, 20)
    assert found(client, 10) == OffsetRange(bucket(client), 10, 20)
    with pytest.raises(
        ConfigurationError, match="no damaged range begins at offset 13.*--skip 0:10"
    ):
        found(client, 13)


@pytest.fixture
def joined(client: Client, cluster: Any, tmp_path: Path) -> None:
    """Batches of ten rows from 0 to 39. The server says of 10 to 29 that they are lost."""
    create(client, PLAIN)
    write(client, *(orders(start, 10) for start in range(0, 40, 10)))
    cluster.stop()
    (log,) = [p for p in (tmp_path / "data").rglob("*.log") if p.stat().st_size > 100]
    damage(log, 1)
    damage(log, 2)
    cluster.start()
    for start in (0, 20):
        with pytest.raises(CorruptRecord, match="refuses"):
            list(client.log_reader(PATH).read(bucket(client), start))
        give_up(client, 1)


@pytest.mark.usefixtures("joined")
@pytest.mark.parametrize("named", [10, 20])
def test_the_rest_of_a_damaged_range_that_was_tiered_in_part_may_be_skipped(
    client: Client, named: int
) -> None:
    """Rounds name the begin of the range. It grew: one half was skipped or tiered before."""
    with pytest.raises(CorruptRecord, match="offsets 10 to 29 are lost") as no:
        list(client.log_reader(PATH).read(bucket(client), 20))
    assert no.value.details["base_offset"] == 10
    left_out = [OffsetRange(bucket(client), 10, 20)]
    rest, _ = unreadable_batch(client, PATH, bucket(client), named, 20, left_out)
    assert rest == OffsetRange(bucket(client), 20, 30)


@pytest.mark.usefixtures("joined")
@pytest.mark.parametrize(
    ("offset", "tiered", "why"),
    [
        (15, 20, "the bucket was already tiered up to offset 20"),
        (10, 30, "the bucket was already tiered up to offset 30"),
        (23, 20, "no damaged range begins at offset 23.*Use --skip 0:20"),
        (20, 0, "no damaged range begins at offset 20.*Use --skip 0:10"),
        (20, 10, "no damaged range begins at offset 20.*Use --skip 0:10"),
    ],
)
def test_a_skip_of_a_damaged_range_leaves_nothing_of_it(
    client: Client, offset: int, tiered: int, why: str
) -> None:
    with pytest.raises(ConfigurationError, match=why):
        found(client, offset, tiered)


def test_an_end_beyond_one_fetch_is_found(client: Client, cluster: Any, tmp_path: Path) -> None:
    create(client, PLAIN, properties={"table.log.arrow.compression.type": "NONE"})
    write(client, orders(0, 1000, "x" * 2000), orders(1000, 1))
    (log,) = [p for p in (tmp_path / "data").rglob("*.log") if p.stat().st_size > 100]
    damage(log, 0)
    assert log.stat().st_size > 1 << 20
    assert found(client, 0).stop > 0


@pytest.mark.parametrize("less", [1, 8, 16, 200, -1, -8, -16, -200])
@pytest.mark.parametrize("delta_too", [False, True])
def test_a_damaged_length_moves_the_end_nowhere(
    client: Client, log: Path, less: int, *, delta_too: bool
) -> None:
    """The header's own end counts, if a readable batch begins there. Else the end is unknown."""
    _, size = places(log)[1]
    if delta_too:
        damage(log, 1, DELTA_AT)
    set_length(log, 1, size - less)
    assert found(client, 10) == OffsetRange(bucket(client), 10, 10 if delta_too else 20)


@pytest.mark.parametrize("size", [1 << 30, (1 << 31) - 1])
def test_a_length_of_gigabytes_is_not_fetched(client: Client, log: Path, size: int) -> None:
    damage(log, 1, DELTA_AT)
    set_length(log, 1, size)
    assert found(client, 10) == OffsetRange(bucket(client), 10, 10)


@pytest.mark.parametrize("base_offset", [1 << 50, 30, 24, 19, 10, -1])
@pytest.mark.parametrize("delta_too", [False, True])
def test_a_damaged_base_offset_of_the_next_batch_is_not_believed(
    client: Client, log: Path, base_offset: int, *, delta_too: bool
) -> None:
    damage(log, 1, DELTA_AT if delta_too else -3)
    put(log, places(log)[2][0], struct.pack("<q", base_offset))
    assert found(client, 10) == OffsetRange(bucket(client), 10, 10)


def test_damage_across_a_boundary_leaves_the_end_unknown(client: Client, log: Path) -> None:
    position, _ = places(log)[2]
    put(log, position - 40, b"\xa5" * 80)
    assert found(client, 10) == OffsetRange(bucket(client), 10, 10)


def test_two_damaged_batches_in_a_row_are_skipped_one_by_one(client: Client, log: Path) -> None:
    damage(log, 1)
    damage(log, 2)
    assert found(client, 10) == OffsetRange(bucket(client), 10, 20)
    assert found(client, 20) == OffsetRange(bucket(client), 20, 30)


def test_an_end_that_only_a_damaged_batch_confirms_is_unknown(client: Client, log: Path) -> None:
    damage(log, 1, DELTA_AT)
    damage(log, 2)
    assert found(client, 10) == OffsetRange(bucket(client), 10, 10)


@pytest.mark.parametrize(
    ("offset", "tiered", "why"),
    [
        (0, 0, f"the batch at offset 0 can be read, so there is nothing to skip. {NAMES}"),
        (
            13,
            0,
            "no batch begins at offset 13. The batch that holds it begins at offset 10. Use --skip"
            " 0:10",
        ),
        (10, 20, f"the bucket was already tiered up to offset 20. {NAMES}"),
        (30, 0, f"the log of this bucket has no offset 30, only 0 to 29. {NAMES}"),
    ],
)
def test_only_the_start_of_an_unreadable_batch_can_be_skipped(
    client: Client, log: Path, offset: int, tiered: int, why: str
) -> None:
    damage(log, 1)
    with pytest.raises(ConfigurationError) as refused:
        found(client, offset, tiered)
    assert str(refused.value) == f"--skip 0:{offset}: {why}"


def test_an_empty_log_has_no_offset(client: Client) -> None:
    create(client, PLAIN)
    with pytest.raises(ConfigurationError) as refused:
        found(client, 5)
    assert str(refused.value) == (
        f"--skip 0:5: the log of this bucket is empty and ends at offset 0. {NAMES}"
    )


def test_a_bucket_that_is_not_there_is_named(client: Client, log: Path) -> None:
    with pytest.raises(ConfigurationError) as refused:
        unreadable_batch(client, PATH, bucket(client, 7), 0, 0)
    assert str(refused.value) == (
        f"--skip 7:0: table shop.orders has no bucket 7, its last is bucket 0. {NAMES}"
    )


def test_a_partition_that_the_table_does_not_have_is_named(client: Client, log: Path) -> None:
    with pytest.raises(ConfigurationError) as refused:
        unreadable_batch(client, PATH, bucket(client, 0, 3), 10, 0)
    assert str(refused.value) == (
        "--skip 3/0:10: table shop.orders has no partitions. Leave out the partition id"
    )


def test_batches_of_a_partitioned_table_name_the_partition(client: Client, tmp_path: Path) -> None:
    create(client, BY_DAY)
    client.admin.create_partition(PATH, {"day": "mon"})
    [partition] = client.admin.partitions(PATH)
    number = partition.partition_id
    other = number + 4
    for wrong, problem in (
        (None, "0:0: table shop.orders is partitioned: write PARTITION_ID/BUCKET:OFFSET"),
        (other, f"{other}/0:0: table shop.orders has no partition with the id {other}"),
    ):
        with pytest.raises(ConfigurationError) as refused:
            unreadable_batch(client, PATH, bucket(client, 0, wrong), 0, 0)
        ids_text = f"The ids of its partitions are {number} (mon)"
        assert str(refused.value) == f"--skip {problem}. {ids_text}"
    with client.log_writer(PATH) as writer:
        writer.write(pa.table({"id": [1], "day": ["mon"]}))
    (log,) = [p for p in (tmp_path / "data").rglob("*.log") if p.stat().st_size > 100]
    damage(log, 0)
    _, why = unreadable_batch(client, PATH, bucket(client, 0, number), 0, 0)
    assert why.startswith("bucket 0 of partition mon: the batch at offset 0 cannot be read: check")


def test_rows_of_a_batch_that_begins_too_early_are_not_read(client: Client, log: Path) -> None:
    put(log, places(log)[2][0], struct.pack("<q", 16))
    records = client.log_reader(PATH).read(bucket(client))
    with pytest.raises(CorruptRecord, match="at offset 20 cannot be read: .* before it.* 16"):
        ids(records)


@pytest.mark.parametrize(("base_offset", "stop"), [(12, 20), (1 << 50, 20), (-1, 10)])
def test_a_damaged_base_offset_names_the_batch(
    client: Client, log: Path, base_offset: int, stop: int
) -> None:
    put(log, places(log)[1][0], struct.pack("<q", base_offset))
    with pytest.raises(CorruptRecord, match="the batch at offset 10 cannot be read: ") as no:
        list(client.log_reader(PATH).read(bucket(client)))
    assert (no.value.details["bucket"], no.value.details["base_offset"]) == (bucket(client), 10)
    assert found(client, 10) == OffsetRange(bucket(client), 10, stop)


STRICT = Schema(
    (Column("id", t.BIGINT.not_null(), 0), Column("at", t.timestamp(0), 1)), highest_field_id=1
)


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"id": [7, None], "at": [1, 2]}, "column 'id' is NOT NULL but contains nulls"),
        (
            {"id": [7, 8], "at": [1, 2**60]},
            "column 'at' has the timestamp 1152921504606846976 s, which does not fit the"
            " microseconds of the lake",
        ),
    ],
)
def test_a_batch_that_the_lake_cannot_hold_may_be_skipped(
    client: Client, cluster: Cluster, columns: dict[str, list[int | None]], why: str
) -> None:
    """A log reader still reads it; a round names it as it names an unreadable one."""
    create(client, TableDescriptor(STRICT, bucket_count=1))
    where = bucket(client)
    for each in ({"id": [1], "at": [1]}, columns, {"id": [2], "at": [2]}):
        arrays = [
            pa.array(each["id"], pa.int64()),
            pa.array(each["at"], pa.int64()).view(pa.timestamp("s")),
        ]
        batch = pa.RecordBatch.from_arrays(arrays, ["id", "at"])
        append_unchecked(cluster._cluster, where, encode_log_batch(batch, 1))
    assert ids(client.log_reader(PATH).read(where)) == [1, *columns["id"], 2]
    source = ClientLogSource(client.config, PATH)
    with pytest.raises(CorruptRecord, match=f"the batch at offset 1 cannot be read: {why}") as no:
        list(source.read(Split(where, (), 0, 4)))
    assert no.value.details["base_offset"] == 1
    batch_range, text = unreadable_batch(client, PATH, where, 1, 0)
    assert batch_range == OffsetRange(where, 1, 3)
    assert text == f"bucket 0: the batch at offset 1 cannot be read: {why}"
    for offset in (0, 3):
        with pytest.raises(ConfigurationError, match="can be read, so there is nothing to skip"):
            unreadable_batch(client, PATH, where, offset, 0)
