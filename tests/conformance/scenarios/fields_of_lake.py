"""The fields of answers about KV snapshots, leases, tiering and lake snapshots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sluice.model import TableInfo, TablePath
from sluice.model import types as t
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Role
from sluice.wire.messages.table_paths import table_path
from tests.conformance.raw_calls import (
    NO_TABLE,
    RawCalls,
    keys_of,
    kv_records,
    raw_calls,
)
from tests.conformance.scenario import LAKE, ScenarioContext, scenario
from tests.conformance.scenarios.fields_of_catalog import KEYED, LOG

_MINUTE_MS = 60_000


@scenario
def fields_of_kv_snapshots(context: ScenarioContext) -> None:
    admin = context.client.admin
    info = admin.table_info(context.create("t", KEYED, key=("id",), bucket_count=2))
    where = info.path
    log = context.create("log", LOG)

    def newest(path: TablePath, **more: str) -> pb.GetLatestKvSnapshotsRequest:
        return pb.GetLatestKvSnapshotsRequest(table_path=table_path(path), **more)

    with raw_calls(context) as calls:
        api = apis.GET_LATEST_KV_SNAPSHOTS
        calls.ask_both("of none", api, newest(where))
        _write(calls, info)
        found = calls.wait(
            api, newest(where), lambda answer: answer.latest_snapshots[0].HasField("snapshot_id")
        )
        calls.ask_both("of one bucket of two", api, newest(where))
        calls.ask("of a log table", api, newest(log))
        calls.ask("of a missing table", api, newest(context.path("missing")))
        calls.ask("of a partition of a plain table", api, newest(where, partition_name="a"))
        _metadata(calls, info, found.latest_snapshots[0].snapshot_id)
        _leased(context, calls, info, found.latest_snapshots[0].snapshot_id)


def _write(calls: RawCalls, info: TableInfo) -> None:
    request = pb.PutKvRequest(acks=-1, table_id=info.table_id, timeout_ms=10_000)
    request.buckets_req.add(
        bucket_id=0, records=kv_records(info, {"id": [1, 2], "note": ["a", None]})
    )
    calls.call(apis.PUT_KV, request)


def _metadata(calls: RawCalls, info: TableInfo, snapshot_id: int) -> None:
    def metadata(**changes: int) -> pb.GetKvSnapshotMetadataRequest:
        there = {"table_id": info.table_id, "bucket_id": 0, "snapshot_id": snapshot_id}
        return pb.GetKvSnapshotMetadataRequest(**there | changes)

    api = apis.GET_KV_SNAPSHOT_METADATA
    answer = calls.ask("of a snapshot", api, metadata(), Role.COORDINATOR)
    calls.ask("of a snapshot, by a tablet server", api, metadata(), Role.TABLET)
    calls.ask("of no snapshot", api, metadata(snapshot_id=NO_TABLE))
    calls.ask("of no bucket", api, metadata(bucket_id=7))
    calls.ask("of no table", api, metadata(table_id=NO_TABLE))
    own = next(f for f in answer.snapshot_files if f"/snap-{snapshot_id}/" in f.remote_path)
    content = Path(urlsplit(own.remote_path).path).with_name("_METADATA").read_bytes()
    calls.json_file("_METADATA of a KV snapshot", content)


def _leased(context: ScenarioContext, calls: RawCalls, info: TableInfo, snapshot_id: int) -> None:
    lease = f"{context.database}-fields"

    def acquire(question: str, table_id: int = info.table_id, **changes: int) -> None:
        request = pb.AcquireKvSnapshotLeaseRequest(lease_id=lease, lease_duration_ms=_MINUTE_MS)
        table = request.snapshots_to_lease.add(table_id=table_id)
        table.bucket_snapshots.add(**{"bucket_id": 0, "snapshot_id": snapshot_id} | changes)
        calls.ask(question, apis.ACQUIRE_KV_SNAPSHOT_LEASE, request)

    acquire("of a snapshot")
    acquire("of no snapshot", snapshot_id=NO_TABLE)
    acquire("of no table", NO_TABLE)
    empty = pb.AcquireKvSnapshotLeaseRequest(lease_id=lease, lease_duration_ms=_MINUTE_MS)
    calls.ask("of nothing", apis.ACQUIRE_KV_SNAPSHOT_LEASE, empty)
    release = pb.ReleaseKvSnapshotLeaseRequest(lease_id=lease)
    release.buckets_to_release.add(table_id=info.table_id, bucket_id=0)
    calls.ask("of a bucket", apis.RELEASE_KV_SNAPSHOT_LEASE, release)
    calls.ask("of a bucket again", apis.RELEASE_KV_SNAPSHOT_LEASE, release)
    for question in ("of a lease", "of a lease again"):
        drop = pb.DropKvSnapshotLeaseRequest(lease_id=lease)
        calls.ask(question, apis.DROP_KV_SNAPSHOT_LEASE, drop)


@scenario
def fields_of_tiering(context: ScenarioContext) -> None:
    path = context.create("t", LOG, bucket_count=2, properties=LAKE)
    claim = context.claim(path)
    with raw_calls(context) as calls:
        api = apis.LAKE_TIERING_HEARTBEAT
        calls.ask("of nothing", api, pb.LakeTieringHeartbeatRequest())

        def beat(question: str, field: str, **changes: int) -> None:
            request = pb.LakeTieringHeartbeatRequest()
            table = {
                "table_id": claim.table_id,
                "coordinator_epoch": claim.coordinator_epoch,
                "tiering_epoch": claim.tiering_epoch,
            }
            getattr(request, field).add(**table | changes)
            calls.ask(question, api, request)

        beat("of a round", "tiering_tables")
        beat("of a stale round", "tiering_tables", tiering_epoch=claim.tiering_epoch + 1)
        stale = claim.coordinator_epoch + 1
        beat("of a stale coordinator", "tiering_tables", coordinator_epoch=stale)
        beat("of a missing table", "tiering_tables", table_id=NO_TABLE)
        beat("of a finished round of a missing table", "finished_tables", table_id=NO_TABLE)
        _lake_snapshots(context, calls, path, claim.table_id)
        stale_epoch = claim.tiering_epoch + 1
        beat("of a stale finish", "finished_tables", tiering_epoch=stale_epoch)
        beat("of a stale failure", "failed_tables", tiering_epoch=stale_epoch)
        beat("of a failed round", "failed_tables")
        beat("of a failed round again", "failed_tables")
        again = context.claim(path)
        beat("of a finished round", "finished_tables", tiering_epoch=again.tiering_epoch)
        _assigned(context, calls)


def _assigned(context: ScenarioContext, calls: RawCalls) -> None:
    """A heartbeat that requests a table, with one that is due and without."""
    context.create("due", LOG, properties=LAKE)
    api, request = apis.LAKE_TIERING_HEARTBEAT, pb.LakeTieringHeartbeatRequest(request_table=True)
    failed = pb.LakeTieringHeartbeatRequest()

    def is_assigned(answer: pb.LakeTieringHeartbeatResponse) -> bool:
        if answer.HasField("tiering_table"):
            failed.failed_tables.add(
                table_id=answer.tiering_table.table_id,
                coordinator_epoch=answer.coordinator_epoch,
                tiering_epoch=answer.tiering_table.tiering_epoch,
            )
        return answer.HasField("tiering_table")

    calls.compare("that gets a table", api, calls.wait(api, request, is_assigned))
    none = calls.wait(api, request, lambda answer: not is_assigned(answer))
    calls.compare("that gets none", api, none)
    calls.call(api, failed)  # other tests may wait for these tables


def _lake_snapshots(
    context: ScenarioContext, calls: RawCalls, path: TablePath, table_id: int
) -> None:
    def snapshot(
        question: str, of: TablePath = path, **more: Any
    ) -> pb.GetLakeSnapshotResponse | None:
        request = pb.GetLakeSnapshotRequest(table_path=table_path(of), **more)
        answer: pb.GetLakeSnapshotResponse | None = calls.ask(
            question, apis.GET_LAKE_SNAPSHOT, request
        )
        return answer

    def prepare(question: str, of: int, where: TablePath) -> str:
        request = pb.PrepareLakeTableSnapshotRequest()
        table = request.bucket_offsets.add(table_id=of, table_path=table_path(where))
        for bucket in range(2):
            table.bucket_offsets.add(bucket_id=bucket, log_end_offset=0)
        answer = calls.ask(question, apis.PREPARE_LAKE_TABLE_SNAPSHOT, request)
        return str(answer.prepare_lake_table_resp[0].lake_table_offsets_path)

    def commit(question: str, of: int, file: str) -> None:
        request = pb.CommitLakeTableSnapshotRequest()
        request.lake_table_snapshot_metadata.add(
            table_id=of,
            snapshot_id=31,
            tiered_bucket_offsets_file_path=file,
            readable_bucket_offsets_file_path=file,
            earliest_snapshot_id_to_keep=-1,
        )
        calls.ask(question, apis.COMMIT_LAKE_TABLE_SNAPSHOT, request)

    snapshot("of none")
    file = prepare("of two buckets", table_id, path)
    calls.json_file("the offsets of a lake snapshot", Path(urlsplit(file).path).read_bytes())
    snapshot("of none, when prepared")
    commit("of a snapshot", table_id, file)
    snapshot("of a snapshot")
    snapshot("of a snapshot by its id", snapshot_id=31)
    snapshot("of a readable snapshot", readable=True)
    snapshot("of no snapshot by its id", snapshot_id=NO_TABLE)
    snapshot("by its id and readable", snapshot_id=31, readable=True)
    snapshot("of a missing table", context.path("missing"))
    snapshot("of a table that is not tiered", context.create("plain", LOG))
    commit("of a missing table", NO_TABLE, file)
    prepare("of a missing table", NO_TABLE, path)
    old = pb.CommitLakeTableSnapshotRequest()
    table = old.tables_req.add(table_id=table_id, snapshot_id=32)
    table.buckets_req.add(bucket_id=0, log_end_offset=0)
    calls.ask("of an old client", apis.COMMIT_LAKE_TABLE_SNAPSHOT, old)


def _keyed_rows(calls: RawCalls, info: TableInfo, partition_id: int) -> None:
    """Writes and reads rows of a partition of a primary-key table, and of none."""
    rows: Mapping[str, Sequence[Any]] = {"id": [1, 2], "day": ["a", "a"]}
    for name, number in (
        ("a partition", partition_id),
        ("an unknown partition", NO_TABLE),
        ("no partition", None),
    ):
        bucket = {"partition_id": number, "bucket_id": 0}
        put = pb.PutKvRequest(acks=-1, table_id=info.table_id, timeout_ms=10_000)
        put.buckets_req.add(records=kv_records(info, rows), **bucket)
        if number == partition_id:  # it may not have a leader yet
            calls.wait(apis.PUT_KV, put, lambda answer: not _failed(answer))
        calls.ask(f"to {name}", apis.PUT_KV, put)
        lookup = pb.LookupRequest(table_id=info.table_id)
        lookup.buckets_req.add(keys=keys_of(info, rows)[:1], **bucket)
        calls.ask(f"in {name}", apis.LOOKUP, lookup)
        inserting = pb.LookupRequest(
            table_id=info.table_id, insert_if_not_exists=True, acks=-1, timeout_ms=10_000
        )
        other: Mapping[str, Sequence[Any]] = {"id": [9], "day": ["a"]}
        inserting.buckets_req.add(keys=keys_of(info, other), **bucket)
        calls.ask(f"in {name}, which inserts", apis.LOOKUP, inserting)
        scan = pb.LimitScanRequest(table_id=info.table_id, limit=10, **bucket)
        calls.ask(f"of {name} of a keyed table", apis.LIMIT_SCAN, scan)
        count = pb.GetTableStatsRequest(table_id=info.table_id)
        count.buckets_req.add(**bucket)
        calls.ask(f"of {name}", apis.GET_TABLE_STATS, count)


def _failed(answer: Any) -> bool:
    return any(bucket.HasField("error_code") for bucket in answer.buckets_resp)


def _partition_snapshot(
    context: ScenarioContext, calls: RawCalls, path: TablePath, partition_id: int
) -> None:
    request = pb.GetLatestKvSnapshotsRequest(table_path=table_path(path), partition_name="a")
    found = calls.wait(
        apis.GET_LATEST_KV_SNAPSHOTS,
        request,
        lambda answer: answer.latest_snapshots[0].HasField("snapshot_id"),
    )
    calls.ask("of a partition with rows", apis.GET_LATEST_KV_SNAPSHOTS, request)
    snapshot_id = found.latest_snapshots[0].snapshot_id
    bucket = {"partition_id": partition_id, "bucket_id": 0}
    metadata = pb.GetKvSnapshotMetadataRequest(
        table_id=found.table_id, snapshot_id=snapshot_id, **bucket
    )
    calls.ask("of a partition", apis.GET_KV_SNAPSHOT_METADATA, metadata)
    lease = f"{context.database}-partition"
    acquire = pb.AcquireKvSnapshotLeaseRequest(lease_id=lease, lease_duration_ms=_MINUTE_MS)
    table = acquire.snapshots_to_lease.add(table_id=found.table_id)
    table.bucket_snapshots.add(snapshot_id=snapshot_id, **bucket)
    calls.ask("of a partition", apis.ACQUIRE_KV_SNAPSHOT_LEASE, acquire)
    release = pb.ReleaseKvSnapshotLeaseRequest(lease_id=lease)
    release.buckets_to_release.add(table_id=found.table_id, **bucket)
    calls.ask("of a partition", apis.RELEASE_KV_SNAPSHOT_LEASE, release)


@scenario
def fields_of_partition_snapshots(context: ScenarioContext) -> None:
    """KV snapshots and lake snapshots of a partitioned table."""
    columns = {"id": t.BIGINT.not_null(), "day": t.STRING.not_null()}
    path = context.create_partitioned("t", columns, "day", key=("id", "day"))
    admin = context.client.admin
    table = table_path(path)
    with raw_calls(context) as calls:

        def newest(question: str, **more: str) -> None:
            request = pb.GetLatestKvSnapshotsRequest(table_path=table, **more)
            calls.ask(question, apis.GET_LATEST_KV_SNAPSHOTS, request)

        admin.create_partition(path, {"day": "a"})
        (part,) = admin.partitions(path)
        newest("of a partition", partition_name="a")
        _keyed_rows(calls, admin.table_info(path), part.partition_id)
        _partition_snapshot(context, calls, path, part.partition_id)
        newest("of a missing partition", partition_name="c")
        newest("of a partitioned table")
        claim = context.claim(path)
        request = pb.PrepareLakeTableSnapshotRequest()
        offsets = request.bucket_offsets.add(table_id=claim.table_id, table_path=table)
        offsets.bucket_offsets.add(partition_id=part.partition_id, bucket_id=0, log_end_offset=0)
        prepared = calls.ask("of a partition", apis.PREPARE_LAKE_TABLE_SNAPSHOT, request)
        file = prepared.prepare_lake_table_resp[0].lake_table_offsets_path
        content = Path(urlsplit(file).path).read_bytes()
        calls.json_file("the offsets of a partition's lake snapshot", content)
        commit = pb.CommitLakeTableSnapshotRequest()
        commit.lake_table_snapshot_metadata.add(
            table_id=claim.table_id,
            snapshot_id=1,
            tiered_bucket_offsets_file_path=file,
            readable_bucket_offsets_file_path=file,
            earliest_snapshot_id_to_keep=-1,
        )
        calls.ask("of a partition", apis.COMMIT_LAKE_TABLE_SNAPSHOT, commit)
        snapshot = pb.GetLakeSnapshotRequest(table_path=table)
        calls.ask("of a partition", apis.GET_LAKE_SNAPSHOT, snapshot)
