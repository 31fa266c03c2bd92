"""A disk that gives back other bytes than it was given: the log makes the table anew."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sluice.errors import CorruptRecord, KvStorageError
from sluice.formats.kv.snapshot_metadata import KvSnapshot
from sluice.model import TableBucket
from sluice.server.tablet.kv.files import KvFolder
from sluice.server.tablet.kv.store import KvStoreCorrupt
from tests.unit.server.kv_support import KvCaller, snapshot_rows
from tests.unit.server.support import Node, give_up

ROWS = 2_000
Read = Callable[[KvCaller], object]


def put(kv: KvCaller) -> object:
    return kv.put(*((key, "new", key) for key in range(ROWS)))


def look_up(kv: KvCaller) -> object:
    return kv.lookup(*((key,) for key in range(ROWS)))


def scan(kv: KvCaller) -> object:
    return kv.scan()


def damage(store: Path) -> None:
    """One byte in a block of rows. A snapshot on the same disk shares the file."""
    sst = max(store.rglob("*.sst"), key=lambda path: path.stat().st_size)
    content = bytearray(sst.read_bytes())
    content[len(content) // 2] ^= 0xFF
    sst.write_bytes(content)


@pytest.mark.parametrize("read", [put, look_up, scan])
def test_a_store_with_a_damaged_block_is_made_anew_from_the_log(
    start: Callable[..., Node], tmp_path: Path, read: Read
) -> None:
    node = start(kv_snapshot_interval_ms=0)
    kv = KvCaller(node.caller)
    kv.put(*((key, f"{key * 7919 % 10_007:0100}", key) for key in range(ROWS)))
    node.cluster.take_kv_snapshots(kv.path)
    node.stop()
    damage(tmp_path / "data" / "kv")
    node.restart()
    kv = KvCaller(node.caller, create=False)
    with pytest.raises(KvStorageError, match="Corruption"):
        read(kv)
    read(kv)
    assert not list((tmp_path / "data" / "kv").rglob(KvFolder.DAMAGED)), "it is whole again"
    put(kv)
    assert kv.table() == {key: (key, "new", key) for key in range(ROWS)}
    node.cluster.take_kv_snapshots(kv.path)
    assert snapshot_rows(kv, 1, tmp_path / "read") == kv.table(), "no damaged file is shared"


def test_an_error_that_is_still_on_its_way_keeps_no_store_open(
    start: Callable[..., Node], tmp_path: Path
) -> None:
    """Somebody else makes the store anew before the call that met the damage has answered."""
    node = start(kv_snapshot_interval_ms=0)
    kv = KvCaller(node.caller)
    kv.put(*((key, f"{key * 7919 % 10_007:0100}", key) for key in range(ROWS)))
    expected = kv.table()
    node.stop()
    damage(tmp_path / "data" / "kv")
    node.start()
    kv = KvCaller(node.caller, create=False)
    assert node.cluster._parts is not None
    manager, bucket = node.cluster._parts._kv, TableBucket(kv.table_id, None, 0)
    with pytest.raises(KvStoreCorrupt) as caught, manager.leading(bucket) as tablet:
        tablet.first(ROWS, 1 << 30)
    assert kv.table() == expected
    assert "Corruption" in str(caught.value)


def test_a_server_that_ends_in_between_goes_on_with_the_log(
    start: Callable[..., Node], tmp_path: Path
) -> None:
    """The marker outlives it, so the damaged snapshot is not restored."""
    node = start(kv_snapshot_interval_ms=0)
    kv = KvCaller(node.caller)
    kv.put(*((key, f"{key * 7919 % 10_007:0100}", key) for key in range(ROWS)))
    expected = kv.table()
    node.cluster.take_kv_snapshots(kv.path)
    node.stop()
    folder = tmp_path / "data" / "kv" / "db" / f"kv-{kv.table_id}" / "kv-0"
    damage(folder)
    node.restart()
    with pytest.raises(KvStorageError, match="Corruption"):
        scan(KvCaller(node.caller, create=False))
    assert (folder / KvFolder.DAMAGED).exists()
    assert not (folder / "db").exists()
    node.stop()
    node.restart()
    assert KvCaller(node.caller, create=False).table() == expected


def test_a_store_made_anew_while_a_snapshot_is_brought_takes_no_file_for_another(
    start: Callable[..., Node], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = start(kv_snapshot_interval_ms=0)
    kv = KvCaller(node.caller)
    kv.put(*((key, f"{key * 7919 % 10_007:0100}", key) for key in range(ROWS)))
    assert node.cluster._parts is not None
    manager = node.cluster._parts._kv
    snapshots = node.cluster._parts._kv_snapshots
    complete = snapshots.complete

    def and_meanwhile(snapshot: KvSnapshot) -> None:
        complete(snapshot)
        bucket = TableBucket(kv.table_id, None, 0)
        with pytest.raises(KvStoreCorrupt), manager.leading(bucket):
            raise KvStoreCorrupt("Corruption: found by somebody else")

    monkeypatch.setattr(snapshots, "complete", and_meanwhile)
    node.cluster.take_kv_snapshots(kv.path)
    assert len(kv.table()) == ROWS
    monkeypatch.undo()
    put(kv)
    node.cluster.take_kv_snapshots(kv.path)
    assert snapshot_rows(kv, 1, tmp_path / "read") == kv.table()


@pytest.mark.parametrize("has_snapshot", [True, False])
def test_a_damaged_changelog_never_gives_a_wrong_table(
    start: Callable[..., Node], tmp_path: Path, *, has_snapshot: bool
) -> None:
    node = start(kv_snapshot_interval_ms=0)
    kv = KvCaller(node.caller)
    for key in range(3):
        kv.put((key, "row", key))
    if has_snapshot:
        node.cluster.take_kv_snapshots(kv.path)
    node.stop()
    shutil.rmtree(tmp_path / "data" / "kv")
    (log,) = (tmp_path / "data" / "log").rglob("*.log")
    log.with_suffix(".index").unlink()  # as after a kill
    content = bytearray(log.read_bytes())
    content[2 * len(content) // 3 - 2] ^= 1  # of the second row
    log.write_bytes(content)
    node.start()
    kv = KvCaller(node.caller, create=False)
    for _ in range(2):
        with pytest.raises(CorruptRecord, match=r"refuses reads .*\.log, bytes .* offsets 1 to 2"):
            kv.lookup((0,))
        with pytest.raises(CorruptRecord, match="refuses reads and writes"):
            kv.put((3, "row", 3))
    assert node.caller.offsets(kv.table_id) == [3]
    assert len(give_up(node.caller.address)) == 1
    kept = range(3) if has_snapshot else range(1)
    assert kv.table() == {key: (key, "row", key) for key in kept}
    kv.put((3, "row", 3))
    assert kv.lookup((3,)) == [(3, "row", 3)]
    assert node.caller.offsets(kv.table_id) == [4]
