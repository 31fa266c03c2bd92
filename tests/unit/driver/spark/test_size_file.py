"""The size file of a round: KV snapshots and scans, which no limit can cut."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fsspec import register_implementation
from fsspec.implementations.memory import MemoryFileSystem

from sluice.client import Client, connect
from sluice.client.kv.snapshot_files import snapshot_files
from sluice.config import ServerConfig
from sluice.driver.spark.size_file import copy_size, write_size
from sluice.model import BucketSnapshot, TableBucket
from sluice.rounds.records.copy_size import CopySize
from sluice.rounds.records.json_files import read_json
from sluice.rounds.values.types import KeyedSplitOptions, Split, SplitLimit, StartMode
from sluice.server.cluster import EmbeddedCluster
from sluice.storage import file_system
from tests.support.tables.keyed_orders import PATH, create, rows


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    config = ServerConfig(
        data_dir=str(tmp_path / "data"), listen="grpc://127.0.0.1:0", kv_snapshot_interval_ms=0
    )
    with EmbeddedCluster(config) as cluster, connect(cluster.address) as client:
        client.admin.create_database(PATH.database)
        create(client, bucket_count=2)
        with client.kv_writer(PATH) as writer:
            writer.upsert(rows(*((n, "a" * 100, n) for n in range(200))))
        cluster.take_kv_snapshots(PATH)
        yield client


def snapshots_of(client: Client) -> list[BucketSnapshot]:
    return list(client.leases.latest(PATH).snapshots.values())


def split_of(snapshot: BucketSnapshot) -> Split:
    keyed = KeyedSplitOptions(("id",), StartMode.KV_SNAPSHOT, snapshot.snapshot_id)
    return Split(snapshot.bucket, (), snapshot.log_offset, 1000, keyed=keyed)


def downloaded_bytes(client: Client, snapshot: BucketSnapshot) -> int:
    with client.kv_snapshot(PATH, snapshot.bucket, snapshot.snapshot_id) as reader:
        return reader.size_bytes


def test_the_bytes_of_the_snapshots_and_the_rows_of_scans_count(client: Client) -> None:
    found = snapshots_of(client)
    stored = sum(downloaded_bytes(client, snapshot) for snapshot in found)
    assert stored > 1000
    splits = [split_of(snapshot) for snapshot in found]
    keyed = splits[0].keyed
    assert keyed is not None
    of_log = [
        replace(splits[0], bucket=TableBucket(9, None, n), keyed=replace(keyed, start_mode=mode))
        for n, mode in enumerate((StartMode.FULL_LOG, StartMode.INCREMENTAL))
    ]
    of_log.append(replace(of_log[0], bucket=TableBucket(9, None, 5), keyed=None))
    assert copy_size(client, [*splits, *of_log]) == CopySize(stored, 0)
    scan = Split(
        TableBucket(9, None, 7), (), 70, 70, keyed=replace(keyed, start_mode=StartMode.SCAN)
    )
    assert copy_size(client, [*splits, scan]) == CopySize(stored, 70)


@pytest.mark.parametrize(
    ("rows", "round_s", "seconds"),
    [(59_000, 3600, 0), (600_000, 3600, 600), (10**9, 7200, 7200), (10**9, 30, 0)],
)
def test_logs_count_until_the_limit_of_the_round_cuts_them(
    client: Client, rows: int, round_s: int, seconds: float
) -> None:
    """A freshness of hours lets a round copy for hours."""
    limit = SplitLimit(0, round_s * 1000)
    splits = [
        Split(TableBucket(9, None, 0), (), -2, rows // 2, limit),
        Split(TableBucket(9, None, 1), (), 500, 500 + rows - rows // 2, limit),
    ]
    assert copy_size(client, splits) == CopySize(log_seconds=seconds)


def test_a_snapshot_whose_size_cannot_be_read_counts_as_a_scan(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    first, *others = snapshots_of(client)
    stored = sum(downloaded_bytes(client, snapshot) for snapshot in others)
    listed = snapshot_files(client._connection, "s", first.bucket, first.snapshot_id).files
    folders = {Path(file_system(file.uri, {})[1]).parent for file in listed}
    for folder in folders:
        (folder / "_METADATA").unlink(missing_ok=True)
    found = copy_size(client, [split_of(snapshot) for snapshot in (first, *others)])
    assert found == CopySize(stored, 1000)
    assert "the size of a KV snapshot cannot be read: " in caplog.text


def test_a_small_round_of_logs_writes_no_file(client: Client, tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/work/size-a.json"
    write_size(
        client, PATH, [Split(TableBucket(0, None, 0), (), 0, 100, SplitLimit(0, 10**9))], uri
    )
    assert read_json(uri) is None
    splits = [split_of(snapshot) for snapshot in snapshots_of(client)]
    write_size(client, PATH, splits, uri)
    assert CopySize.from_json(read_json(uri) or {}) == copy_size(client, splits)


@pytest.mark.parametrize("place", ["file://{folder}/file", "refusing://bucket"])
def test_a_folder_that_refuses_the_file_fails_no_round(
    client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    class Refusing(MemoryFileSystem):
        """As the clients of object stores do, it raises errors of its own."""

        def pipe_file(self, path: str, value: bytes, **_: object) -> None:
            raise RuntimeError(f"cannot store {len(value)} bytes in {path}")

    register_implementation("refusing", Refusing, clobber=True)
    (tmp_path / "file").touch()
    uri = f"{place.format(folder=tmp_path)}/size-a.json"
    write_size(client, PATH, [split_of(snapshot) for snapshot in snapshots_of(client)], uri)
    assert f"cannot write {uri}" in caplog.text
