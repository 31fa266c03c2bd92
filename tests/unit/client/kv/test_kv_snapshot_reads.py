"""KV snapshots of a real server, read as Arrow: whole, or not at all."""

from __future__ import annotations

import shutil
import struct
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from rocksdict import Options, Rdict

from sluice.client import Client, KvSnapshotReader, connect
from sluice.client.connection.remote_files import RemoteFiles
from sluice.client.kv.snapshot_files import SnapshotFile, SnapshotFiles, download, snapshot_files
from sluice.client.kv.sst_values import read_values
from sluice.config import ServerConfig
from sluice.errors import (
    CorruptMessage,
    CorruptRecord,
    InvalidConfig,
    KvSnapshotNotExist,
    NonPrimaryKeyTable,
    SchemaNotExist,
    StorageError,
    TableNotExist,
)
from sluice.formats.kv.snapshot_metadata import (
    KvFile,
    KvSnapshot,
    kv_snapshot_from_json,
    kv_snapshot_to_json,
)
from sluice.model import BucketSnapshot, Column, Schema, TableBucket, TableDescriptor
from sluice.model import types as t
from sluice.server.cluster import EmbeddedCluster
from sluice.storage import file_system
from tests.support.harness.findings import finding
from tests.support.tables.keyed_orders import KEYED, PATH, Row, create, keys, rows, tuples


class Place:
    """A server that takes snapshots when asked to, and a client."""

    def __init__(self, folder: Path) -> None:
        config = ServerConfig(
            data_dir=str(folder / "data"),
            listen="grpc://127.0.0.1:0",
            kv_snapshot_interval_ms=0,
            kv_snapshot_num_retained=1,
        )
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.cluster = EmbeddedCluster(config)
        self.client: Client = connect(self.cluster.start())
        self.client.admin.create_database(PATH.database)

    def snapshots(self) -> list[BucketSnapshot]:
        """New snapshots of all buckets that have changed; the newest of each."""
        self.cluster.take_kv_snapshots(PATH)
        latest = self.client.leases.latest(PATH).snapshots
        return [latest[bucket] for bucket in sorted(latest, key=lambda b: b.bucket)]

    def reader(self, snapshot: BucketSnapshot) -> KvSnapshotReader:
        return self.client.kv_snapshot(
            PATH, snapshot.bucket, snapshot.snapshot_id, folder=str(self.temporary)
        )

    def read(self, snapshot: BucketSnapshot) -> list[Row]:
        with self.reader(snapshot) as found:
            assert found.log_offset == snapshot.log_offset
            return [row for batch in found.batches() for row in tuples(batch)]

    def files(self, snapshot: BucketSnapshot) -> dict[str, Path]:
        """The snapshot's files by their RocksDB names."""
        found = snapshot_files(
            self.client._connection, "snapshot", snapshot.bucket, snapshot.snapshot_id
        )
        return {f.local_name: Path(file_system(f.uri, {})[1]) for f in found.files}

    def sst(self, snapshot: BucketSnapshot) -> Path:
        return next(p for name, p in self.files(snapshot).items() if name.endswith(".sst"))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.client.close()
    place.cluster.stop()
    with finding():
        assert list(place.temporary.iterdir()) == [], "readers leave nothing behind"


def put(place: Place, *data: pa.Table) -> None:
    with place.client.kv_writer(PATH) as writer:
        for table in data:
            writer.upsert(table)


def test_snapshots_hold_the_newest_rows_of_their_buckets(place: Place) -> None:
    create(place.client, bucket_count=3)
    expected: dict[int, Row] = {}
    for turn in range(4):  # each snapshot adds a file: old rows and deletes lie below new ones
        with place.client.kv_writer(PATH) as writer:
            changed = [(i, f"turn {turn}", i) for i in range(turn * 50, turn * 50 + 200)]
            writer.upsert(rows(*changed))
            writer.delete(keys(*range(turn * 50, turn * 50 + 200, 7)))
        expected |= {row[0]: row for row in changed}
        for gone in range(turn * 50, turn * 50 + 200, 7):
            del expected[gone]
        newest = place.snapshots()
    assert len(newest) == 3
    found = [row for snapshot in newest for row in place.read(snapshot)]
    assert sorted(found) == sorted(expected.values())


def test_an_emptied_bucket_gives_no_rows(place: Place) -> None:
    create(place.client)
    put(place, rows((1, "a", 1)))
    with place.client.kv_writer(PATH) as writer:
        writer.delete(keys(1))
    assert place.read(place.snapshots()[0]) == []


def test_rows_of_older_schemas_are_read_in_that_of_today(place: Place) -> None:
    create(place.client)
    put(place, rows((1, "a", 1), (3, "c", 3)))
    info = place.client.admin.table_info(PATH)
    place.client.admin.add_columns(PATH, [Column("colour", t.STRING, -1)])
    put(place, pa.table({"id": [2], "colour": ["red"]}))
    [snapshot] = place.snapshots()
    assert place.read(snapshot) == [(1, "a", 1, None), (2, None, None, "red"), (3, "c", 3, None)]
    planned = KvSnapshotReader(
        place.client._connection,
        place.client.admin,
        PATH,
        snapshot.bucket,
        snapshot.snapshot_id,
        info=info,
        folder=str(place.temporary),
    )
    with planned, pytest.raises(SchemaNotExist, match="create a new reader"):
        list(planned.batches())


def with_tags(place: Place, snapshot: BucketSnapshot, folder: Path) -> None:
    """Replaces a snapshot's store by one whose values have a tag of 8 bytes before them."""
    old, new = folder / "old", folder / "new"
    old.mkdir()
    for name, file in place.files(snapshot).items():
        shutil.copy(file, old / name)
    plain, tagged = (Rdict(str(one), Options(raw_mode=True)) for one in (old, new))
    for key, value in plain.items():
        tagged[key] = struct.pack(">q", 1_790_000_000_000) + value
    tagged.flush()
    plain.close()
    tagged.close()
    files = {f.name: f for f in new.iterdir() if f.suffix == ".sst" or not f.suffix}
    remote = place.files(snapshot)["CURRENT"].parent
    whole = kv_snapshot_from_json((remote / "_METADATA").read_bytes())
    kept = [n for n in files if n.startswith(("CURRENT", "MANIFEST")) or n.endswith(".sst")]
    handles = []
    for name in kept:
        shutil.copy(files[name], remote / name)
        uri = f"{snapshot_root(whole)}/{name}"
        handles.append(KvFile(uri, files[name].stat().st_size, name))
    changed = replace(whole, private=tuple(handles), shared=())
    (remote / "_METADATA").write_bytes(kv_snapshot_to_json(changed))


def snapshot_root(whole: KvSnapshot) -> str:
    [one] = [f for f in whole.files if f.local_name == "CURRENT"]
    return one.path.rpartition("/")[0]


def test_values_with_the_tag_of_a_row_ttl_are_read(place: Place, tmp_path: Path) -> None:
    create(place.client)
    data = [(i, f"row {i}", i) for i in range(1000)]
    put(place, rows(*data))
    [snapshot] = place.snapshots()
    with_tags(place, snapshot, tmp_path)
    with pytest.raises((CorruptRecord, SchemaNotExist)):
        place.read(snapshot)
    info = place.client.admin.table_info(PATH)

    def reader(version: str) -> KvSnapshotReader:
        of = {**info.descriptor.properties, "table.kv.value-layout-version": version}
        planned = replace(info, descriptor=replace(info.descriptor, properties=of))
        return KvSnapshotReader(
            place.client._connection,
            place.client.admin,
            PATH,
            snapshot.bucket,
            snapshot.snapshot_id,
            info=planned,
            folder=str(place.temporary),
        )

    with reader("2") as found:
        assert sorted(row for batch in found.batches() for row in tuples(batch)) == data
    with pytest.raises(InvalidConfig, match="value-layout-version '3' is not supported"):
        reader("3")


def test_batches_are_bounded(place: Place) -> None:
    create(place.client)
    text = "x" * 20_000
    for first in range(0, 3000, 500):
        put(place, rows(*((i, text, i) for i in range(first, first + 500))))
    with place.reader(place.snapshots()[0]) as found:
        sizes = [batch.num_rows for batch in found.batches()]
        assert found.size_bytes > 0
    assert sum(sizes) == 3000
    assert max(sizes) <= 1024


def test_a_data_directory_may_have_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "a b%20c#d?e"
    folder.mkdir()
    place = Place(folder)
    try:
        create(place.client)
        put(place, rows((1, "a", 1)))
        assert place.read(place.snapshots()[0]) == [(1, "a", 1)]
    finally:
        place.client.close()
        place.cluster.stop()


# ---- snapshots that are not whole ----


def test_a_snapshot_that_is_gone_is_told(place: Place) -> None:
    create(place.client)
    put(place, rows((1, "a", 1)))
    [old] = place.snapshots()
    put(place, rows((2, "b", 2)))
    [new] = place.snapshots()
    with pytest.raises(KvSnapshotNotExist):
        place.read(old)
    assert place.read(new) == [(1, "a", 1), (2, "b", 2)]


@pytest.mark.parametrize("name", ["CURRENT", "sst", "_METADATA"])
def test_a_missing_file_is_told_before_any_row(place: Place, name: str) -> None:
    create(place.client)
    put(place, rows((1, "a", 1)))
    [snapshot] = place.snapshots()
    files = place.files(snapshot)
    gone = {"sst": place.sst(snapshot), "_METADATA": files["CURRENT"].parent / "_METADATA"}.get(
        name, files.get(name)
    )
    assert gone is not None
    gone.unlink()
    with pytest.raises(KvSnapshotNotExist, match=str(gone)), place.reader(snapshot):
        pass


def test_a_cut_file_is_told_before_any_row(place: Place) -> None:
    create(place.client)
    put(place, rows(*((i, "text", i) for i in range(1000))))
    [snapshot] = place.snapshots()
    sst = place.sst(snapshot)
    size = sst.stat().st_size
    content = sst.read_bytes()
    sst.unlink()
    sst.write_bytes(content[:-10])
    problem = rf"{sst} \(\d+\.sst\) has {size - 10} bytes instead of {size}"
    with pytest.raises(StorageError, match=problem), place.reader(snapshot):
        pass


def test_a_damaged_block_never_makes_a_shorter_read(place: Place) -> None:
    create(place.client)
    put(place, rows(*((i, f"text {i * 7919}", i) for i in range(100_000))))
    [snapshot] = place.snapshots()
    sst = max(place.files(snapshot).values(), key=lambda path: path.stat().st_size)
    content = bytearray(sst.read_bytes())
    content[len(content) // 2] ^= 0xFF
    sst.unlink()
    sst.write_bytes(content)
    found = 0
    problem = r"KV snapshot 0 of .* is damaged, .*: the block at \d+ is damaged"
    with place.reader(snapshot) as reader, pytest.raises(CorruptRecord, match=problem) as told:
        for batch in reader.batches():
            found += batch.num_rows
    assert found < 100_000
    assert f"is damaged in {sst.as_uri()}" in str(told.value)
    assert "restore the file from a backup" in str(told.value)


def test_a_folder_that_is_no_store_is_told(tmp_path: Path) -> None:
    (tmp_path / "CURRENT").write_text("MANIFEST-000004\n")
    with pytest.raises(CorruptRecord, match="snapshot X is damaged, or Sluice cannot read it: "):
        list(read_values(tmp_path, "snapshot X", 1))


def test_metadata_that_is_none_is_told(place: Place) -> None:
    create(place.client)
    put(place, rows((1, "a", 1)))
    [snapshot] = place.snapshots()
    path = place.files(snapshot)["CURRENT"].parent / "_METADATA"
    whole = kv_snapshot_from_json(path.read_bytes())
    path.write_text("{}")
    # the server reads it too: it answers that the snapshot is none
    with pytest.raises((CorruptMessage, KvSnapshotNotExist)), place.reader(snapshot):
        pass
    path.write_bytes(kv_snapshot_to_json(whole))
    assert place.read(snapshot) == [(1, "a", 1)]


def test_files_are_read_again_while_their_storage_fails(place: Place, tmp_path: Path) -> None:
    class Failing(RemoteFiles):
        """A storage whose first two reads of each file fail."""

        def __init__(self) -> None:
            super().__init__(place.client._connection)
            self.lock = threading.Lock()
            self.failures = dict.fromkeys("ab", 2)

        def open(self, uri: str) -> pa.NativeFile:
            with self.lock:
                name = uri[-1]
                self.failures[name] -= 1
                if self.failures[name] >= 0:
                    raise OSError("busy")
            return super().open(uri)

    files = []
    for name in "ab":
        (tmp_path / name).write_bytes(name.encode() * 10)
        files.append(SnapshotFile(str(tmp_path / name), f"local-{name}", 10))
    found = SnapshotFiles("snapshot X", 0, tuple(files))
    target = tmp_path / "target"
    target.mkdir()
    download(found, target, Failing())
    assert (target / "local-b").read_bytes() == b"b" * 10
    failing = Failing()
    failing.failures["b"] = 3
    with pytest.raises(StorageError, match=r"file .*/b cannot be read: OSError: busy .*3 times"):
        download(found, target, failing)


# ---- asked for what is not there ----


def test_tables_and_buckets_that_have_no_snapshots(place: Place) -> None:
    create(place.client)
    put(place, rows((1, "a", 1)))
    table_id = place.client.admin.table_info(PATH).table_id
    with pytest.raises(KvSnapshotNotExist):
        place.client.kv_snapshot(PATH, TableBucket(table_id, None, 0), 5).__enter__()
    with pytest.raises(TableNotExist, match="does not belong to table"):
        place.client.kv_snapshot(PATH, TableBucket(table_id + 1, None, 0), 0)
    place.client.admin.drop_table(PATH)
    create(place.client, TableDescriptor(Schema(KEYED.schema.columns, (), 2), bucket_count=1))
    with pytest.raises(NonPrimaryKeyTable, match="no KV snapshots"):
        place.client.kv_snapshot(PATH, TableBucket(table_id, None, 0), 0)


def test_a_reader_is_of_use_inside_its_block_only(place: Place) -> None:
    create(place.client)
    put(place, rows((1, "a", 1)))
    reader = place.reader(place.snapshots()[0])
    with pytest.raises(RuntimeError, match="with block"):
        list(reader.batches())
    with reader:
        batches = reader.batches()
    with pytest.raises(RuntimeError, match="with block"):
        list(batches)


def test_reading_stops_when_its_block_ends(place: Place) -> None:
    create(place.client)
    put(place, rows(*((i, "text", i) for i in range(100_000))))
    with place.reader(place.snapshots()[0]) as reader:
        batches = reader.batches()
        next(batches)
    with pytest.raises(RuntimeError, match="with block"):
        next(batches)


def test_a_disk_that_cannot_take_the_files_is_told(place: Place, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    target = tmp_path / "target"
    (target / "local-a").mkdir(parents=True)
    found = SnapshotFiles("snapshot X", 0, (SnapshotFile(str(tmp_path / "a"), "local-a", 1),))
    with pytest.raises(StorageError, match=f"snapshot X: {target}/local-a cannot be written"):
        download(found, target, RemoteFiles(place.client._connection))
    create(place.client)
    put(place, rows((1, "a", 1)))
    [snapshot] = place.snapshots()
    missing = str(tmp_path / "missing")
    reader = place.client.kv_snapshot(PATH, snapshot.bucket, snapshot.snapshot_id, folder=missing)
    with pytest.raises(StorageError, match="cannot create a folder for its files"), reader:
        pass
