"""A writer that goes on where another process broke off: each row is stored once, in its bucket."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import chain

import pyarrow as pa
import pytest

from sluice.client import Client, connect
from sluice.client.batches.sent_batches import PendingBatch, PendingBatches, RowRange, WriterStart
from sluice.config import ClientConfig
from sluice.errors import InvalidTable, PartitionNotExists, RecordTooLarge, UnknownServerError
from sluice.model import Column, Schema, TableBucket, TableDescriptor
from sluice.model import types as t
from tests.support.tables.orders import PATH, PLAIN, bucket, create, ids, orders

ROWS = 8_000
LAYOUTS = {
    "plain": {},
    "round": {"bucket_count": 3},
    "keyed": {"bucket_count": 3, "bucket_keys": ("id",)},
    "parted": {"bucket_count": 2, "partition_keys": ("region",)},
    "rows": {"bucket_count": 3, "properties": {"table.log.format": "INDEXED"}},
}


class Journal:
    """A journal in memory, which breaks the writer off before one of its batches."""

    def __init__(self, breaks_at: int | None = None) -> None:
        self.start: WriterStart | None = None
        self.begun: WriterStart | None = None
        self.batches: dict[TableBucket, list[RowRange]] = {}
        self.stored: list[int] = []
        self.breaks_at = breaks_at

    def begin(self, start: WriterStart) -> None:
        assert self.begun is None
        self.begun = start

    def known(self, bucket: TableBucket) -> list[RowRange]:
        return list(self.batches.get(bucket, []))

    def sending(self, bucket: TableBucket, cut: RowRange, stored_rows: int) -> None:
        self.batches.setdefault(bucket, []).append(cut)
        self.stored.append(stored_rows)
        if len(self.stored) == self.breaks_at:
            raise OSError("the process is dead")

    def after_death(self, breaks_at: int | None = None) -> Journal:
        """As the next process finds it."""
        found = Journal(breaks_at)
        found.start = self.start or self.begun
        found.batches = {place: list(cuts) for place, cuts in self.batches.items()}
        return found


@pytest.fixture
def small(client: Client) -> Iterator[Client]:
    """A client that cuts small batches, whatever the next one is set to."""
    settings = ClientConfig(bootstrap=client.config.bootstrap, writer_batch_bytes=4096)
    with connect(settings) as made:
        yield made


def send(client: Client, journal: Journal, rows: pa.Table) -> int:
    """Writes all rows if it can; how many it says are stored."""
    writer = client.log_writer(PATH, dynamic_partitions=True, journal=journal)
    try:
        with writer:
            for start in range(0, rows.num_rows, 500):
                writer.write(rows.slice(start, 500))
            writer.flush()
    except UnknownServerError as error:
        assert "the process is dead" in str(error)
    return writer.stored_rows


def mixed() -> pa.Table:
    regions = [("eu", "us", "asia")[i % 7 % 3] for i in range(ROWS)]
    return pa.table({"id": pa.array(range(ROWS), pa.int64()), "region": regions})


def stored(client: Client) -> list[int]:
    info = client.admin.table_info(PATH)
    parts = (
        [p.partition_id for p in client.admin.partitions(PATH)] if info.is_partitioned else [None]
    )
    reader = client.log_reader(PATH)
    places = [bucket(client, n, part) for part in parts for n in range(info.bucket_count)]
    return list(chain.from_iterable(ids(reader.read(place)) for place in places))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_broke_off_is_stored_once_by_those_who_go_on(
    client: Client, small: Client, layout: str
) -> None:
    create(client, PLAIN, **LAYOUTS[layout])
    rows = mixed()
    journal, last = Journal(breaks_at=9), 0
    for breaks_at in (10, 5, None):
        said = send(small, journal, rows)
        assert said >= max(journal.stored)
        assert set(range(said)) <= set(stored(client)), "it said that these are stored"
        journal, last = journal.after_death(breaks_at), max(last, said)
    assert last < ROWS
    assert send(client, journal, rows) == ROWS  # with another size of batches in its settings
    assert sorted(stored(client)) == list(range(ROWS))


def test_the_embedded_server_knows_all_batches_that_have_no_line_in_the_journal(
    client: Client, small: Client
) -> None:
    """The machine lost power, and with it the last lines.

    A real Fluss knows five batches of a writer, and refuses older ones with OutOfOrderSequence.
    """
    create(client, PLAIN)
    rows, journal = mixed(), Journal(breaks_at=25)
    send(small, journal, rows)
    journal = journal.after_death()
    (cuts,) = journal.batches.values()
    assert len(cuts) == 25
    del cuts[3:]
    assert send(client, journal, rows) == ROWS
    assert stored(client) == list(range(ROWS))


def test_other_rows_are_refused_before_they_are_mixed_up(client: Client, small: Client) -> None:
    create(client, PLAIN)
    journal = Journal(breaks_at=4)
    send(small, journal, mixed())
    before = stored(client)
    writer = client.log_writer(PATH, journal=journal.after_death())
    with (
        pytest.raises(InvalidTable, match=r"batch \d of the interrupted writer has \d+ rows from"),
        writer,
    ):
        writer.write(orders(0, ROWS, "a much longer region"))
        writer.flush()
    assert stored(client) == before


def test_rows_are_stored_up_to_a_number_for_certain(client: Client, small: Client) -> None:
    create(client, PLAIN, **LAYOUTS["keyed"])
    with small.log_writer(PATH) as writer:
        assert writer.stored_rows == 0
        writer.write(orders(0, 1000))
        assert writer.stored_rows == 0, "rows of this call wait for a full batch"
        writer.flush()
        assert writer.stored_rows == 1000
        with pytest.raises(InvalidTable):
            writer.write(pa.table({"id": ["no number"], "region": ["eu"]}))
        writer.write(orders(1000, 10))
        assert writer.stored_rows == 1000
        writer.flush()
        assert writer.stored_rows == 1010


def test_the_lowest_batch_that_is_not_stored_bounds_what_is() -> None:
    outstanding = PendingBatches()
    one, two = TableBucket(1, None, 1), TableBucket(1, None, 2)
    outstanding.add(one, PendingBatch(0, RowRange(0, 5)))
    outstanding.add(two, PendingBatch(10, RowRange(0, 5)))
    outstanding.add(one, PendingBatch(20, RowRange(5, 5)))
    outstanding.raise_floor(30)
    told = [outstanding.stored_rows]
    for place in (one, two, one):
        outstanding.stored(place)
        told.append(outstanding.stored_rows)
    assert told == [0, 10, 20, 30]


# ---- what a writer would say of rows ----

WIDE = Schema(
    (
        Column("id", t.BIGINT, 0),
        Column("region", t.STRING, 1),
        Column("code", t.char(3), 2),
        Column("blob", t.BYTES, 3),
    ),
    highest_field_id=3,
)


def wide(*rows: tuple[object, ...]) -> pa.Table:
    names = ["id", "region", "code", "blob"]
    types = [pa.int64(), pa.string(), pa.string(), pa.binary()]
    columns = zip(*rows, strict=True)
    return pa.table({n: pa.array(c, ty) for n, c, ty in zip(names, columns, types, strict=True)})


def test_a_check_says_what_a_write_would_and_takes_nothing(client: Client) -> None:
    create(client, TableDescriptor(WIDE, ("region",), ("id",), bucket_count=2))
    with connect(ClientConfig(client.config.bootstrap, max_message_bytes=100_000)) as other:
        writer = other.log_writer(PATH)
        good = wide((1, "eu", "abc", b"x"), (2, "us", "abc", b""))
        assert writer.check(good) == {("eu",), ("us",)}
        assert writer.missing_partitions([("eu",), ("us",)]) == [("eu",), ("us",)]
        with pytest.raises(PartitionNotExists, match="region=eu"):
            writer.ensure_partitions([("eu",)])
        for row, told in (
            ((None, "eu", "abc", b""), "key column 'id' has 1 nulls"),
            ((1, None, "abc", b""), "'region' has 1 nulls"),
            ((1, "e/u", "abc", b""), "'e/u': use 1 to 200 letters"),
        ):
            with pytest.raises(Exception, match=told):
                writer.check(wide((1, "eu", "abc", b""), row))
        # compressible: it is large, but its batch is not
        assert writer.check(wide((1, "eu", "abc", bytes(300_000)))) == {("eu",)}
        noise = random.Random(1).randbytes(200_000)
        with pytest.raises(RecordTooLarge, match="a row has .* bytes; client.max_message_bytes"):
            writer.check(wide((1, "eu", "abc", b""), (2, "eu", "abc", noise)))
        assert writer.stored_rows == 0
    assert client.admin.partitions(PATH) == []


def test_a_check_of_keyed_rows_and_of_deletes(client: Client) -> None:
    keyed = Schema(
        tuple(
            Column(c.name, c.data_type.not_null() if c.name == "id" else c.data_type, c.column_id)
            for c in WIDE.columns
        ),
        primary_key=("id",),
        highest_field_id=3,
    )
    create(
        client, TableDescriptor(keyed, bucket_count=2, properties={"table.kv.format": "INDEXED"})
    )
    writer = client.kv_writer(PATH)
    assert writer.check_upsert(wide((1, "eu", "abc", b"x"))) == {()}
    with pytest.raises(InvalidTable, match="'code' does not fit CHAR"):
        writer.check_upsert(wide((1, "eu", "abcd", b"x")))
    assert writer.check_delete(pa.table({"id": [1]})) == {()}
    with pytest.raises(InvalidTable, match="NOT NULL"):
        writer.check_delete(pa.table({"id": pa.array([None], pa.int64())}))
    with client.kv_writer(PATH, dynamic_partitions=True) as other:
        other.upsert(wide((1, "eu", "abc", b"x"), (2, "eu", "abc", b"x")))
        other.flush()
        assert other.stored_rows == 2


def test_partitions_are_made_ahead_where_the_writer_may(client: Client) -> None:
    create(client, PLAIN, **LAYOUTS["parted"])
    with client.log_writer(PATH, dynamic_partitions=True) as writer:
        writer.ensure_partitions([("eu",), ("us",)])
        assert writer.missing_partitions([("eu",), ("asia",)]) == [("asia",)]
    assert [p.values for p in client.admin.partitions(PATH)] == [("eu",), ("us",)]
