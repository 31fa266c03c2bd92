"""Scenarios about log tables: append, read, offsets."""

from __future__ import annotations

import time
from collections.abc import Callable

import pyarrow as pa

from sluice.model import Column, TableBucket, TablePath
from sluice.model import types as t
from tests.conformance.every_type import EVERY_TYPE, every_value
from tests.conformance.scenario import ScenarioContext, done, scenario

FUTURE_MS = 24 * 60 * 60 * 1000


def _orders(first: int, count: int) -> pa.Table:
    ids = range(first, first + count)
    return pa.table({"id": pa.array(ids, pa.int64()), "note": [f"note {i}" for i in ids]})


def _ids(
    context: ScenarioContext, path: TablePath, start: int, stop: int | None = None
) -> list[int]:
    """The ids of bucket 0's rows from an offset on."""
    reader = context.client.log_reader(path)
    bucket = TableBucket(reader.info.table_id, None, 0)
    return [i for r in reader.read(bucket, start, stop) for i in r.batch["id"].to_pylist()]


@scenario
def log(context: ScenarioContext) -> None:
    admin, client = context.client.admin, context.client
    path = context.create("t", {"id": t.BIGINT, "note": t.STRING})
    context.expect(
        "earliest of an empty log", admin.list_offsets(path, timestamp_ms="earliest"), {0: 0}
    )
    context.expect("latest of an empty log", admin.list_offsets(path), {0: 0})
    for first in (0, 100):
        context.append(path, _orders(first, 100))
    context.expect("latest", admin.list_offsets(path, timestamp_ms="latest"), {0: 200})
    context.expect("earliest", admin.list_offsets(path, timestamp_ms="earliest"), {0: 0})
    context.expect("all rows", _ids(context, path, -2), list(range(200)))
    context.expect("rows from the middle", _ids(context, path, 150), list(range(150, 200)))
    context.expect("a window", _ids(context, path, 30, 120), list(range(30, 120)))
    reader = client.log_reader(path)
    bucket = TableBucket(reader.info.table_id, None, 0)
    times = [records.timestamp_ms for records in reader.read(bucket)]
    context.expect("batch times rise", times == sorted(times), True)
    context.expect("batch times are now", abs(times[-1] - time.time() * 1000) < 60_000, True)

    def at(timestamp_ms: int) -> Callable[[], object]:
        return lambda: admin.list_offsets(path, timestamp_ms=timestamp_ms)

    context.expect_call("offset at a time before all", at(1), {0: 0})
    context.expect_call("offset at the last batch's time", at(times[-1]), {0: 100})
    context.expect_call("offset at a time after all", at(times[-1] + 1), {0: 200})
    context.expect_call("offset at a time to come", at(times[-1] + FUTURE_MS), "InvalidTimestamp")
    context.expect_call(
        "beyond the end", lambda: _ids(context, path, 5000, 6000), "LogOffsetOutOfRange"
    )
    context.expect_call(
        "a bucket too many", lambda: admin.list_offsets(path, [1]), "UnknownTableOrBucket"
    )
    context.expect_call(
        "a missing table", lambda: client.log_writer(context.path("gone")), "TableNotExist"
    )
    info = admin.table_info(path)
    admin.drop_table(path)
    context.expect_eventually(
        "offsets of a dropped table",
        lambda: admin.list_offsets(path, [0], table_id=info.table_id),
        "TableNotExist",
    )


@scenario
def log_buckets(context: ScenarioContext) -> None:
    """Fluss's hash selects the bucket of each row; each bucket keeps the order."""
    admin = context.client.admin
    path = context.create(
        "t", {"id": t.BIGINT, "note": t.STRING}, bucket_count=4, bucket_keys=("id",)
    )
    context.append(path, _orders(0, 1000))
    ends = admin.list_offsets(path)
    context.expect("rows of the buckets", ends, {0: 238, 1: 229, 2: 262, 3: 271})
    reader = context.client.log_reader(path)
    for bucket in ends:
        records = reader.read(TableBucket(reader.info.table_id, None, bucket))
        ids = [i for r in records for i in r.batch["id"].to_pylist()]
        context.expect(
            f"order and number in bucket {bucket}",
            (ids == sorted(ids), len(ids)),
            (True, ends[bucket]),
        )


@scenario
def log_types(context: ScenarioContext) -> None:
    """Values and nulls of every type are read as they were written."""
    path = context.create("t", EVERY_TYPE)
    rows = every_value()
    context.append(path, rows)
    reader = context.client.log_reader(path)
    (records,) = reader.read(TableBucket(reader.info.table_id, None, 0))
    for name in rows.column_names:
        context.expect(name, records.batch[name].to_pylist(), rows[name].to_pylist())


@scenario
def log_evolution(context: ScenarioContext) -> None:
    """Rows from before and after an added column are read in the newest schema."""
    admin = context.client.admin
    path = context.create("t", {"id": t.BIGINT, "note": t.STRING})
    context.append(path, _orders(0, 2))
    before = context.client.log_reader(path)
    admin.add_columns(path, [Column("more", t.INT, -1)])
    more = pa.array([7, None], pa.int32())
    context.append(path, _orders(2, 2).append_column("more", more))
    reader = context.client.log_reader(path)
    bucket = TableBucket(reader.info.table_id, None, 0)
    rows = [row for r in reader.read(bucket) for row in r.batch.to_pylist()]
    context.expect("ids", [row["id"] for row in rows], [0, 1, 2, 3])
    context.expect("the added column", [row["more"] for row in rows], [None, None, 7, None])
    context.expect_call(
        "with a reader of before",
        lambda: [r.next_offset for r in before.read(bucket)],
        "SchemaNotExist",
    )


@scenario
def primary_keys(context: ScenarioContext) -> None:
    """A primary-key table has a changelog, to which a log writer may not append."""
    kinds = {"id": t.BIGINT.not_null(), "v": t.STRING}
    context.expect_call(
        "creating one", done(lambda: context.create("t", kinds, key=("id",))), "done"
    )
    path = context.path("t")
    context.expect_call(
        "a log writer of it", lambda: context.client.log_writer(path), "InvalidTable"
    )
    context.expect_call("a log reader of it", done(lambda: context.client.log_reader(path)), "done")
