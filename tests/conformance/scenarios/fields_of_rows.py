"""The fields of answers about rows: appends, fetches, offsets, upserts, look-ups, scans."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from sluice.model import TableInfo
from sluice.model import types as t
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.messages import values
from sluice.wire.messages.table_paths import table_path
from tests.conformance.raw_calls import (
    NO_TABLE,
    RawCalls,
    keys_of,
    kv_records,
    log_records,
    raw_calls,
)
from tests.conformance.scenario import ScenarioContext, scenario
from tests.conformance.scenarios.fields_of_catalog import KEYED, LOG

_BYTES = 1 << 20
_FUTURE_MS = 24 * 60 * 60 * 1000
IDLE, BUSY, NONE = 0, 1, 9
"""Buckets: without rows, with rows, and one that the table does not have."""

ROWS: Mapping[str, Sequence[Any]] = {"id": [1, 2], "note": ["a", None]}
_SECOND: Mapping[str, Any] = {"columns": [1]}
PLACES = {"a missing bucket": (None, NONE), "a missing table": (NO_TABLE, IDLE)}
"""Where no bucket is: (table id, or the table's own; bucket)."""


@scenario
def fields_of_logs(context: ScenarioContext) -> None:
    path = context.create("t", LOG, bucket_count=2)
    info = context.client.admin.table_info(path)
    with raw_calls(context) as calls:
        calls.ask("of no table", apis.INIT_WRITER, pb.InitWriterRequest())
        named = pb.InitWriterRequest(table_path=[table_path(path)])
        writer_id = calls.ask("of a table", apis.INIT_WRITER, named).writer_id
        missing = pb.InitWriterRequest(table_path=[table_path(context.path("missing"))])
        calls.ask("of a missing table", apis.INIT_WRITER, missing)
        _limit_scans(calls, info, "of rows, at first")
        _produced(calls, info, writer_id)
        _fetched(calls, info)
        _offsets(calls, info)
        _limit_scans(calls, info, "of rows")
        _counted(calls, info, "a log table")
        _kv_calls_of_a_log_table(calls, info)
        _fetched_rows(context, calls)


def _produced(calls: RawCalls, info: TableInfo, writer_id: int) -> None:
    def produce(
        question: str,
        records: bytes,
        bucket: int = BUSY,
        table_id: int | None = None,
        acks: int = -1,
    ) -> None:
        request = pb.ProduceLogRequest(
            acks=acks, table_id=info.table_id if table_id is None else table_id, timeout_ms=10_000
        )
        request.buckets_req.add(bucket_id=bucket, records=records)
        calls.ask(question, apis.PRODUCE_LOG, request)

    rows = log_records(info, ROWS)
    first = log_records(info, ROWS, writer_id=writer_id, sequence=0)
    produce("of rows", rows)
    produce("of rows, unacknowledged", rows, acks=0)
    produce("of a writer", first)
    produce("of a writer, again", first)
    produce("of a writer, with a gap", log_records(info, ROWS, writer_id=writer_id, sequence=5))
    produce("of a damaged batch", rows[:-1] + bytes([rows[-1] ^ 1]))
    produce("of acks that no server knows", rows, acks=7)
    for where, (table_id, bucket) in PLACES.items():
        produce(f"to {where}", rows, bucket, table_id)


def fetch_of(
    table_id: int,
    buckets: Sequence[tuple[int, int]],
    *,
    columns: Sequence[int] | None = None,
    partition_id: int | None = None,
    **more: Any,
) -> pb.FetchLogRequest:
    """A client's fetch; ``buckets``: (bucket, offset); ``columns``: a projection."""
    request = pb.FetchLogRequest(follower_server_id=-1, max_bytes=_BYTES, **more)
    table = request.tables_req.add(
        table_id=table_id,
        projection_pushdown_enabled=columns is not None,
        projected_fields=columns or (),
    )
    for bucket, offset in buckets:
        table.buckets_req.add(
            partition_id=partition_id,
            bucket_id=bucket,
            fetch_offset=offset,
            max_fetch_bytes=_BYTES,
        )
    return request


def _fetched(calls: RawCalls, info: TableInfo) -> None:
    earliest = -2
    end = calls.call(apis.LIST_OFFSETS, offsets_of(info.table_id, (BUSY,))).buckets_resp[0].offset
    wait = {"min_bytes": 1, "max_wait_ms": 10}

    def fetch(
        question: str, *buckets: tuple[int, int], table_id: int | None = None, **more: Any
    ) -> None:
        where = info.table_id if table_id is None else table_id
        calls.ask(question, apis.FETCH_LOG, fetch_of(where, buckets, **more))

    fetch("of no bucket")
    fetch("of an idle bucket", (IDLE, 0))
    fetch("of an idle bucket, after a wait", (IDLE, earliest), **wait)
    fetch("of an idle bucket, projected", (IDLE, 0), columns=[1])
    fetch("of a busy bucket", (BUSY, 0))
    fetch("of a busy bucket, from the earliest", (BUSY, earliest), **wait)
    fetch("of a busy bucket, projected", (BUSY, 0), columns=[1])
    fetch("of a bucket at its end", (BUSY, end))
    fetch("of a bucket at its end, after a wait", (BUSY, end), **wait)
    fetch("of a busy and an idle bucket", (BUSY, 0), (IDLE, 0), **wait)
    fetch("beyond the end", (BUSY, end + 10))
    fetch("beyond the end and of a busy bucket", (BUSY, 0), (IDLE, 10))
    fetch("projected to no column", (BUSY, 0), columns=[])
    fetch("projected to a missing column", (BUSY, 0), columns=[7])
    for where, (table_id, bucket) in PLACES.items():
        fetch(f"of {where}", (bucket, 0), table_id=table_id)
    both = fetch_of(info.table_id, [(BUSY, 0)])
    both.tables_req.extend(fetch_of(NO_TABLE, [(BUSY, 0)]).tables_req)
    calls.ask("of a table and a missing one", apis.FETCH_LOG, both)
    fetch("of a busy and a missing bucket", (BUSY, 0), (NONE, 0), **wait)


def offsets_of(
    table_id: int, buckets: Sequence[int], kind: int = values.OFFSET_LATEST, **more: Any
) -> pb.ListOffsetsRequest:
    return pb.ListOffsetsRequest(
        follower_server_id=-1, offset_type=kind, table_id=table_id, bucket_id=buckets, **more
    )


def _offsets(calls: RawCalls, info: TableInfo) -> None:
    now_ms = int(time.time() * 1000)
    both, by_time = (IDLE, BUSY), values.OFFSET_BY_TIMESTAMP

    def listed(question: str, request: pb.ListOffsetsRequest) -> None:
        calls.ask(question, apis.LIST_OFFSETS, request)

    listed("of the leader's end", offsets_of(info.table_id, both, values.OFFSET_LEADER_END))
    listed("of no bucket", offsets_of(info.table_id, ()))
    listed("latest", offsets_of(info.table_id, both))
    listed("earliest", offsets_of(info.table_id, both, values.OFFSET_EARLIEST))
    listed("at a time before all", offsets_of(info.table_id, both, by_time, startTimestamp=1))
    listed("at a time after all", offsets_of(info.table_id, both, by_time, startTimestamp=now_ms))
    no_time = offsets_of(info.table_id, both, by_time)
    listed("at no time", no_time)
    to_come = offsets_of(info.table_id, both, by_time, startTimestamp=now_ms + _FUTURE_MS)
    listed("at a time to come", to_come)
    for where, (table_id, bucket) in PLACES.items():
        at = info.table_id if table_id is None else table_id
        listed(f"of {where}", offsets_of(at, (bucket,)))
    listed("of a busy and a missing bucket", offsets_of(info.table_id, (BUSY, NONE)))


def _limit_scans(calls: RawCalls, info: TableInfo, rows: str) -> None:
    def scan(question: str, bucket: int, table_id: int | None = None, limit: int = 10) -> None:
        request = pb.LimitScanRequest(
            table_id=info.table_id if table_id is None else table_id,
            bucket_id=bucket,
            limit=limit,
        )
        kind = "keyed" if info.has_primary_key else "log"
        calls.ask(f"{question}, {kind} table", apis.LIMIT_SCAN, request)

    scan(rows, BUSY)
    if rows.endswith("rows"):
        scan("of an idle bucket", IDLE)
        scan("of one row", BUSY, limit=1)
        for where, (table_id, bucket) in PLACES.items():
            scan(f"of {where}", bucket, table_id)


def _counted(calls: RawCalls, info: TableInfo, kind: str) -> None:
    def count(question: str, buckets: Sequence[int], table_id: int | None = None) -> None:
        request = pb.GetTableStatsRequest(table_id=info.table_id if table_id is None else table_id)
        for bucket in buckets:
            request.buckets_req.add(bucket_id=bucket)
        calls.ask(question, apis.GET_TABLE_STATS, request)

    count(f"of {kind}", (IDLE, BUSY))
    for where, (table_id, bucket) in PLACES.items():
        count(f"of {where}, {kind}", (bucket,), table_id)


def _fetched_rows(context: ScenarioContext, calls: RawCalls) -> None:
    """Of a table whose log has rows instead of Arrow data."""
    path = context.create("rows", LOG, properties={"table.log.format": "INDEXED"})
    context.append(path, pa.table(dict(ROWS)))
    table_id = context.client.admin.table_info(path).table_id
    for question, more in (("of a log of rows", {}), ("of a log of rows, projected", _SECOND)):
        calls.ask(question, apis.FETCH_LOG, fetch_of(table_id, [(0, 0)], **more))
    scan = pb.LimitScanRequest(table_id=table_id, bucket_id=0, limit=1)
    calls.ask("of a log of rows", apis.LIMIT_SCAN, scan)


def _kv_calls_of_a_log_table(calls: RawCalls, info: TableInfo) -> None:
    request = pb.LookupRequest(table_id=info.table_id)
    request.buckets_req.add(bucket_id=BUSY, keys=[b"\x01"])
    calls.ask("in a log table", apis.LOOKUP, request)
    prefix = pb.PrefixLookupRequest(table_id=info.table_id)
    prefix.buckets_req.add(bucket_id=BUSY, keys=[b"\x01"])
    calls.ask("in a log table", apis.PREFIX_LOOKUP, prefix)


@scenario
def fields_of_keyed_rows(context: ScenarioContext) -> None:
    columns = {"id": t.BIGINT.not_null(), "part": t.BIGINT.not_null(), "note": t.STRING}
    admin = context.client.admin
    plain = admin.table_info(context.create("t", KEYED, key=("id",), bucket_count=2))
    parts = context.create("parts", columns, key=("id", "part"), bucket_keys=("id",))
    wal = {"table.changelog.image": "WAL"}
    uncounted = context.create("uncounted", KEYED, key=("id",), bucket_count=2, properties=wal)
    with raw_calls(context) as calls:
        writer_id = calls.call(apis.INIT_WRITER, pb.InitWriterRequest()).writer_id
        _limit_scans(calls, plain, "of rows, at first")
        _put(calls, plain, writer_id)
        calls.ask(
            "of a changelog", apis.FETCH_LOG, fetch_of(plain.table_id, [(BUSY, 0), (IDLE, 0)])
        )
        _looked_up(calls, plain)
        _counted(calls, plain, "a keyed table")
        without = admin.table_info(uncounted)
        calls.call(apis.PUT_KV, put_of(without, kv_records(without, ROWS), BUSY))
        _counted(calls, without, "a keyed table without a count")
        _looked_up_by_prefix(calls, admin.table_info(parts), plain)
        _limit_scans(calls, plain, "of rows")


def put_of(info: TableInfo, records: bytes, bucket: int) -> pb.PutKvRequest:
    request = pb.PutKvRequest(acks=-1, table_id=info.table_id, timeout_ms=10_000)
    request.buckets_req.add(bucket_id=bucket, records=records)
    return request


def _put(calls: RawCalls, info: TableInfo, writer_id: int) -> None:
    def put(
        question: str,
        records: bytes,
        bucket: int = BUSY,
        table_id: int | None = None,
        acks: int = -1,
        targets: Sequence[int] = (),
    ) -> None:
        request = pb.PutKvRequest(
            acks=acks,
            table_id=info.table_id if table_id is None else table_id,
            timeout_ms=10_000,
            target_columns=targets,
        )
        request.buckets_req.add(bucket_id=bucket, records=records)
        calls.ask(question, apis.PUT_KV, request)

    rows = kv_records(info, ROWS)
    one: Mapping[str, Sequence[Any]] = {"id": [1], "note": [None]}
    first = kv_records(info, ROWS, writer_id=writer_id, sequence=0)
    put("of rows", rows)
    put("of rows, unacknowledged", rows, acks=0)
    put("of some columns", rows, targets=[0, 1])
    put("of a column without the key", rows, targets=[1])
    put("of a writer", first)
    put("of a writer, again", first)
    put("of a writer, with a gap", kv_records(info, ROWS, writer_id=writer_id, sequence=5))
    put("of a delete", kv_records(info, one, delete=True))
    put("of a delete of nothing", kv_records(info, one, delete=True))
    put("of a damaged batch", rows[:-1] + bytes([rows[-1] ^ 1]))
    put("of acks that no server knows", rows, acks=7)
    for where, (table_id, bucket) in PLACES.items():
        put(f"to {where}", rows, bucket, table_id)


def _looked_up(calls: RawCalls, info: TableInfo) -> None:
    def look_up(
        question: str, keys: Sequence[bytes], bucket: int = BUSY, table_id: int | None = None
    ) -> None:
        request = pb.LookupRequest(table_id=info.table_id if table_id is None else table_id)
        request.buckets_req.add(bucket_id=bucket, keys=keys)
        calls.ask(question, apis.LOOKUP, request)

    there, gone = keys_of(info, {"id": [2, 5], "note": ["", ""]})
    look_up("of a row", [there])
    look_up("of no row", [gone])
    look_up("of a row and no row", [there, gone])
    look_up("of no key", [])
    look_up("in an idle bucket", [there], IDLE)
    inserting = pb.LookupRequest(
        table_id=info.table_id, insert_if_not_exists=True, acks=-1, timeout_ms=10_000
    )
    inserting.buckets_req.add(bucket_id=IDLE, keys=[gone])
    calls.ask("of no row, which is inserted", apis.LOOKUP, inserting)
    inserting.buckets_req[0].keys[:] = [b"\x01"]
    calls.ask("of no key, which would be inserted", apis.LOOKUP, inserting)
    inserting.acks = 7
    calls.ask("which inserts, of acks that no server knows", apis.LOOKUP, inserting)
    del inserting.buckets_req[:]
    inserting.acks = -1
    inserting.buckets_req.add(bucket_id=NONE, keys=[gone])
    calls.ask("which inserts in a missing bucket", apis.LOOKUP, inserting)
    for where, (table_id, bucket) in PLACES.items():
        look_up(f"in {where}", [there], bucket, table_id)


def _looked_up_by_prefix(calls: RawCalls, info: TableInfo, plain: TableInfo) -> None:
    rows: Mapping[str, Sequence[Any]] = {"id": [1, 1], "part": [1, 2], "note": ["a", "b"]}
    put = put_of(info, kv_records(info, rows), 0)
    calls.ask("of a key of two columns", apis.PUT_KV, put)

    def look_up(question: str, prefixes: Sequence[bytes], bucket: int, table_id: int) -> None:
        request = pb.PrefixLookupRequest(table_id=table_id)
        request.buckets_req.add(bucket_id=bucket, keys=prefixes)
        calls.ask(question, apis.PREFIX_LOOKUP, request)

    # Lake tables encode keys otherwise; this one's bucket key is a compacted number.
    there, missing = (key[:1] for key in keys_of(info, {**rows, "id": [1, 5]}))
    look_up("of two rows", [there], 0, info.table_id)
    look_up("of no row", [missing], 0, info.table_id)
    look_up("of both", [there, missing], 0, info.table_id)
    look_up("of no key", [], 0, info.table_id)
    look_up("in a table without prefixes", keys_of(plain, ROWS)[1:], BUSY, plain.table_id)
    for where, (table_id, bucket) in PLACES.items():
        look_up(f"in {where}", [there], bucket, info.table_id if table_id is None else table_id)


@scenario
def fields_of_partitioned_rows(context: ScenarioContext) -> None:
    path = context.create_partitioned("t", {"id": t.BIGINT, "day": t.STRING}, "day")
    admin = context.client.admin
    admin.create_partition(path, {"day": "a"})
    info, (part,) = admin.table_info(path), admin.partitions(path)
    rows = log_records(info, {"id": [1], "day": ["a"]})
    with raw_calls(context) as calls:
        both = offsets_of(info.table_id, (0, 1), partition_id=part.partition_id)
        calls.wait(
            apis.LIST_OFFSETS,
            both,
            lambda answer: not any(each.HasField("error_code") for each in answer.buckets_resp),
        )
        for name, partition_id in (
            ("a partition", part.partition_id),
            ("an unknown partition", NO_TABLE),
            ("no partition", None),
        ):
            produce = pb.ProduceLogRequest(acks=-1, table_id=info.table_id, timeout_ms=10_000)
            produce.buckets_req.add(partition_id=partition_id, bucket_id=BUSY, records=rows)
            calls.ask(f"to {name}", apis.PRODUCE_LOG, produce)
            offsets = offsets_of(info.table_id, (IDLE, BUSY), partition_id=partition_id)
            calls.ask(f"of {name}", apis.LIST_OFFSETS, offsets)
            buckets = [(IDLE, 0), (BUSY, 0)]
            fetch = fetch_of(info.table_id, buckets, partition_id=partition_id)
            calls.ask(f"of {name}", apis.FETCH_LOG, fetch)
            scan = pb.LimitScanRequest(
                table_id=info.table_id, partition_id=partition_id, bucket_id=BUSY, limit=10
            )
            calls.ask(f"of {name}", apis.LIMIT_SCAN, scan)
        admin.drop_partition(path, {"day": "a"})
        calls.wait_for_error(apis.LIST_OFFSETS, both)
        calls.ask("of a dropped partition", apis.LIST_OFFSETS, both)
        plain = context.create("plain", LOG)
        dropped = admin.table_info(plain).table_id
        admin.drop_table(plain)
        offsets = offsets_of(dropped, (0,))
        calls.wait_for_error(apis.LIST_OFFSETS, offsets)
        calls.ask("of a dropped table", apis.LIST_OFFSETS, offsets)
        calls.ask("of a dropped table", apis.FETCH_LOG, fetch_of(dropped, [(0, 0)]))
