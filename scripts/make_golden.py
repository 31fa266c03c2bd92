"""Generates tests/golden/data: bytes of Apache Fluss and of its official client.

    .venv/bin/python scripts/make_golden.py            (two to five minutes)

Needed only if tests/golden/tables.py or the version of Fluss changes. Values are the same in each
run. The server's commit timestamps, writer ids and uuids differ. The files are:

    log/          log batches that pyfluss wrote, as the tablet server keeps them in its segments;
                  one projected by the server
    changelog/    changelogs of upserts and deletes, in each compression and log format
    kv/           PutKv batches that pyfluss sent; the server's answers to LimitScan and Lookup
    keys.json     keys and buckets that pyfluss chose, by lake format
    kv_snapshot/  a KV snapshot's folder with the server's answers about it
    *.arrow       rows that pyfluss reads from these tables
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from sluice.client import connect  # noqa: E402
from sluice.formats.kv.kv_batch import parse_kv_batch  # noqa: E402
from sluice.formats.log.batch import iter_batches  # noqa: E402
from sluice.model import Schema, TableDescriptor, TablePath  # noqa: E402
from sluice.wire import apis  # noqa: E402
from sluice.wire import fluss_api_pb2 as pb  # noqa: E402
from tests.golden import tables  # noqa: E402
from tests.support.clients.official_client import OfficialClient  # noqa: E402
from tests.support.fluss.fluss_jars import VERSION  # noqa: E402
from tests.support.fluss.native_call import NativeCall  # noqa: E402
from tests.support.fluss.real_fluss import RealFluss  # noqa: E402
from tests.support.fluss.recorder import Recorder  # noqa: E402
from tests.support.fluss.table_creation import create_table  # noqa: E402

DATA = ROOT / "tests" / "golden" / "data"
DATABASE = "golden"
PROJECTED = (0, 4, 9, 12)
_FETCH_BYTES = 8 << 20
_SNAPSHOT_WAIT_S = 60


class Maker:
    """An Apache Fluss cluster, its official client behind a recorder, and raw calls."""

    def __init__(self, fluss: RealFluss, recorder: Recorder) -> None:
        self.fluss = fluss
        self.recorder = recorder
        self.client = OfficialClient(recorder.bootstrap)
        self.coordinator = NativeCall(fluss.coordinator_port)
        self.tablet = NativeCall(fluss.tablet_port)
        request = pb.CreateDatabaseRequest(database_name=DATABASE, ignore_if_exists=True)
        self.coordinator.call(apis.CREATE_DATABASE, request)

    def create(self, name: str, descriptor: TableDescriptor) -> int:
        """Creates a table, waits until its leaders are known, and returns its id."""
        path = TablePath(DATABASE, name)
        with connect(self.fluss.bootstrap) as client:
            create_table(client, path, descriptor)
            return client.admin.table_info(path).table_id

    def drop(self, name: str) -> None:
        path = pb.PbTablePath(database_name=DATABASE, table_name=name)
        request = pb.DropTableRequest(table_path=path, ignore_if_not_exists=False)
        self.coordinator.call(apis.DROP_TABLE, request)

    def fetch(self, table_id: int, projected: tuple[int, ...] = ()) -> bytes:
        """Returns the complete log of bucket 0."""
        bucket = pb.PbFetchLogReqForBucket(
            bucket_id=0, fetch_offset=0, max_fetch_bytes=_FETCH_BYTES
        )
        table = pb.PbFetchLogReqForTable(
            table_id=table_id,
            projection_pushdown_enabled=bool(projected),
            projected_fields=projected,
            buckets_req=[bucket],
        )
        request = pb.FetchLogRequest(
            follower_server_id=-1, max_bytes=_FETCH_BYTES, tables_req=[table]
        )
        answer = self.tablet.call(apis.FETCH_LOG, request).tables_resp[0].buckets_resp[0]
        assert not answer.error_code, answer
        return bytes(answer.records)

    def segment(self, name: str, table_id: int) -> bytes:
        """Returns the log of bucket 0 from the server's data directory."""
        folder = self.fluss.data_dir / DATABASE / f"{name}-{table_id}" / "log-0"
        [segment] = folder.glob("*.log")
        return segment.read_bytes()


def log_tables(maker: Maker) -> None:
    """Each type, with nulls and without, in each compression, as Arrow and as Python rows."""
    for compression in tables.COMPRESSIONS:
        for label, schema in (("nullable", tables.NULLABLE), ("not_null", tables.NOT_NULL)):
            name = f"{label}_{compression.lower()}"
            table_id = maker.create(
                name,
                TableDescriptor(
                    schema,
                    bucket_count=1,
                    properties={"table.log.arrow.compression.type": compression},
                ),
            )
            path = f"{DATABASE}.{name}"
            written = tables.rows(schema, nulls=label == "nullable")
            *_, read = maker.client.run(
                [
                    {"op": "append", "path": path, "rows": tables.zoned(written, schema)},
                    {
                        "op": "append_rows",
                        "path": path,
                        "rows": tables.zoned(tables.for_python(written), schema),
                    },
                    {"op": "scan", "path": path},
                ]
            )
            stored = maker.segment(name, table_id)
            assert stored == maker.fetch(table_id), "the server sends what it stores"
            save(f"log/{name}.log", stored)
            save_arrow(f"log/{name}.arrow", read)
            if name == "nullable_zstd":
                save("log/projected.log", maker.fetch(table_id, PROJECTED))


def keyed_tables(maker: Maker) -> None:
    """Upserts, updates and deletes; the server writes the changelog."""
    cases = [("ARROW", compression) for compression in tables.COMPRESSIONS]
    for log_format, compression in [*cases, ("COMPACTED", "NONE")]:
        name = f"keyed_{log_format.lower()}_{compression.lower()}"
        properties = {
            "table.log.format": log_format,
            "table.log.arrow.compression.type": compression,
        }
        descriptor = TableDescriptor(tables.KEYED, bucket_count=1, properties=properties)
        table_id = maker.create(name, descriptor)
        path = f"{DATABASE}.{name}"
        rows = tables.zoned(tables.for_python(tables.rows(tables.KEYED, nulls=True)), tables.KEYED)
        keys = rows.select(tables.KEYED.primary_key)
        unknown = pa.table({"id": pa.array([77], pa.int32()), "name": ["nobody"]})
        maker.recorder.clear()
        maker.client.run(
            [
                {"op": "upsert", "path": path, "rows": rows},
                {"op": "upsert", "path": path, "rows": rows.slice(1, 2)},
                {"op": "delete", "path": path, "rows": unknown},
                {"op": "delete", "path": path, "rows": keys.slice(0, 1)},
            ]
        )
        save(f"changelog/{name}.log", maker.segment(name, table_id))
        if log_format == "ARROW":  # pyfluss reads no other
            save_arrow(f"changelog/{name}.arrow", maker.client.scan(path))
        if name == "keyed_arrow_zstd":
            limited, _ = maker.client.run(
                [
                    {"op": "limit_scan", "path": path, "limit": 100},
                    {"op": "lookup", "path": path, "rows": keys.slice(1, 3)},
                ]
            )
            save_kv(maker, limited)
            save_snapshot(maker, name, table_id)


def save_kv(maker: Maker, limited: pa.Table) -> None:
    """Requests and answers of the recorded calls of one table."""
    puts = maker.recorder.calls(apis.PUT_KV)
    for number, (request, _) in enumerate(puts):
        save(f"kv/put_{number}.kv", request.buckets_req[0].records)
    [(_, scanned)] = maker.recorder.calls(apis.LIMIT_SCAN)
    save("kv/limit_scan.values", scanned.records)
    save_arrow("kv/limit_scan.arrow", limited)
    found = []
    for request, answer in maker.recorder.calls(apis.LOOKUP):
        pairs = zip(request.buckets_req, answer.buckets_resp, strict=True)
        for asked, answered in pairs:
            for key, value in zip(asked.keys, answered.values, strict=True):
                found.append({"key": key.hex(), "value": value.values.hex()})
    save("kv/lookup.json", as_json(found))


def save_snapshot(maker: Maker, name: str, table_id: int) -> None:
    """The newest KV snapshot of bucket 0: its files, and what the server says about it."""
    path = pb.PbTablePath(database_name=DATABASE, table_name=name)
    end = len(list(iter_batches(maker.segment(name, table_id))))
    assert end, "the table has a changelog"
    deadline = time.monotonic() + _SNAPSHOT_WAIT_S
    while True:
        latest = maker.coordinator.call(
            apis.GET_LATEST_KV_SNAPSHOTS, pb.GetLatestKvSnapshotsRequest(table_path=path)
        )
        [snapshot] = latest.latest_snapshots
        if snapshot.HasField("snapshot_id") and snapshot.log_offset >= log_end(maker, table_id):
            break
        assert time.monotonic() < deadline, f"no KV snapshot of {name}: {latest}"
        time.sleep(0.2)
    metadata = maker.coordinator.call(
        apis.GET_KV_SNAPSHOT_METADATA,
        pb.GetKvSnapshotMetadataRequest(
            table_id=table_id, bucket_id=0, snapshot_id=snapshot.snapshot_id
        ),
    )
    bucket = maker.fluss.remote_dir / "kv" / DATABASE / f"{name}-{table_id}" / "0"
    target = DATA / "kv_snapshot"
    snapshot_folder = f"snap-{snapshot.snapshot_id}"
    shutil.copytree(bucket / snapshot_folder, target / snapshot_folder)
    shutil.copytree(bucket / "shared", target / "shared")
    save("kv_snapshot/latest.pb", latest.SerializeToString())
    save("kv_snapshot/metadata.pb", metadata.SerializeToString())


def log_end(maker: Maker, table_id: int) -> int:
    *_, (header, _) = iter_batches(maker.fetch(table_id))
    return header.next_offset


def keys_and_buckets(maker: Maker) -> list[dict[str, Any]]:
    """For each kind of key and lake format: the key bytes that pyfluss sends, and to which bucket.

    Upserts show keys and buckets of the values that pyfluss takes as Python; appended Arrow shows
    the buckets of all values.
    """
    found = []
    for lake_format in tables.LAKE_FORMATS:
        for columns in tables.key_kinds(lake_format):
            label = f"{lake_format or 'none'}_{'_'.join(columns)}"
            try:
                found.append(key_case(maker, label, lake_format, columns))
            except AssertionError as error:
                print(f"pyfluss failed, trying once more: {str(error)[-120:]}")
                found.append(key_case(maker, f"{label}_again", lake_format, columns))
    return found


def key_case(
    maker: Maker, label: str, lake_format: str | None, columns: tuple[str, ...]
) -> dict[str, Any]:
    schema, rows = tables.key_rows(columns)
    properties = {"table.datalake.format": lake_format} if lake_format else {}
    log_schema = Schema(schema.columns)
    maker.create(
        f"log_{label}",
        TableDescriptor(
            log_schema,
            bucket_keys=columns,
            bucket_count=tables.BUCKETS,
            properties=properties,
        ),
    )
    keyed = TableDescriptor(schema, bucket_count=tables.BUCKETS, properties=properties)
    maker.create(f"keyed_{label}", keyed)
    maker.recorder.clear()
    log_path, keyed_path = f"{DATABASE}.log_{label}", f"{DATABASE}.keyed_{label}"
    python = tables.zoned(tables.for_python(rows), schema)
    _, read, _ = maker.client.run(
        [
            {"op": "append", "path": log_path, "rows": tables.zoned(rows, log_schema)},
            {"op": "scan", "path": log_path},
            {"op": "upsert", "path": keyed_path, "rows": python},
        ],
        timeout_s=30,
    )
    buckets = dict(zip(read["row"].to_pylist(), read["_bucket"].to_pylist(), strict=True))
    keys = sent_keys(maker)
    for name in (f"log_{label}", f"keyed_{label}"):
        maker.drop(name)
    return {
        "lake_format": lake_format,
        "columns": list(columns),
        "buckets": [buckets[row] for row in range(rows.num_rows)],
        "keys": keys,
    }


def sent_keys(maker: Maker) -> list[list[Any]]:
    """Returns [row number, key in hexadecimal, bucket] of the last upserts of pyfluss."""
    found = []
    for request, _ in maker.recorder.calls(apis.PUT_KV):
        for bucket in request.buckets_req:
            batch = parse_kv_batch(bucket.records)
            for key, row in zip(batch.keys.to_pylist(), batch.rows.to_pylist(), strict=True):
                assert row is not None
                found.append([row[1], key.hex(), bucket.bucket_id])  # after the null byte
    return sorted(found)


def save(name: str, content: bytes) -> None:
    target = DATA / name
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)


def save_arrow(name: str, table: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_table(table.combine_chunks())
    save(name, sink.getvalue().to_pybytes())


def as_json(value: list[Any]) -> bytes:
    """Returns JSON with one entry per line."""
    lines = ",\n".join(json.dumps(entry) for entry in value)
    return f"[\n{lines}\n]\n".encode()


def main() -> None:
    shutil.rmtree(DATA, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="golden-") as home:
        conf = {"kv.snapshot.interval": "1s"}
        with (
            RealFluss(Path(home), lake=False, conf=conf) as fluss,
            Recorder(fluss.coordinator_port, fluss.tablet_port) as recorder,
        ):
            maker = Maker(fluss, recorder)
            log_tables(maker)
            keyed_tables(maker)
            save("keys.json", as_json(keys_and_buckets(maker)))
    save("made_with.json", json.dumps({"fluss": VERSION, "pyfluss": "1.0.0"}).encode() + b"\n")
    size = sum(path.stat().st_size for path in DATA.rglob("*") if path.is_file())
    print(f"{DATA}: {size} bytes")


if __name__ == "__main__":
    main()
