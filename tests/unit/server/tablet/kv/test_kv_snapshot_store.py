"""The coordinator's record of KV snapshots: retention, leases, what a crash leaves."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.errors import (
    InvalidUpdateVersion,
    KvSnapshotNotExist,
    StorageError,
    UnknownTableOrBucket,
)
from tests.unit.server.snapshot_store import PARTED, PLAIN, Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path)
    yield made
    made.database.close()


def test_two_are_retained_and_shared_files_live_as_long_as_someone_uses_them(store: Store) -> None:
    assert store.take(10, "a", "b") == 0
    assert store.take(20, "b", "c") == 1
    assert store.files() == {"snap-0", "snap-1", "a", "b", "c"}
    assert store.take(30, "c", "d") == 2
    assert store.ids() == [1, 2]
    assert store.files() == {"snap-1", "snap-2", "b", "c", "d"}
    assert not store.snapshots.exists(store.bucket(), 0)
    store.reopen()
    assert store.ids() == [1, 2]
    assert store.files() == {"snap-1", "snap-2", "b", "c", "d"}
    latest = store.snapshots.latest(store.bucket())
    assert latest is not None
    assert (latest.snapshot_id, latest.log_offset) == (2, 30)
    assert store.snapshots.metadata(store.bucket(), 2).log_offset == 30


def test_a_leased_one_stays_with_its_files_until_the_lease_is_gone(store: Store) -> None:
    store.leased.add((store.bucket(), store.take(10, "a", "b")))
    for offset, shared in ((20, "b"), (30, "c"), (40, "d")):
        store.take(offset, shared)
    assert store.ids() == [0, 2, 3]
    assert store.files() == {"snap-0", "snap-2", "snap-3", "a", "b", "c", "d"}
    store.reopen()
    assert store.ids() == [0, 2, 3]
    assert len(store.snapshots.metadata(store.bucket(), 0).files) == 3
    store.leased.clear()
    store.snapshots.retain()
    assert store.ids() == [2, 3]
    assert store.files() == {"snap-2", "snap-3", "c", "d"}


def test_buckets_do_not_touch_each_other(store: Store) -> None:
    other, parted = store.bucket(number=1), store.bucket(PARTED)
    store.take(1, "a", bucket=other)
    store.take(2, "a", bucket=parted)
    for offset in range(5):
        store.take(offset)
    assert store.ids(other) == store.ids(parted) == [0]
    assert store.files(other) == store.files(parted) == {"snap-0", "a"}


def test_the_same_one_again_changes_nothing_and_an_older_one_is_refused(store: Store) -> None:
    first = store.write(store.bucket(), 10)
    store.snapshots.complete(first)
    store.snapshots.complete(first)
    assert store.ids() == [0]
    with pytest.raises(InvalidUpdateVersion, match="is not newer than 0 at 10"):
        store.snapshots.complete(store.write(store.bucket(), 9))
    assert store.ids() == [0]


def test_one_with_a_missing_or_cut_file_is_refused(store: Store) -> None:
    snapshot = store.write(store.bucket(), 10, "a")
    shared = store.snapshots.folder(store.bucket()) / "shared" / "a"
    shared.write_bytes(b"ss")
    with pytest.raises(StorageError, match="has 2 bytes, not 3"):
        store.snapshots.complete(snapshot)
    shared.unlink()
    with pytest.raises(StorageError, match="No such file"):
        store.snapshots.complete(snapshot)
    assert store.ids() == []


def test_what_a_crash_left_is_removed_at_start(store: Store) -> None:
    store.take(10, "a")
    store.write(store.bucket(), 20, "half")
    store.write(store.bucket(PARTED), 20, "half")
    assert "half" in store.files()
    store.reopen()
    assert store.files() == {"snap-0", "a"}
    assert store.files(store.bucket(PARTED)) == set()


def test_nothing_shared_is_deleted_while_a_metadata_file_is_unreadable(store: Store) -> None:
    store.take(10, "a")
    store.take(20, "a", "b")
    folder = store.snapshots.folder(store.bucket())
    (folder / "snap-1" / "_METADATA").write_bytes(b"{")
    (folder / "shared" / "unknown").write_bytes(b"")
    store.reopen()
    assert store.files() == {"snap-0", "snap-1", "a", "b", "unknown"}
    with pytest.raises(KvSnapshotNotExist, match="cannot be read"):
        store.snapshots.metadata(store.bucket(), 1)
    store.take(30, "c")
    assert store.ids() == [1, 2]
    assert {"a", "b", "c", "unknown"} <= store.files()


def test_a_shared_file_that_cannot_be_removed_is_left_to_the_next_start(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlink = Path.unlink

    def failing(self: Path, missing_ok: bool = False) -> None:
        if self.parent.name == "shared":
            raise OSError(errno.EIO, "Input/output error", str(self))
        unlink(self, missing_ok=missing_ok)

    store.take(10, "a", "b")
    store.take(20, "c")
    with monkeypatch.context() as disk:
        disk.setattr(Path, "unlink", failing)
        assert store.take(30, "d") == 2
        assert store.ids() == [1, 2]
        assert store.files() == {"snap-1", "snap-2", "a", "b", "c", "d"}
        store.reopen()
    assert store.ids() == [1, 2]
    store.reopen()
    assert store.files() == {"snap-1", "snap-2", "c", "d"}


def test_a_dropped_table_or_partition_takes_its_snapshots_with_it_leased_or_not(
    store: Store,
) -> None:
    bucket, parted = store.bucket(), store.bucket(PARTED)
    for one in (bucket, parted):
        store.leased.add((one, store.take(10, "a", bucket=one)))
    folders = [store.snapshots.folder(one) for one in (bucket, parted)]
    info = store.catalog.table(PARTED).info
    partition = store.catalog.drop_partition(PARTED, ("x",))
    store.snapshots.drop_table(info, partition.partition_id)
    store.snapshots.drop_table(store.catalog.drop_table(PLAIN))
    for one, folder in zip((bucket, parted), folders, strict=True):
        assert not store.snapshots.exists(one, 0)
        assert not folder.exists()
        with pytest.raises(UnknownTableOrBucket):
            store.snapshots.folder(one)
    store.reopen()
    assert store.database.query("SELECT * FROM kv_snapshots") == []


def test_a_drop_that_a_crash_cut_short_is_ended_at_start(store: Store) -> None:
    bucket, parted = store.bucket(), store.bucket(PARTED)
    folders = []
    for one in (bucket, parted):
        store.take(10, "a", bucket=one)
        folders.append(store.snapshots.folder(one))
    store.catalog.drop_partition(PARTED, ("x",))
    store.catalog.drop_table(PLAIN)
    store.reopen()
    assert not any(folder.exists() for folder in folders)
    assert store.snapshots.all(bucket) == store.snapshots.all(parted) == []


def test_one_of_a_table_dropped_meanwhile_is_not_registered(store: Store) -> None:
    snapshot = store.write(store.bucket(), 10)
    store.catalog.drop_table(PLAIN)
    with pytest.raises(UnknownTableOrBucket):
        store.snapshots.complete(snapshot)


def test_files_are_found_where_the_data_directory_was_moved_to(
    store: Store, tmp_path: Path
) -> None:
    store.take(10, "a")
    store.database.close()
    moved = tmp_path.parent / f"{tmp_path.name}-moved"
    tmp_path.rename(moved)
    store.root = moved
    store.open()
    metadata = store.snapshots.metadata(store.bucket(), 0)
    assert all(file.path.startswith(moved.as_uri()) for file in metadata.files)
