"""What the page reads of one table: definition, buckets and lake snapshots."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from sluice.errors import TableNotExist
from sluice.masking import is_secret_name, mask
from sluice.model import TableBucket, TablePath
from sluice.page.models import (
    Column,
    LakeSnapshot,
    LakeSnapshots,
    Split,
    Splits,
    TableDetails,
)
from sluice.page.ports import AtPlace
from sluice.page.tables import judge, table_model
from sluice.statuses import freshness_ms

table_reads = APIRouter(prefix="/tables/{database}/{table}")
SPLITS_MAX = 1_000
_SNAPSHOTS_NOTE = (
    "Snapshots that rounds of Sluice committed, as far back as the history of rounds goes. Those of"
    " other writers, and expired ones, are in the catalog of the lake."
)


@table_reads.get("")
def details(place: AtPlace, database: str, table: str) -> TableDetails:
    """One table: its status, facts of its definition, and links."""
    path = TablePath(database, table)
    seen = place.reader.seen.tables.get(path)
    info = place.client.admin.table_info(path)
    if seen is None:
        raise TableNotExist(f"table {path} is not tiered, or was not read yet")
    now_ms = place.clock.now_ms()
    descriptor = info.descriptor
    return TableDetails(
        table=table_model(judge(seen, now_ms)),
        has_primary_key=info.has_primary_key,
        primary_key=list(info.schema.primary_key),
        partition_keys=list(descriptor.partition_keys),
        bucket_count=info.bucket_count,
        bucket_keys=list(descriptor.bucket_keys),
        freshness_ms=freshness_ms(descriptor.properties),
        created_ms=info.created_ms,
        columns=[
            Column(name=one.name, type=str(one.data_type), comment=one.comment)
            for one in info.schema.columns
        ],
        properties={
            name: "***" if is_secret_name(name) else mask(value)
            for name, value in descriptor.properties.items()
        },
        links=place.table_links(path),
    )


@table_reads.get("/splits")
def splits(
    place: AtPlace,
    database: str,
    table: str,
    offset: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=SPLITS_MAX)] = 100,
) -> Splits:
    """The buckets of a table, the largest lag first."""
    path = TablePath(database, table)
    info = place.client.admin.table_info(path)
    ends = place.client.admin.table_offsets(info)
    snapshot = place.client.admin.lake_snapshot(path)
    tiered = {} if snapshot is None else snapshot.offsets
    names: dict[int | None, str] = {}
    if info.is_partitioned:
        names = {p.partition_id: p.name for p in place.client.admin.partitions_of(info)}

    def split(bucket: TableBucket, end: int) -> Split:
        at = tiered.get(bucket)
        return Split(
            partition=names.get(bucket.partition_id),
            bucket=bucket.bucket,
            tiered_offset=at,
            end_offset=end,
            lag_rows=max(end - (at or 0), 0),
        )

    found = [split(bucket, end) for bucket, end in ends.items()]
    found.sort(key=lambda one: (-(one.lag_rows or 0), one.partition or "", one.bucket))
    return Splits(
        now_ms=place.clock.now_ms(),
        lake_snapshot_id=None if snapshot is None else str(snapshot.snapshot_id),
        total=len(found),
        offset=offset,
        splits=found[offset : offset + limit],
    )


@table_reads.get("/snapshots")
def snapshots(place: AtPlace, database: str, table: str) -> LakeSnapshots:
    """The lake snapshots that rounds committed, the newest first."""
    path = TablePath(database, table)
    registered = place.client.admin.lake_snapshot(path)
    registered_id = None if registered is None else str(registered.snapshot_id)
    found = []
    for each in place.client.statuses.history(path, 100):
        if each.lake_snapshot_id is None:
            continue
        found.append(
            LakeSnapshot(
                lake_snapshot_id=str(each.lake_snapshot_id),
                committed_ms=each.ended_ms,
                round_number=each.round_number,
                rows_written=each.rows_written,
                keys_deleted=each.keys_deleted,
                files_written=each.files_written,
                bytes_written=each.bytes_written,
                is_registered=str(each.lake_snapshot_id) == registered_id,
            )
        )
    return LakeSnapshots(
        now_ms=place.clock.now_ms(),
        registered_snapshot_id=registered_id,
        snapshots=found,
        note=_SNAPSHOTS_NOTE,
    )
