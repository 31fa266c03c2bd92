"""Rows that a bucket with a primary key begins with in a round, from a real server."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from sluice.client import Client, ClientLogSource, connect
from sluice.client.connection.remote_files import RemoteFiles
from sluice.client.kv.snapshot_files import snapshot_files, with_sizes
from sluice.config import ServerConfig
from sluice.errors import ConfigurationError, KvSnapshotNotExist, StorageError
from sluice.model import TableBucket, TableInfo
from sluice.rounds.copy.split import copy_split
from sluice.rounds.values.types import KeyedSplitOptions, Split, SplitResult, StartMode
from sluice.server.cluster import EmbeddedCluster
from sluice.storage import file_system
from tests.support.harness.findings import finding
from tests.support.models.memory_lake import MemoryLakeTable
from tests.support.tables.keyed_orders import PATH, create, keys, rows


class Site:
    """A table with one bucket, on a server that takes KV snapshots when asked to."""

    def __init__(self, cluster: EmbeddedCluster, client: Client, folder: Path) -> None:
        self.cluster, self.client, self.folder = cluster, client, folder
        client.admin.create_database(PATH.database)
        create(client)
        self.info: TableInfo = client.admin.table_info(PATH)
        self.bucket = TableBucket(self.info.table_id, None, 0)
        self.source = ClientLogSource(cluster.address, PATH, self.info)

    def upsert(self, table: pa.Table) -> None:
        with self.client.kv_writer(PATH) as writer:
            writer.upsert(table)

    def split(self, keyed: KeyedSplitOptions, start: int = 0) -> Split:
        end = self.client.admin.list_offsets(PATH)[0]
        return Split(self.bucket, (), start, max(start, end), keyed=keyed)

    def copied(self, split: Split) -> tuple[SplitResult, dict[int, int]]:
        """What a split brings: its result, and n by id."""
        table = MemoryLakeTable("mem:/t")
        source = pickle.loads(pickle.dumps(self.source))
        result = copy_split(split, source, table.writer_factory("w", [split]))
        assert isinstance(result, SplitResult), result
        found = [row for file in table.keyed.values() for _, row in file.rows]
        return result, {row["id"]: row["n"] for row in found}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    config = ServerConfig(
        data_dir=str(tmp_path / "data"), listen="grpc://127.0.0.1:0", kv_snapshot_interval_ms=0
    )
    with EmbeddedCluster(config) as cluster, connect(cluster.address) as client:
        yield Site(cluster, client, tmp_path)


def snapshot_of(site: Site) -> KeyedSplitOptions:
    number = site.cluster.take_kv_snapshots(PATH)[site.bucket]
    return KeyedSplitOptions(
        ("id",), StartMode.KV_SNAPSHOT, number, spill_dir=str(site.folder / "spill")
    )


def test_a_snapshot_and_the_log_behind_it(site: Site) -> None:
    site.upsert(rows((1, "a", 1), (2, "b", 2), (3, "c", 3)))
    keyed = snapshot_of(site)
    site.upsert(rows((2, "b", 22), (4, "d", 4)))
    with site.client.kv_writer(PATH) as writer:
        writer.delete(keys(3))
    result, found = site.copied(site.split(keyed, 3))
    assert found == {1: 1, 2: 22, 4: 4}
    assert (result.rows, result.deleted.keys, result.next_offset, result.notes) == (3, 0, 7, ())
    with finding():
        assert list((site.folder / "spill").iterdir()) == []


def test_a_scan_where_there_is_no_snapshot(site: Site) -> None:
    site.upsert(rows((1, "a", 1), (2, "b", 2)))
    split = site.split(KeyedSplitOptions(("id",), StartMode.SCAN), 2)
    site.upsert(rows((2, "b", 22), (4, "d", 4)))  # after the plan, before the scan
    result, found = site.copied(split)
    assert found == {1: 1, 2: 22, 4: 4}
    assert result.next_offset == site.client.admin.list_offsets(PATH)[0]
    assert result.notes == (f"bucket {site.bucket.name} was scanned, as it has no KV snapshot",)


def test_a_scan_whose_snapshot_is_too_old(site: Site) -> None:
    site.upsert(rows((1, "a", 1)))
    keyed = KeyedSplitOptions(("id",), StartMode.SCAN, scan_reason="its newest KV snapshot is old")
    result, found = site.copied(site.split(keyed, 1))
    assert found == {1: 1}
    assert result.notes == (
        f"bucket {site.bucket.name} was scanned, as its newest KV snapshot is old",
    )


def test_a_scan_of_a_bucket_whose_rows_are_all_deleted(site: Site) -> None:
    site.upsert(rows((1, "a", 1)))
    with site.client.kv_writer(PATH) as writer:
        writer.delete(keys(1))
    result, found = site.copied(site.split(KeyedSplitOptions(("id",), StartMode.SCAN), 2))
    assert (found, result.files, result.next_offset) == ({}, (), 2)


def test_a_scan_where_a_file_of_the_snapshot_cannot_be_read(site: Site) -> None:
    site.upsert(rows((1, "a", 1), (2, "b", 2)))
    keyed = snapshot_of(site)
    site.upsert(rows((2, "b", 22)))
    assert keyed.snapshot_id is not None
    found = snapshot_files(site.client._connection, "it", site.bucket, keyed.snapshot_id)
    for file in found.files:
        if file.local_name.endswith(".sst"):
            Path(file_system(file.uri, {})[1]).write_bytes(b"0123456789")
    result, copied = site.copied(site.split(keyed, 2))
    assert copied == {1: 1, 2: 22}
    assert "was scanned, as its KV snapshot could not be read" in result.notes[0]
    assert "has 10 bytes instead of" in result.notes[0]


def test_a_scan_where_the_files_of_the_snapshot_are_not_seen_from_here(site: Site) -> None:
    """As on a machine that does not mount the server's folder."""
    site.upsert(rows((1, "a", 1), (2, "b", 2)))
    keyed = snapshot_of(site)
    site.upsert(rows((2, "b", 22)))
    assert keyed.snapshot_id is not None
    found = snapshot_files(site.client._connection, "it", site.bucket, keyed.snapshot_id)
    for file in found.files:
        if file.local_name.endswith(".sst"):
            Path(file_system(file.uri, {})[1]).unlink()
    result, copied = site.copied(site.split(keyed, 2))
    assert copied == {1: 1, 2: 22}
    assert "was scanned, as its KV snapshot could not be read" in result.notes[0]
    assert "mount the cluster's storage here" in result.notes[0]


def test_a_scan_where_this_machine_lacks_what_the_storage_needs(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.upsert(rows((1, "a", 1)))
    keyed = snapshot_of(site)
    assert keyed.snapshot_id is not None
    found = snapshot_files(site.client._connection, "it", site.bucket, keyed.snapshot_id)

    def refuse(*_: object, **__: object) -> None:
        raise ConfigurationError("hdfs:// needs Hadoop's library")

    monkeypatch.setattr("sluice.client.connection.remote_files.file_system", refuse)
    with pytest.raises(StorageError, match="cannot be read: hdfs:// needs Hadoop's library"):
        with_sizes(found, keyed.snapshot_id, RemoteFiles(site.client._connection))


def test_a_snapshot_that_is_gone_is_an_error(site: Site) -> None:
    site.upsert(rows((1, "a", 1)))
    keyed = KeyedSplitOptions(("id",), StartMode.KV_SNAPSHOT, 99)
    with pytest.raises(KvSnapshotNotExist), site.source.rows(site.split(keyed)):
        pass


def test_files_that_a_killed_process_left_are_removed_by_the_next_one(site: Site) -> None:
    site.upsert(rows((1, "a", 1)))
    split = site.split(snapshot_of(site), 1)
    program = (
        "import os, pickle, sys\n"
        "source, split = pickle.load(sys.stdin.buffer)\n"
        "with source.rows(split): os.kill(os.getpid(), 9)\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", program],
        input=pickle.dumps((site.source, split)),
        timeout=240,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert list((site.folder / "spill").rglob("*.sst"))
    assert site.copied(split)[1] == {1: 1}
    with finding():
        assert list((site.folder / "spill").iterdir()) == []
