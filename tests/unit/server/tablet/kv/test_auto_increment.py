"""Auto-increment columns: the server gives each new row the next number of its bucket's segment."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sluice import failpoints
from sluice.errors import (
    InvalidConfig,
    InvalidTable,
    InvalidTargetColumn,
    SluiceError,
    StorageError,
    UnknownServerError,
)
from sluice.model import Column, Schema, TableBucket, TableDescriptor, TableInfo
from sluice.model.types import BIGINT, INT, STRING
from sluice.server.storage.database import Database
from sluice.server.tablet.kv.auto_increment import AutoIncrement
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.messages import values
from tests.unit.server.kv_support import KvCaller
from tests.unit.server.support import PATH, Caller, Node, to_pb

NUMBERED = Schema(
    (
        Column("key", STRING.not_null(), 0),
        Column("no", BIGINT, 1),
        Column("a", STRING, 2),
        Column("b", INT, 3),
    ),
    ("key",),
    3,
    auto_increment=("no",),
)
SIZE = "table.auto-increment.cache-size"
A, B, BOTH = (0, 2), (0, 3), (0, 2, 3)
"""Target columns, which must not have the number."""


def numbered(caller: Caller, *, create: bool = True, **changes: Any) -> KvCaller:
    return KvCaller(caller, create=create, schema=changes.pop("schema", NUMBERED), **changes)


def row(key: str, a: str | None = None, b: int | None = None) -> tuple[Any, ...]:
    return key, None, a, b


def test_new_rows_get_the_next_numbers_and_keep_them(caller: Caller) -> None:
    kv = numbered(caller)
    kv.put(row("x", "a"), row("y", "a"), row("x", "again"), targets=A)
    kv.put(row("z", b=1), row("x", b=2), targets=B)
    assert kv.table() == {
        "x": ("x", 1, "again", 2),
        "y": ("y", 2, "a", None),
        "z": ("z", 3, None, 1),
    }
    assert kv.changelog() == [
        ("+I", ("x", 1, "a", None)),
        ("+I", ("y", 2, "a", None)),
        ("-U", ("x", 1, "a", None)),
        ("+U", ("x", 1, "again", None)),
        ("+I", ("z", 3, None, 1)),
        ("-U", ("x", 1, "again", None)),
        ("+U", ("x", 1, "again", 2)),
    ]


def test_the_key_alone_is_a_row_too(caller: Caller) -> None:
    kv = numbered(caller)
    kv.put(row("x"), row("x"), targets=(0,))
    kv.put(row("x"), targets=(0,))
    assert kv.changelog() == [("+I", ("x", 1, None, None))]


def test_a_partial_delete_keeps_the_row_for_its_number(caller: Caller) -> None:
    kv = numbered(caller)
    kv.put(row("x", "a", 1), targets=BOTH)
    kv.delete(row("x"), targets=BOTH)
    assert kv.table() == {"x": ("x", 1, None, None)}
    # also if it is new in the same batch
    kv.send(kv.records([row("y", "a", 1), row("y")], [False, True]), targets=BOTH)
    assert kv.table()["y"] == ("y", 2, None, None)
    assert kv.changelog()[-3:] == [
        ("+I", ("y", 2, "a", 1)),
        ("-U", ("y", 2, "a", 1)),
        ("+U", ("y", 2, None, None)),
    ]


def test_the_wal_image_tells_new_rows_from_changed_ones(caller: Caller) -> None:
    kv = numbered(caller, properties={"table.changelog.image": "WAL"})
    kv.put(row("x", "a"), row("x", "b"), row("y"), targets=BOTH)
    kv.put(row("x", "c"), targets=BOTH)
    assert [(kind, changed[:3]) for kind, changed in kv.changelog()] == [
        ("+I", ("x", 1, "a")),
        ("+U", ("x", 1, "b")),
        ("+I", ("y", 2, None)),
        ("+U", ("x", 1, "c")),
    ]


def test_buckets_take_segments_of_their_own(node: Node) -> None:
    kv = numbered(node.caller, bucket_count=2, properties={SIZE: "10"})
    for bucket in (0, 1, 0):
        kv.put(*(row(f"{bucket} {i} {kv.end(bucket)}") for i in range(4)), bucket=bucket, targets=A)
    kv.put(*(row(f"more {i}") for i in range(25)), bucket=0, targets=A)

    def numbers(bucket: int) -> list[int]:
        return [changed[1] for _, changed in kv.changelog(bucket)]

    assert numbers(0) == [*range(1, 9), 9, 10, *range(21, 44)]
    assert numbers(1) == [11, 12, 13, 14]
    node.restart()  # what was left of the segments is lost
    kv = numbered(node.caller, create=False)
    kv.put(row("late"), bucket=0, targets=A)
    kv.put(row("late"), bucket=1, targets=A)
    assert (numbers(0)[-1], numbers(1)[-1]) == (51, 61)


def test_a_put_that_is_sent_again_takes_no_number(caller: Caller) -> None:
    kv = numbered(caller)
    writer = caller.init_writer()
    records = kv.records([row("x", "a")], writer_id=writer, sequence=0)
    assert kv.send(records, targets=A) == kv.send(records, targets=A)
    kv.put(row("y"), targets=A)
    assert [changed[1] for _, changed in kv.changelog()] == [1, 2]


def test_a_store_that_is_made_anew_has_the_same_numbers(
    start: Callable[..., Node], tmp_path: Path
) -> None:
    node = start(kv_snapshot_interval_ms=0)
    kv = numbered(node.caller)
    kv.put(*(row(str(i), "a", i) for i in range(50)), targets=BOTH)
    before = kv.table()
    node.stop()
    shutil.rmtree(tmp_path / "data" / "kv")
    node.restart()
    kv = numbered(node.caller, create=False)
    assert kv.table() == before
    assert sorted(found[1] for found in before.values()) == list(range(1, 51))


def test_the_last_number_of_int(caller: Caller) -> None:
    columns = tuple(replace(c, data_type=INT) if c.name == "no" else c for c in NUMBERED.columns)
    kv = numbered(
        caller,
        schema=replace(NUMBERED, columns=columns),
        bucket_count=2,
        properties={SIZE: str(2**31 - 3)},
    )
    kv.put(row("x"), targets=(0,))
    kv.put(row("y"), row("z"), targets=(0,), bucket=1)
    with pytest.raises(UnknownServerError, match="'no' has no more numbers: INT ends at 21474836"):
        kv.put(row("more"), targets=(0,), bucket=1)
    assert [changed[1] for _, changed in kv.changelog(1)] == [2**31 - 2, 2**31 - 1]
    assert kv.end(1) == 2


def test_a_column_added_later_leaves_the_numbers_alone(caller: Caller) -> None:
    kv = numbered(caller)
    kv.put(row("x", "a"), targets=A)
    old = kv.records([row("y", "old")])
    request = pb.AlterTableRequest(table_path=to_pb(kv.path), ignore_if_not_exists=False)
    request.add_columns.add(
        column_name="c",
        data_type_json=b'{"type":"INTEGER"}',
        column_position_type=values.POSITION_LAST,
    )
    caller.call(apis.ALTER_TABLE, request)
    kv.refresh()
    kv.send(old, targets=A)
    kv.put((*row("z"), 5), targets=(0, 4))
    assert kv.table() == {
        "x": ("x", 1, "a", None, None),
        "y": ("y", 2, "old", None, None),
        "z": ("z", 3, None, None, 5),
    }


def test_the_number_is_no_target_column(caller: Caller) -> None:
    """Nor are there puts or deletes of complete rows, as in Fluss."""
    kv = numbered(caller)
    why = "'no' is an auto-increment column: name target columns without it"
    for targets in ((0, 1), (0, 1, 2, 3), ()):
        with pytest.raises(InvalidTargetColumn, match=why):
            kv.put(row("x"), targets=targets)
    with pytest.raises(InvalidTargetColumn, match=why):
        kv.delete(row("x"))
    assert kv.end() == 0


@pytest.mark.parametrize(
    ("error", "match", "changes"),
    [
        (InvalidTable, "can have only one", {"auto_increment": ("no", "b")}),
        (InvalidTable, "'a' has the type STRING; use INT or", {"auto_increment": ("a",)}),
        (InvalidTable, "cannot be in the primary key", {"primary_key": ("no",)}),
        (InvalidTable, "requires a primary key", {"primary_key": ()}),
    ],
)
def test_columns_that_cannot_be_numbered(
    caller: Caller, error: type[SluiceError], match: str, changes: dict[str, Any]
) -> None:
    with pytest.raises(error, match=match):
        caller.create_table(descriptor=TableDescriptor(replace(NUMBERED, **changes)))


def test_options_that_do_not_fit(caller: Caller) -> None:
    engine = {"table.merge-engine": "first_row"}
    with pytest.raises(InvalidTable, match="excludes table.merge-engine = first_row"):
        caller.create_table(descriptor=TableDescriptor(NUMBERED, properties=engine))
    for size in ("0", "-5", str(2**31), str(2**63)):
        with pytest.raises(InvalidConfig, match=f"= {size}: use 1 to 2147483647"):
            caller.create_table(descriptor=TableDescriptor(NUMBERED, properties={SIZE: size}))


def test_a_number_of_more_digits_than_python_reads(caller: Caller) -> None:
    digits = "9" * 5_000
    with pytest.raises(InvalidConfig, match="expected a whole number of at most 19 digits"):
        caller.create_table(descriptor=TableDescriptor(NUMBERED, properties={SIZE: digits}))


def test_the_numbers_of_a_dropped_table_begin_again(node: Node, tmp_path: Path) -> None:
    kv = numbered(node.caller)
    kv.put(row("x"), targets=A)
    node.caller.drop_table(kv.path)
    kv = numbered(node.caller)
    kv.put(row("x"), targets=A)
    assert kv.table() == {"x": ("x", 1, None, None)}
    node.caller.drop_table(kv.path)
    node.stop()
    database = Database(tmp_path / "data" / "metadata.sqlite")
    try:
        assert database.query("SELECT * FROM auto_increment") == []
        with pytest.raises(StorageError):
            database.reserve_numbers(kv.table_id, 1, 5)
    finally:
        database.close()
    node.start()


def test_segments_of_dropped_partitions_and_tables_are_forgotten(tmp_path: Path) -> None:
    descriptor = TableDescriptor(NUMBERED, properties={SIZE: "10"})
    info = TableInfo(PATH, 4, 1, descriptor, 0, 0)
    database = Database(tmp_path / "metadata.sqlite")
    with database.transaction() as connection:
        connection.execute("INSERT INTO databases VALUES ('db', x'', 0, 0)")
        connection.execute("INSERT INTO tables VALUES (4, 'db', 't', x'', 1, 0, 0)")
    numbers = AutoIncrement(database.reserve_numbers)
    buckets = [TableBucket(4, partition_id, 0) for partition_id in (7, 8)]

    def taken() -> list[int]:
        return [int(numbers.take(bucket, info, 1)[0]) for bucket in buckets]

    assert taken() == [1, 11]
    numbers.drop_table(info, 7)
    assert taken() == [21, 12]
    numbers.drop_table(info)
    assert taken() == [31, 41]
    database.close()


def test_numbers_of_a_put_that_failed_are_not_given_again(node: Node) -> None:
    """A put that failed after its numbers were taken leaves a gap."""
    kv = numbered(node.caller)
    step = "server.put_kv.before_log"
    failpoints._armed[step] = ("raise", failpoints._passages.get(step, 0) + 1)
    try:
        with pytest.raises(UnknownServerError):
            kv.put(row("x"), targets=A)
    finally:
        failpoints._armed.pop(step, None)
    kv.put(row("x"), targets=A)
    assert kv.table() == {"x": ("x", 2, None, None)}
