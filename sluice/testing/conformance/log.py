"""Appending to a log, reading it, its offsets."""

from __future__ import annotations

import time
from collections.abc import Callable

import pyarrow as pa

from sluice.model import Column, TableBucket, TablePath
from sluice.model import types as t
from sluice.testing.conformance.every_type import EVERY_TYPE, every_value
from sluice.testing.conformance.stage import Stage, done, scenario

FUTURE_MS = 24 * 60 * 60 * 1000


def _orders(first: int, count: int) -> pa.Table:
    ids = range(first, first + count)
    return pa.table({"id": pa.array(ids, pa.int64()), "note": [f"note {i}" for i in ids]})


def _ids(stage: Stage, path: TablePath, start: int, stop: int | None = None) -> list[int]:
    """Ids of the rows of bucket 0, from an offset on."""
    reader = stage.client.log_reader(path)
    bucket = TableBucket(reader.info.table_id, None, 0)
    return [i for r in reader.read(bucket, start, stop) for i in r.batch["id"].to_pylist()]


@scenario
def log(stage: Stage) -> None:
    admin, client = stage.client.admin, stage.client
    path = stage.create("t", {"id": t.BIGINT, "note": t.STRING})
    stage.see("earliest of an empty log", admin.list_offsets(path, timestamp_ms="earliest"), {0: 0})
    stage.see("latest of an empty log", admin.list_offsets(path), {0: 0})
    for first in (0, 100):
        stage.append(path, _orders(first, 100))
    stage.see("latest", admin.list_offsets(path, timestamp_ms="latest"), {0: 200})
    stage.see("earliest", admin.list_offsets(path, timestamp_ms="earliest"), {0: 0})
    stage.see("all rows", _ids(stage, path, -2), list(range(200)))
    stage.see("rows from the middle", _ids(stage, path, 150), list(range(150, 200)))
    stage.see("a window", _ids(stage, path, 30, 120), list(range(30, 120)))
    reader = client.log_reader(path)
    bucket = TableBucket(reader.info.table_id, None, 0)
    times = [records.timestamp_ms for records in reader.read(bucket)]
    stage.see("batch times rise", times == sorted(times), True)
    stage.see("batch times are now", abs(times[-1] - time.time() * 1000) < 60_000, True)

    def at(timestamp_ms: int) -> Callable[[], object]:
        return lambda: admin.list_offsets(path, timestamp_ms=timestamp_ms)

    stage.ask("offset at a time before all", at(1), {0: 0})
    stage.ask("offset at the last batch's time", at(times[-1]), {0: 100})
    stage.ask("offset at a time after all", at(times[-1] + 1), {0: 200})
    stage.ask("offset at a time to come", at(times[-1] + FUTURE_MS), "InvalidTimestamp")
    stage.ask("beyond the end", lambda: _ids(stage, path, 5000, 6000), "LogOffsetOutOfRange")
    stage.ask("a bucket too many", lambda: admin.list_offsets(path, [1]), "UnknownTableOrBucket")
    stage.ask("a missing table", lambda: client.log_writer(stage.path("gone")), "TableNotExist")
    info = admin.table_info(path)
    admin.drop_table(path)
    stage.ask_until(
        "offsets of a dropped table",
        lambda: admin.list_offsets(path, [0], table_id=info.table_id),
        "TableNotExist",
    )


@scenario
def log_buckets(stage: Stage) -> None:
    """Rows go where Fluss's own hash says; each bucket keeps their order."""
    admin = stage.client.admin
    path = stage.create(
        "t", {"id": t.BIGINT, "note": t.STRING}, bucket_count=4, bucket_keys=("id",)
    )
    stage.append(path, _orders(0, 1000))
    ends = admin.list_offsets(path)
    stage.see("rows of the buckets", ends, {0: 238, 1: 229, 2: 262, 3: 271})
    reader = stage.client.log_reader(path)
    for bucket in ends:
        records = reader.read(TableBucket(reader.info.table_id, None, bucket))
        ids = [i for r in records for i in r.batch["id"].to_pylist()]
        stage.see(
            f"order and number in bucket {bucket}",
            (ids == sorted(ids), len(ids)),
            (True, ends[bucket]),
        )


@scenario
def log_types(stage: Stage) -> None:
    """Every type comes back as it was written, nulls too."""
    path = stage.create("t", EVERY_TYPE)
    rows = every_value()
    stage.append(path, rows)
    reader = stage.client.log_reader(path)
    (records,) = reader.read(TableBucket(reader.info.table_id, None, 0))
    for name in rows.column_names:
        stage.see(name, records.batch[name].to_pylist(), rows[name].to_pylist())


@scenario
def log_evolution(stage: Stage) -> None:
    """Rows of before and after an added column, read in the newest schema."""
    admin = stage.client.admin
    path = stage.create("t", {"id": t.BIGINT, "note": t.STRING})
    stage.append(path, _orders(0, 2))
    before = stage.client.log_reader(path)
    admin.add_columns(path, [Column("more", t.INT, -1)])
    more = pa.array([7, None], pa.int32())
    stage.append(path, _orders(2, 2).append_column("more", more))
    reader = stage.client.log_reader(path)
    bucket = TableBucket(reader.info.table_id, None, 0)
    rows = [row for r in reader.read(bucket) for row in r.batch.to_pylist()]
    stage.see("ids", [row["id"] for row in rows], [0, 1, 2, 3])
    stage.see("the added column", [row["more"] for row in rows], [None, None, 7, None])
    stage.ask(
        "with a reader of before",
        lambda: [r.next_offset for r in before.read(bucket)],
        "SchemaNotExist",
    )


@scenario
def primary_keys(stage: Stage) -> None:
    """A table with a primary key has a changelog, which is not for a log writer."""
    kinds = {"id": t.BIGINT.not_null(), "v": t.STRING}
    stage.ask("creating one", done(lambda: stage.create("t", kinds, key=("id",))), "done")
    path = stage.path("t")
    stage.ask("a log writer of it", lambda: stage.client.log_writer(path), "InvalidTable")
    stage.ask("a log reader of it", done(lambda: stage.client.log_reader(path)), "done")
