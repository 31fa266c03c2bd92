"""PutKv, Lookup, PrefixLookup and LimitScan over a real server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from sluice.errors import (
    CorruptRecord,
    DeletionDisabled,
    DuplicateSequence,
    InvalidRequiredAcks,
    InvalidScanRequest,
    InvalidTable,
    InvalidTargetColumn,
    NonPrimaryKeyTable,
    OutOfOrderSequence,
    RecordTooLarge,
    SchemaNotExist,
    UnknownTableOrBucket,
    UnknownWriterId,
    UnsupportedVersion,
)
from sluice.formats.kv.kv_batch import build_kv_batch
from sluice.formats.log.batch import iter_batches
from sluice.formats.rows.arrays import encode_rows
from sluice.model import Column, DataType, RowField, Schema, TablePath, TypeRoot
from sluice.model.types import BIGINT, INT, STRING
from sluice.server.tablet.kv.store import KvStore
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from tests.conformance.every_type import EVERY_TYPE, every_value
from tests.unit.server.kv_support import KEYED, KvCaller, Row, replayed
from tests.unit.server.support import Caller, Node, batch, to_pb

WAL = {"table.changelog.image": "WAL"}


@pytest.fixture
def kv(caller: Caller) -> KvCaller:
    return KvCaller(caller)


def test_a_failed_scan_says_nothing_of_the_table(kv: KvCaller) -> None:
    request = pb.LimitScanRequest(table_id=kv.table_id, bucket_id=9, limit=1)
    answer = kv.caller.call(apis.LIMIT_SCAN, request)
    assert answer.HasField("error_code")
    assert not answer.HasField("is_log_table")


def test_upserts_and_deletes_make_the_changelog_of_fluss(kv: KvCaller) -> None:
    assert kv.put((1, "a", 10), (2, "b", None)) == 2
    assert kv.put((1, "a", 10)) == 4  # the same row again is a change all the same
    assert kv.delete((2,), (3,)) == 5
    assert kv.changelog() == [
        ("+I", (1, "a", 10)),
        ("+I", (2, "b", None)),
        ("-U", (1, "a", 10)),
        ("+U", (1, "a", 10)),
        ("-D", (2, "b", None)),
    ]
    assert kv.lookup((1,), (2,), (3,), (1,)) == [(1, "a", 10), None, None, (1, "a", 10)]


def test_changes_to_one_key_in_one_batch_follow_each_other(kv: KvCaller) -> None:
    rows = [(1, "a", 1), (1, "b", 2), (1,), (1, "c", 3), (2, "x", 1), (2,)]
    kv.send(kv.records(rows, [False, False, True, False, False, True]))
    assert kv.batches() == [
        [
            ("+I", (1, "a", 1)),
            ("-U", (1, "a", 1)),
            ("+U", (1, "b", 2)),
            ("-D", (1, "b", 2)),
            ("+I", (1, "c", 3)),
            ("+I", (2, "x", 1)),
            ("-D", (2, "x", 1)),
        ]
    ]
    assert kv.table() == {1: (1, "c", 3)}


def test_a_batch_that_changes_nothing_takes_one_offset(kv: KvCaller) -> None:
    assert kv.delete((1,), (2,)) == 1
    records = kv.caller.fetch(kv.table_id, 0).records
    [(header, view)] = list(iter_batches(records))
    assert (header.record_count, header.attributes, len(view)) == (0, 0, 48)
    assert kv.put((1, "a", 1)) == 2
    assert kv.batches() == [[], [("+I", (1, "a", 1))]]


def test_the_wal_image_has_no_row_before(caller: Caller) -> None:
    kv = KvCaller(caller, properties=WAL)
    kv.put((1, "a", 1), (2, "b", 2))
    kv.put((1, "c", 3))
    kv.send(kv.records([(5, "e", 5), (5,), (2,), (7,)], [False, True, True, True]))
    assert kv.changelog() == [
        ("+U", (1, "a", 1)),
        ("+U", (2, "b", 2)),
        ("+U", (1, "c", 3)),
        ("+U", (5, "e", 5)),
        ("-D", (5, "e", 5)),
        ("-D", (2, "b", 2)),
    ]
    assert kv.table() == {1: (1, "c", 3)}


def test_partial_updates_leave_the_other_columns(kv: KvCaller) -> None:
    kv.put((1, "a", 10))
    kv.put((1, "b"), (2, "new"), targets=(0, 1))
    kv.put((1, None, 11), targets=(0, 2))
    assert kv.changelog()[1:] == [
        ("-U", (1, "a", 10)),
        ("+U", (1, "b", 10)),
        ("+I", (2, "new", None)),
        ("-U", (1, "b", 10)),
        ("+U", (1, "b", 11)),
    ]
    kv.delete((1,), (2,), (3,), targets=(0, 1))
    assert kv.changelog()[6:] == [
        ("-U", (1, "b", 11)),
        ("+U", (1, None, 11)),
        ("-D", (2, "new", None)),
    ]
    kv.delete((1,), targets=(0, 2))
    assert kv.table() == {}


def test_many_partial_updates_of_one_key_in_one_batch(kv: KvCaller) -> None:
    kv.put((1, "a", 10))
    rows = [(1, f"t{i}") for i in range(2000)]
    kv.send(kv.records(rows, [i == 1000 for i in range(2000)]), targets=(1, 0))
    assert kv.table() == {1: (1, "t1999", 10)}
    changes = kv.changelog()
    assert len(changes) == 4001
    assert changes[2002:2004] == [("+U", (1, None, 10)), ("-U", (1, None, 10))]
    assert replayed(changes) == kv.table()


def test_a_partial_update_of_the_key_alone_only_inserts(kv: KvCaller) -> None:
    kv.put((1, "a", 10))
    kv.put((1,), (2,), targets=(0,))
    assert kv.changelog()[1:] == [("+I", (2, None, None))]
    assert kv.table() == {1: (1, "a", 10), 2: (2, None, None)}


@pytest.mark.parametrize(
    ("targets", "match"), [((1,), "lack the key column 'id'"), ((0, 3), "has 3 columns")]
)
def test_wrong_target_columns(kv: KvCaller, targets: tuple[int, ...], match: str) -> None:
    with pytest.raises(InvalidTargetColumn, match=match):
        kv.put((1, "a", 1), targets=targets)
    assert kv.end() == 0


def test_all_columns_as_targets_are_whole_rows_whatever_may_be_null(caller: Caller) -> None:
    strict = replace(
        KEYED, columns=(KEYED.columns[0], Column("n", replace(INT, nullable=False), 1))
    )
    kv = KvCaller(caller, schema=strict)
    kv.put((1, 1), targets=(0, 1))
    with pytest.raises(InvalidTargetColumn, match="'n' is NOT NULL"):
        kv.put((1, 1), targets=(0,))
    assert kv.table() == {1: (1, 1)}


@pytest.mark.parametrize("image", ["FULL", "WAL"])
def test_the_first_row_stays(caller: Caller, image: str) -> None:
    properties = {"table.merge-engine": "first_row", "table.changelog.image": image}
    kv = KvCaller(caller, properties=properties)
    kv.put((1, "a", 1), (1, "b", 2), (2, "c", 3))
    assert kv.put((1, "d", 4)) == 3
    assert kv.delete((1,)) == 4
    assert kv.batches() == [[("+I", (1, "a", 1)), ("+I", (2, "c", 3))], [], []]
    assert kv.table() == {1: (1, "a", 1), 2: (2, "c", 3)}
    with pytest.raises(InvalidTargetColumn, match="first_row does not support partial"):
        kv.put((1, "x"), targets=(0, 1))


def test_the_newest_version_stays(caller: Caller) -> None:
    properties = {
        "table.merge-engine": "versioned",
        "table.merge-engine.versioned.ver-column": "n",
    }
    kv = KvCaller(caller, properties=properties)
    kv.put((1, "none", None), (1, "a", 5), (1, "old", 4), (1, "same", 5))
    kv.put((1, "older", 3), (1, "null", None), (2, "b", 1))
    kv.put((1, "new", 6))
    assert kv.changelog() == [
        ("+I", (1, "none", None)),
        ("-U", (1, "none", None)),
        ("+U", (1, "a", 5)),
        ("-U", (1, "a", 5)),
        ("+U", (1, "same", 5)),
        ("+I", (2, "b", 1)),
        ("-U", (1, "same", 5)),
        ("+U", (1, "new", 6)),
    ]
    kv.send(kv.records([(1, "back", 0)]), agg_mode=1)  # past the merge engine
    assert kv.table() == {1: (1, "back", 0), 2: (2, "b", 1)}
    with pytest.raises(UnsupportedVersion, match="agg_mode = 2"):
        kv.send(kv.records([(1, "back", 0)]), agg_mode=2)


def test_deletes_can_be_ignored_or_refused(caller: Caller) -> None:
    ignoring = KvCaller(
        caller, TablePath("db", "i"), properties={"table.delete.behavior": "IGNORE"}
    )
    rows, deletes = [(1, "a", 1), (1,), (2, "b", 2)], [False, True, False]
    ignoring.send(ignoring.records(rows, deletes))
    assert ignoring.changelog() == [("+I", (1, "a", 1)), ("+I", (2, "b", 2))]
    refusing = KvCaller(
        caller, TablePath("db", "d"), properties={"table.delete.behavior": "DISABLE"}
    )
    with pytest.raises(DeletionDisabled, match="deletes 1 rows"):
        refusing.send(refusing.records(rows, deletes))
    assert (refusing.end(), refusing.table()) == (0, {})


def test_rows_of_older_schemas_live_on(kv: KvCaller) -> None:
    kv.put((1, "a", 1), (2, "b", 2))
    old = kv.records([(3, "c", 3)])
    request = pb.AlterTableRequest(table_path=to_pb(kv.path), ignore_if_not_exists=False)
    request.add_columns.add(
        column_name="more", data_type_json=b'{"type":"STRING"}', column_position_type=0
    )
    kv.caller.call(apis.ALTER_TABLE, request)
    kv.refresh()
    kv.send(old)  # a writer that does not know the new column yet
    kv.put((1, "a", 1, "x"))
    kv.put((2, None, None, "y"), targets=(0, 3))
    assert kv.table() == {1: (1, "a", 1, "x"), 2: (2, "b", 2, "y"), 3: (3, "c", 3, None)}
    assert kv.batches()[1:] == [
        [("+I", (3, "c", 3, None))],
        [("-U", (1, "a", 1, None)), ("+U", (1, "a", 1, "x"))],
        [("-U", (2, "b", 2, None)), ("+U", (2, "b", 2, "y"))],
    ]
    with pytest.raises(SchemaNotExist, match="no schema 3; the newest"):
        kv.send(kv.records([(3, "c", 3)], schema_id=3))


def test_a_put_that_is_sent_again_is_stored_once(kv: KvCaller) -> None:
    writer = kv.caller.init_writer()
    first = kv.records([(1, "a", 1)], writer_id=writer, sequence=0)
    second = kv.records([(1, "b", 2)], writer_id=writer, sequence=1)
    assert [kv.send(first), kv.send(first), kv.send(second)] == [1, 1, 3]
    assert [kv.send(first), kv.send(second)] == [1, 3]
    assert kv.changelog() == [
        ("+I", (1, "a", 1)),
        ("-U", (1, "a", 1)),
        ("+U", (1, "b", 2)),
    ]
    with pytest.raises(OutOfOrderSequence):
        kv.send(kv.records([(1, "c", 3)], writer_id=writer, sequence=3))
    for sequence in range(2, 9):
        kv.send(kv.records([(1, "c", 3)], writer_id=writer, sequence=sequence))
    with pytest.raises(DuplicateSequence):
        kv.send(first)
    with pytest.raises(UnknownWriterId, match="never issued"):
        kv.send(kv.records([(1, "a", 1)], writer_id=99, sequence=0))


def test_writers_are_known_again_after_a_restart(node: Node) -> None:
    kv = KvCaller(node.caller)
    writer = node.caller.init_writer()
    first = kv.records([(1, "a", 1), (2, "b", 2)], writer_id=writer, sequence=0)
    assert kv.send(first) == 2
    kv.delete((2,))
    node.restart()
    kv = KvCaller(node.caller, create=False)
    assert kv.send(first) == 2
    assert kv.table() == {1: (1, "a", 1)}
    assert kv.send(kv.records([(3, "c", 3)], writer_id=writer, sequence=1)) == 4


COMPOSITE = Schema(
    (
        Column("a", replace(STRING, nullable=False), 0),
        Column("b", replace(INT, nullable=False), 1),
        Column("v", STRING, 2),
    ),
    ("a", "b"),
    2,
)


def test_rows_are_found_by_a_prefix_of_their_key(caller: Caller) -> None:
    kv = KvCaller(caller, schema=COMPOSITE, bucket_keys=("a",))
    rows = [("x", 1, "p"), ("x", 2, "q"), ("y", 1, "r"), ("xx", 1, "s")]
    kv.put(*rows)
    found = kv.prefix_lookup(b"\x01x", b"\x06nobody", b"\x01y")
    assert found == [rows[:2], [], rows[2:3]]
    # the keys themselves are length and bytes: version 2 of the format, whatever the lake
    assert kv.keys(rows[:1]) == [b"\x01x\x01"]
    assert kv.prefix_lookup(b"") == [[rows[0], rows[1], rows[2], rows[3]]]
    assert kv.prefix_lookup(b"\xff") == [[]]


def test_a_key_that_is_the_bucket_key_is_encoded_as_the_lake_asks(kv: KvCaller) -> None:
    assert kv.keys([(258, None, None)]) == [b"\x02\x01" + b"\0" * 6]
    kv.put((258, "a", 1))
    assert kv.lookup((258,)) == [(258, "a", 1)]


def test_the_first_rows_come_in_the_order_of_their_keys(kv: KvCaller) -> None:
    kv.put(*((i, "t", i) for i in (3, 1, 2)))
    assert kv.scan(2) == [(1, "t", 1), (2, "t", 2)]
    assert kv.scan(9) == [(1, "t", 1), (2, "t", 2), (3, "t", 3)]
    with pytest.raises(InvalidScanRequest):
        kv.scan(0)


def test_an_answer_has_a_bound(start: Callable[..., Node]) -> None:
    kv = KvCaller(start(max_message_bytes=1 << 20).caller)
    for first in range(0, 40, 10):
        kv.put(*((i, "x" * 30_000, i) for i in range(first, first + 10)))
    assert len(kv.scan(20)) == 20
    for call in (
        lambda: kv.scan(40),
        lambda: kv.lookup(*((i,) for i in range(40))),
        lambda: kv.prefix_lookup(b""),
    ):
        with pytest.raises(RecordTooLarge, match="request fewer|look up fewer"):
            call()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows were read at a time."""
    sizes, get = list[int](), KvStore.get

    def counted(self: KvStore, keys: list[bytes]) -> list[bytes | None]:
        sizes.append(len(keys))
        return get(self, keys)

    monkeypatch.setattr(KvStore, "get", counted)
    return sizes


def test_no_more_rows_are_read_than_an_answer_takes(
    start: Callable[..., Node], read: list[int]
) -> None:
    kv = KvCaller(start(max_message_bytes=1 << 20).caller)
    kv.put((1, "x" * 30_000, 1))
    read.clear()
    with pytest.raises(RecordTooLarge, match="look up fewer"):
        kv.lookup(*[(1,)] * 20_000)
    assert sum(read) < 1_000
    read.clear()
    assert kv.lookup(*((i,) for i in range(1_000))) == [
        (1, "x" * 30_000, 1) if i == 1 else None for i in range(1_000)
    ]
    assert sum(read) == 1_000


def test_a_changelog_that_nobody_could_fetch_is_not_written(start: Callable[..., Node]) -> None:
    kv = KvCaller(
        start(max_message_bytes=1 << 20).caller,
        properties={"table.log.arrow.compression.type": "NONE"},
    )
    big = [(i, chr(65 + i % 26) * 60_000, i) for i in range(10)]
    kv.put(*big)
    with pytest.raises(RecordTooLarge, match="write fewer rows"):
        kv.put(*big)  # the rows before and after together
    assert kv.end() == 10
    kv.put(*big[:5])
    assert len(kv.changelog()) == 20


def test_no_more_rows_are_read_for_one_put_than_it_may_change(
    start: Callable[..., Node], read: list[int]
) -> None:
    kv = KvCaller(start(max_message_bytes=1 << 20).caller)
    for first in range(0, 2_000, 200):  # of 8 MB, though they are small in the log
        kv.put(*((i, "x" * 4_000, i) for i in range(first, first + 200)))
    read.clear()
    with pytest.raises(
        RecordTooLarge, match=r"db.kv 0:0.* 2000 records.* 4194304: write fewer rows"
    ):
        kv.delete(*((i,) for i in range(2_000)))
    assert sum(read) < 1_500
    assert kv.end() == 2_000
    kv.delete(*((i,) for i in range(1_000)))
    assert kv.end() == 3_000


def test_a_stored_row_is_not_copied_without_bound(start: Callable[..., Node]) -> None:
    kv = KvCaller(start(max_message_bytes=1 << 20).caller)
    kv.put((1, "x" * 100_000, 1))
    rows = [(1, None, i) for i in range(50)]
    with pytest.raises(RecordTooLarge, match="50 records .* write fewer rows"):
        kv.send(kv.records(rows), targets=[0, 2])
    assert kv.end() == 1
    kv.send(kv.records(rows[:5]), targets=[0, 2])
    assert kv.lookup((1,)) == [(1, "x" * 100_000, 4)]


def test_partitions_are_tables_of_their_own(caller: Caller) -> None:
    schema = replace(COMPOSITE, primary_key=("a", "b"))
    kv = KvCaller(caller, schema=schema, partition_keys=("a",))
    ids = []
    for value in ("x", "y"):
        request = pb.CreatePartitionRequest(table_path=to_pb(kv.path), ignore_if_not_exists=False)
        request.partition_spec.partition_key_values.add(key="a", value=value)
        caller.call(apis.CREATE_PARTITION, request)
    answer = caller.call(
        apis.LIST_PARTITION_INFOS, pb.ListPartitionInfosRequest(table_path=to_pb(kv.path))
    )
    ids = [info.partition_id for info in answer.partitions_info]
    for partition_id, value in zip(ids, ("x", "y"), strict=True):
        assert kv.send(kv.records([(value, 1, value * 2)]), partition_id=partition_id) == 1
    wanted = pb.LookupRequest(table_id=kv.table_id)
    for partition_id in ids:
        wanted.buckets_req.add(
            partition_id=partition_id, bucket_id=0, keys=kv.keys([("x", 1, None)])
        )
    found = caller.call(apis.LOOKUP, wanted).buckets_resp
    assert [b.values[0].values[-2:] for b in found] == [b"xx", b"yy"]
    assert [b.partition_id for b in found] == ids
    with pytest.raises(UnknownTableOrBucket):
        kv.send(kv.records([("x", 1, "")]))


@pytest.mark.parametrize(
    "spoil", [lambda b: b[:-1] + bytes([b[-1] ^ 1]), lambda b: b[:-1], lambda b: b""]
)
def test_broken_batches_change_nothing(kv: KvCaller, spoil: Callable[[bytes], bytes]) -> None:
    with pytest.raises(CorruptRecord):
        kv.send(spoil(kv.records([(1, "a", 1)])))
    assert (kv.end(), kv.table()) == (0, {})


def test_a_key_that_is_not_its_rows_key_is_refused(kv: KvCaller) -> None:
    good = kv.batch_of([(1, "a", 1), (2, "b", 2)])
    rows = encode_rows(good, [c.data_type for c in KEYED.columns], "COMPACTED")
    keys = pa.array(kv.keys([(1,), (3,)]), pa.binary())
    with pytest.raises(CorruptRecord, match="record 1 has the key"):
        kv.send(build_kv_batch(keys, rows, 1, -1, -1))
    assert kv.end() == 0


def test_a_null_where_there_may_be_none_is_refused(caller: Caller) -> None:
    strict = replace(
        KEYED, columns=(KEYED.columns[0], Column("n", replace(INT, nullable=False), 1))
    )
    kv = KvCaller(caller, schema=strict)
    with pytest.raises(CorruptRecord, match="column 'n' is NOT NULL but contains nulls"):
        kv.put((1, 1), (2, None))
    assert kv.end() == 0


def test_requests_that_do_not_fit_the_table(kv: KvCaller, caller: Caller) -> None:
    with pytest.raises(InvalidRequiredAcks):
        kv.send(kv.records([(1, "a", 1)]), acks=7)
    with pytest.raises(UnknownTableOrBucket):
        kv.put((1, "a", 1), bucket=1)
    with pytest.raises(InvalidTable, match="use PutKv"):
        caller.produce(kv.table_id, batch("a"))
    log = caller.create_table()
    kv.table_id = log
    for call in (lambda: kv.put((1, "a", 1)), lambda: kv.lookup((1,))):
        with pytest.raises(NonPrimaryKeyTable, match="is a log table"):
            call()


def test_each_bucket_answers_for_itself(caller: Caller) -> None:
    kv = KvCaller(caller, bucket_count=2)
    request = pb.PutKvRequest(acks=-1, table_id=kv.table_id, timeout_ms=10_000)
    request.buckets_req.add(bucket_id=0, records=kv.records([(1, "a", 1)]))
    request.buckets_req.add(bucket_id=1, records=b"junk")
    request.buckets_req.add(bucket_id=2, records=kv.records([(1, "a", 1)]))
    answers = caller.call(apis.PUT_KV, request).buckets_resp
    assert [(a.bucket_id, a.error_code, a.log_end_offset) for a in answers] == [
        (0, 0, 1),
        (1, CorruptRecord.code, 0),
        (2, UnknownTableOrBucket.code, 0),
    ]


def test_rows_in_the_indexed_format(caller: Caller) -> None:
    kv = KvCaller(caller, properties={"table.kv.format": "INDEXED"})
    kv.put((1, "a", 1), (2, None, None))
    kv.put((1, "b"), targets=(0, 1))
    assert kv.table() == {1: (1, "b", 1), 2: (2, None, None)}
    assert replayed(kv.changelog()) == kv.table()


def test_a_dropped_table_is_gone_and_a_new_one_begins_empty(kv: KvCaller) -> None:
    kv.put((1, "a", 1))
    kv.caller.drop_table(kv.path)
    with pytest.raises(UnknownTableOrBucket):
        kv.put((2, "b", 2))
    again = KvCaller(kv.caller)
    assert (again.table(), again.end()) == ({}, 0)


def test_keys_of_other_types(caller: Caller) -> None:
    schema = Schema(
        (
            Column("k", replace(STRING, nullable=False), 0),
            Column("big", BIGINT, 1),
        ),
        ("k",),
        1,
    )
    kv = KvCaller(caller, schema=schema)
    kv.put(("", 1), ("ä", 2), ("b" * 500, -3))
    assert kv.lookup(("ä",), ("",), ("b" * 500,)) == [("ä", 2), ("", 1), ("b" * 500, -3)]


NESTED = {
    "g_array": DataType(TypeRoot.ARRAY, element=INT),
    "g_map": DataType(TypeRoot.MAP, key=STRING.not_null(), value=BIGINT),
    "g_row": DataType(TypeRoot.ROW, fields=(RowField("x", INT), RowField("y", STRING))),
}


@pytest.mark.parametrize("row_format", ["COMPACTED", "INDEXED"])
def test_every_type_goes_in_and_out(caller: Caller, row_format: str) -> None:
    """Through the store, the changelog, a partial update, and a store made anew from the log."""
    types = EVERY_TYPE | NESTED
    columns = tuple(Column(name, of, i) for i, (name, of) in enumerate(types.items()))
    schema = Schema(columns, ("f_not_null",), len(columns) - 1)
    kv = KvCaller(caller, schema=schema, properties={"table.kv.format": row_format})
    nested: list[Row] = [([1, None, 3], [("a", 1), ("b", None)], {"x": 1, "y": "z"}), (None,) * 3]
    rows = [
        tuple(row.values()) + more
        for row, more in zip(every_value().to_pylist(), nested, strict=True)
    ]
    kv.put(*rows)
    assert kv.scan() == rows
    targets = [list(types).index(name) for name in ("f_string", "f_not_null")]
    short = [tuple(v if i in targets else None for i, v in enumerate(row)) for row in rows]
    kv.put(*short, targets=targets)
    assert kv.scan() == rows
    assert [row for _, row in kv.changelog()] == [*rows, rows[0], rows[0], rows[1], rows[1]]
