"""A table with a primary key behind a real server, called by raw messages."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from rocksdict import AccessType, Options, Rdict

from sluice.formats.keys.primary_keys import primary_keys
from sluice.formats.kv.kv_batch import build_kv_batch
from sluice.formats.kv.snapshot_metadata import kv_snapshot_from_json
from sluice.formats.kv.value_batch import decode_values, values_of
from sluice.formats.log.batch import iter_batches
from sluice.formats.log.log_format import LogFormat
from sluice.formats.rows.arrays import encode_rows
from sluice.formats.types.descriptors import descriptor_from_json, schema_from_json
from sluice.formats.types.types import arrow_schema
from sluice.model import Column, Schema, TableDescriptor, TableInfo, TablePath
from sluice.model.types import BIGINT, INT, STRING
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.error_codes import raise_in_body
from tests.unit.server.support import Caller, to_pb

KEYED = Schema(
    (
        Column("id", replace(BIGINT, nullable=False), 0),
        Column("text", STRING, 1),
        Column("n", INT, 2),
    ),
    ("id",),
    2,
)
KV_PATH = TablePath("db", "kv")
SYMBOLS = {0: "+A", 1: "+I", 2: "-U", 3: "+U", 4: "-D"}

Row = tuple[Any, ...]


class KvCaller:
    """One table; rows are tuples in the order of its columns, a delete is a key in a tuple."""

    def __init__(
        self,
        caller: Caller,
        path: TablePath = KV_PATH,
        *,
        create: bool = True,
        schema: Schema = KEYED,
        **changes: Any,
    ) -> None:
        self.caller = caller
        self.path = path
        if create:
            caller.create_table(path, TableDescriptor(schema), **changes)
        self.refresh()

    def refresh(self) -> None:
        answer = self.caller.table_info(self.path)
        descriptor = descriptor_from_json(answer.table_json)
        self.info = TableInfo(self.path, answer.table_id, answer.schema_id, descriptor, 0, 0)
        self.table_id = answer.table_id
        self.schemas = {answer.schema_id: descriptor.schema}
        for schema_id in range(1, answer.schema_id):
            request = pb.GetTableSchemaRequest(table_path=to_pb(self.path), schema_id=schema_id)
            content = self.caller.call(apis.GET_TABLE_SCHEMA, request).schema_json
            self.schemas[schema_id] = schema_from_json(content)

    # -- bytes

    def batch_of(self, rows: Sequence[Row]) -> pa.RecordBatch:
        """Rows as columns of the newest schema; what a short row lacks is null."""
        schema = arrow_schema(self.info.schema)
        padded = [row + (None,) * (len(schema) - len(row)) for row in rows]
        columns = list(zip(*padded, strict=True)) or [() for _ in schema]
        # nulls may stand for columns of a key's row that nobody looks at
        loose = pa.schema([field.with_nullable(True) for field in schema])
        arrays = [pa.array(list(c), f.type) for c, f in zip(columns, loose, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=loose)

    def keys(self, rows: Sequence[Row]) -> list[bytes]:
        return primary_keys(self.batch_of(rows), self.info).to_pylist()

    def records(
        self,
        rows: Sequence[Row],
        deletes: Sequence[bool] = (),
        *,
        writer_id: int = -1,
        sequence: int = -1,
        schema_id: int | None = None,
    ) -> bytes:
        """A KV batch. ``deletes`` says for each row whether it is deleted by its key."""
        batch = self.batch_of(rows)
        types = [column.data_type for column in self.info.schema.columns]
        row_format = self.info.descriptor.properties.get("table.kv.format", "COMPACTED")
        encoded = encode_rows(batch, types, row_format)
        if any(deletes):
            mask = [not gone for gone in deletes]
            encoded = pa.array(
                [r if keep else None for r, keep in zip(encoded.to_pylist(), mask, strict=True)],
                pa.binary(),
            )
        return build_kv_batch(
            primary_keys(batch, self.info),
            encoded,
            self.info.schema_id if schema_id is None else schema_id,
            writer_id,
            sequence,
        )

    # -- calls

    def send(
        self,
        records: bytes,
        bucket: int = 0,
        partition_id: int | None = None,
        *,
        targets: Sequence[int] = (),
        agg_mode: int | None = None,
        acks: int = -1,
    ) -> int:
        request = pb.PutKvRequest(
            acks=acks,
            table_id=self.table_id,
            timeout_ms=10_000,
            target_columns=targets,
            agg_mode=agg_mode,
        )
        request.buckets_req.add(bucket_id=bucket, partition_id=partition_id, records=records)
        (answer,) = self.caller.call(apis.PUT_KV, request).buckets_resp
        raise_in_body(answer)
        return int(answer.log_end_offset)

    def put(self, *rows: Row, bucket: int = 0, targets: Sequence[int] = ()) -> int:
        return self.send(self.records(rows), bucket, targets=targets)

    def delete(self, *rows: Row, bucket: int = 0, targets: Sequence[int] = ()) -> int:
        return self.send(self.records(rows, [True] * len(rows)), bucket, targets=targets)

    def lookup(self, *keys: Row, bucket: int = 0) -> list[Row | None]:
        request = pb.LookupRequest(table_id=self.table_id)
        request.buckets_req.add(bucket_id=bucket, keys=self.keys(keys))
        (answer,) = self.caller.call(apis.LOOKUP, request).buckets_resp
        raise_in_body(answer)
        values = [v.values if v.HasField("values") else None for v in answer.values]
        return self.rows(pa.array(values, pa.binary()))

    def prefix_lookup(self, *prefixes: bytes, bucket: int = 0) -> list[list[Row | None]]:
        request = pb.PrefixLookupRequest(table_id=self.table_id)
        request.buckets_req.add(bucket_id=bucket, keys=prefixes)
        (answer,) = self.caller.call(apis.PREFIX_LOOKUP, request).buckets_resp
        raise_in_body(answer)
        return [self.rows(pa.array(v.values, pa.binary())) for v in answer.value_lists]

    def scan(self, limit: int = 1_000_000, bucket: int = 0) -> list[Row | None]:
        """The first rows, in the order of their keys."""
        request = pb.LimitScanRequest(table_id=self.table_id, bucket_id=bucket, limit=limit)
        answer = self.caller.call(apis.LIMIT_SCAN, request)
        raise_in_body(answer)
        assert not answer.is_log_table
        return self.rows(values_of(answer.records))

    def table(self, bucket: int = 0) -> dict[Any, Row]:
        """All rows by their first column."""
        return {row[0]: row for row in self.scan(bucket=bucket) if row is not None}

    def rows(self, values: pa.Array) -> list[Row | None]:
        row_format = self.info.descriptor.properties.get("table.kv.format", "COMPACTED")
        batch = decode_values(values, self.schemas, self.info.schema, row_format)
        there = values.is_valid().to_pylist()
        rows = [tuple(row.values()) for row in batch.to_pylist()]
        return [row if is_there else None for row, is_there in zip(rows, there, strict=True)]

    def changelog(self, bucket: int = 0, offset: int = -2) -> list[tuple[str, Row]]:
        """Every change: its kind, and its row in the newest schema."""
        return [change for batch in self.batches(bucket, offset) for change in batch]

    def batches(self, bucket: int = 0, offset: int = -2) -> list[list[tuple[str, Row]]]:
        """The changes of each batch of the log."""
        found: list[list[tuple[str, Row]]] = []
        log_format = LogFormat.of(self.info.descriptor.properties)
        while records := self.caller.fetch(self.table_id, offset, bucket).records:
            for header, view in iter_batches(records):
                offset = header.next_offset
                schema = self.schemas[header.schema_id]
                batch, kinds = log_format.decode(view, header, schema)
                rows = [tuple(row.values()) for row in batch.to_pylist()]
                found.append([(SYMBOLS[k], row) for k, row in zip(kinds or b"", rows, strict=True)])
        return found

    def end(self, bucket: int = 0) -> int:
        return self.caller.offsets(self.table_id, buckets=(bucket,))[0]

    def snapshots(self) -> dict[int, tuple[int, int]]:
        """Bucket -> newest snapshot id and its log offset, where there is one."""
        request = pb.GetLatestKvSnapshotsRequest(table_path=to_pb(self.path))
        answer = self.caller.call(apis.GET_LATEST_KV_SNAPSHOTS, request)
        return {
            each.bucket_id: (each.snapshot_id, each.log_offset)
            for each in answer.latest_snapshots
            if each.HasField("snapshot_id")
        }


def snapshot_rows(kv: KvCaller, snapshot_id: int, folder: Path, bucket: int = 0) -> dict[Any, Row]:
    """The rows of a snapshot, as a client of Fluss reads them: the default column family only."""
    request = pb.GetKvSnapshotMetadataRequest(
        table_id=kv.table_id, bucket_id=bucket, snapshot_id=snapshot_id
    )
    files = kv.caller.call(apis.GET_KV_SNAPSHOT_METADATA, request).snapshot_files
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in files:
        shutil.copyfile(urlsplit(file.remote_path).path, folder / file.local_file_name)
    db = Rdict(str(folder), Options(raw_mode=True), access_type=AccessType.read_only())
    try:
        rows = kv.rows(pa.array(list(db.values()), pa.binary()))
    finally:
        db.close()
    return {row[0]: row for row in rows if row is not None}


def row_count(kv: KvCaller, snapshot_id: int, bucket: int = 0) -> int | None:
    """How many rows a snapshot says that it holds."""
    request = pb.GetKvSnapshotMetadataRequest(
        table_id=kv.table_id, bucket_id=bucket, snapshot_id=snapshot_id
    )
    files = kv.caller.call(apis.GET_KV_SNAPSHOT_METADATA, request).snapshot_files
    own = next(f.remote_path for f in files if f"/snap-{snapshot_id}/" in f.remote_path)
    content = Path(urlsplit(own).path).with_name("_METADATA").read_bytes()
    return kv_snapshot_from_json(content).row_count


def replayed(
    changes: Sequence[tuple[str, Row]], before: Mapping[Any, Row] | None = None
) -> Mapping[Any, Row]:
    """What a reader of a changelog holds in the end, by the first column."""
    rows: dict[Any, Row] = dict(before or {})
    for kind, row in changes:
        if kind in ("+I", "+U", "+A"):
            rows[row[0]] = row
        elif kind == "-D":
            del rows[row[0]]
        else:
            assert rows[row[0]] == row
    return rows
