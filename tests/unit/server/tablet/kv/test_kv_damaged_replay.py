"""A store that needs a damaged range of its log: everybody is told, and a user can give it up."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from sluice.cli.main import cli
from sluice.client import connect
from sluice.errors import CorruptRecord, LogOffsetOutOfRange, OutOfOrderSequence
from sluice.server.tablet.kv.files import KvFolder
from tests.unit.server.kv_support import KvCaller, snapshot_rows
from tests.unit.server.support import Node, batch
from tests.unit.server.tablet.kv.test_kv_snapshots_damaged import flip, largest, manifests, shared

QUIET = {"kv_snapshot_interval_ms": 0, "log_ttl_check_interval_ms": 0}


@pytest.fixture
def node(start: Callable[..., Node]) -> Node:
    return start(**QUIET)


def damaged(node: Node, folder: Path, keys: tuple[int, ...], *, is_clean: bool) -> KvCaller:
    """A table of five rows, one a batch, without its store; batches of these keys are damaged."""
    kv = KvCaller(node.caller)
    for key in range(5):
        kv.put((key, "row", key))
    kv.put((1, "new", 1))
    node.stop()
    shutil.rmtree(folder / "data" / "kv")
    if not is_clean:
        (index,) = (folder / "data" / "log").rglob("*.index")
        index.unlink()
    damage(folder, keys)
    node.start()
    return KvCaller(node.caller, create=False)


def damage(folder: Path, numbers: tuple[int, ...]) -> None:
    """Flips a bit in the batches of these numbers of the only segment."""
    (log,) = (folder / "data" / "log").rglob("*.log")
    content = bytearray(log.read_bytes())
    for number in numbers:
        content[place_of(content, number)] ^= 1
    log.write_bytes(content)


def place_of(content: bytes, number: int) -> int:
    """The last byte but one of a batch."""
    at = 0
    for _ in range(number + 1):
        at += 12 + int.from_bytes(content[at + 8 : at + 12], "little")
    return at - 2


def run(node: Node, *arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, [*arguments, "--bootstrap", node.caller.address])
    return result.exit_code, " ".join(result.output.split())


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_refused_bucket_is_told_and_can_be_given_up(
    node: Node, tmp_path: Path, *, is_clean: bool
) -> None:
    kv = damaged(node, tmp_path, (3,), is_clean=is_clean)
    if is_clean:  # the start trusts the index, so the first use finds it
        with pytest.raises(CorruptRecord, match="offsets 3 to 3"):
            kv.lookup((0,))
    with connect(node.caller.address) as client:
        (found,) = client.damage.list(kv.path)
        assert (found.start, found.stop, str(found.path)) == (3, 4, "db.kv")
        assert "its key-value store needs offsets 3 to 3" in found.refused
        assert client.damage.list() == [found]
    code, told = run(node, "doctor")
    assert code == 1
    assert "bucket db.kv 0" in told
    assert "sluice skip-damaged db.kv 0:3" in told
    _, told = run(node, "status")
    assert "db.kv bucket 0: " in told
    assert "sluice skip-damaged db.kv 0:3" in told
    code, told = run(node, "skip-damaged", "db.kv", "0:3")
    assert (code, "nothing was changed" in told) == (0, True)
    with pytest.raises(CorruptRecord, match="offsets 3 to 3 .* are damaged.* skip-damaged"):
        kv.lookup((0,))
    code, told = run(node, "skip-damaged", "db.kv", "0:3", "--yes")
    assert (code, "may lack changes" in told) == (0, True), told
    assert "The lake keeps those that it has" in told
    expected = {key: (key, "row", key) for key in (0, 2, 4)} | {1: (1, "new", 1)}
    assert kv.table() == expected
    assert run(node, "skip-damaged", "db.kv", "0:3", "--yes")[0] == 1, "nothing refuses any more"
    kv.put((3, "again", 3))
    assert kv.lookup((3,)) == [(3, "again", 3)]
    node.restart()
    kv = KvCaller(node.caller, create=False)
    assert kv.table() == expected | {3: (3, "again", 3)}
    node.cluster.take_kv_snapshots(kv.path)
    assert snapshot_rows(kv, 0, tmp_path / "read") == kv.table()


def test_a_flipped_bit_of_a_header_is_told_and_can_be_given_up(node: Node, tmp_path: Path) -> None:
    damaged(node, tmp_path, (), is_clean=True)
    node.stop()
    shutil.copytree(tmp_path / "data", tmp_path / "good")
    for place in (12, 21, 25, 28, 31, 32, 40, 44, 47):
        shutil.rmtree(tmp_path / "data")
        shutil.copytree(tmp_path / "good", tmp_path / "data")
        shutil.rmtree(tmp_path / "data/kv", ignore_errors=True)
        (log,) = (tmp_path / "data/log").rglob("*.log")
        content = bytearray(log.read_bytes())
        content[place_of(content, 1) + 2 + place] ^= 1  # batch 2
        log.write_bytes(content)
        node.start()
        kv = KvCaller(node.caller, create=False)
        with pytest.raises(CorruptRecord, match=r"needs offsets 2 to 2 .*skip-damaged db.kv 0:2"):
            kv.lookup((0,))
        assert run(node, "skip-damaged", "db.kv", "0:2", "--yes")[0] == 0
        assert sorted(kv.table()) == [0, 1, 3, 4], f"byte {place}"
        node.stop()
    node.start()


@pytest.mark.parametrize("damaged_part", ["", "rows", "MANIFEST"])
def test_a_newer_snapshot_has_what_the_log_has_lost(
    node: Node, tmp_path: Path, damaged_part: str
) -> None:
    """The store is an older copy: it meets the damage, and a snapshot is behind it."""
    kv = KvCaller(node.caller)
    for key in range(3):
        kv.put((key, "row", key))
    node.stop()
    shutil.copytree(tmp_path / "data/kv", tmp_path / "older")
    node.start()
    kv = KvCaller(node.caller, create=False)
    for key in range(3, 6):
        kv.put((key, "row", key))
    node.cluster.take_kv_snapshots(kv.path)
    expected = kv.table()
    node.stop()
    shutil.rmtree(tmp_path / "data/kv")
    shutil.copytree(tmp_path / "older", tmp_path / "data/kv")
    damage(tmp_path, (3,))
    if damaged_part == "rows":
        flip(largest(shared(tmp_path)))
    elif damaged_part == "MANIFEST":
        flip(*manifests(shared(tmp_path).parent / "snap-0"))
    node.start()
    kv = KvCaller(node.caller, create=False)
    if not damaged_part:
        assert kv.table() == expected
        assert not list((tmp_path / "data/kv").rglob(KvFolder.DAMAGED))
        return
    with pytest.raises(CorruptRecord, match="skip-damaged db.kv 0:3"):
        kv.table()
    stores = [path.name for path in (tmp_path / "data/kv/db").rglob("db*")]
    assert stores == ["db"], "the older copy stays, and nothing else"
    assert run(node, "skip-damaged", "db.kv", "0:3", "--yes")[0] == 0
    assert sorted(kv.table()) == [0, 1, 2, 4, 5]


@pytest.mark.parametrize("action", ["status", "doctor", "skip-damaged"])
def test_a_restart_in_between_forgets_no_refusal(node: Node, tmp_path: Path, action: str) -> None:
    """The start trusts the index of a log, so only the store meets the damage."""
    kv = damaged(node, tmp_path, (3,), is_clean=True)
    with pytest.raises(CorruptRecord, match=r"`sluice skip-damaged db.kv 0:3`"):
        kv.lookup((0,))
    node.restart()
    if action == "skip-damaged":
        assert run(node, "skip-damaged", "db.kv", "0:3", "--yes")[0] == 0
        assert sorted(KvCaller(node.caller, create=False).table()) == [0, 1, 2, 4]
    else:
        assert "sluice skip-damaged db.kv 0:3" in run(node, action)[1]


def test_each_range_is_given_up_by_itself(node: Node, tmp_path: Path) -> None:
    kv = damaged(node, tmp_path, (0, 3), is_clean=False)
    code, told = run(node, "skip-damaged", "db.kv", "0:3", "--yes")
    assert code == 1
    assert "0:0" in told
    code, told = run(node, "skip-damaged", "db.kv", "0:0", "--yes")
    assert code == 0
    assert "sluice skip-damaged db.kv 0:3" in told
    with pytest.raises(CorruptRecord, match="offsets 3 to 3"):
        kv.table()
    assert run(node, "skip-damaged", "db.kv", "0:3", "--yes")[0] == 0
    assert sorted(kv.table()) == [1, 2, 4]
    with connect(node.caller.address) as client:
        assert [one.refused for one in client.damage.list()] == ["", ""]
    node.stop()
    (store,) = (tmp_path / "data/kv/db").rglob("db")
    shutil.rmtree(store)
    node.start()
    kv = KvCaller(node.caller, create=False)
    assert sorted(kv.table()) == [1, 2, 4], "both stay given up"


def test_a_refused_replay_keeps_the_damaged_store(node: Node, tmp_path: Path) -> None:
    """It may be the only one that still has the rows."""
    kv = KvCaller(node.caller)
    for key in range(5):
        kv.put((key, "row", key))
    node.stop()
    flip(largest(tmp_path / "data/kv", "*.sst"))
    damage(tmp_path, (3,))
    node.start()
    kv = KvCaller(node.caller, create=False)
    for _ in range(2):
        with pytest.raises(CorruptRecord, match="skip-damaged db.kv 0:3"):
            kv.table()
        assert list((tmp_path / "data/kv/db").rglob(KvFolder.DAMAGED))
        node.restart()
        kv = KvCaller(node.caller, create=False)
    assert run(node, "skip-damaged", "db.kv", "0:3", "--yes")[0] == 0
    assert sorted(kv.table()) == [0, 1, 2, 4]


def test_a_repeated_put_is_not_stored_once_its_changes_are_given_up(
    node: Node, tmp_path: Path
) -> None:
    kv = KvCaller(node.caller)
    writer = node.caller.init_writer()
    sent = [kv.records([(n, "row", n)], writer_id=writer, sequence=n) for n in range(3)]
    for records in sent:
        kv.send(records)
    node.stop()
    shutil.rmtree(tmp_path / "data" / "kv")
    damage(tmp_path, (2,))
    node.start()
    kv = KvCaller(node.caller, create=False)
    with pytest.raises(CorruptRecord, match="offsets 2 to 2"):
        kv.send(sent[2])
    assert run(node, "skip-damaged", "db.kv", "0:2", "--yes")[0] == 0
    for _ in range(2):
        with pytest.raises(OutOfOrderSequence, match="batch 2 was stored at offset 2.*given up"):
            kv.send(sent[2])
        assert kv.send(sent[1]) == 2, "the others are there"
        node.restart()
        kv = KvCaller(node.caller, create=False)
    another = node.caller.init_writer()
    kv.send(kv.records([(2, "row", 2)], writer_id=another, sequence=0))
    assert kv.table() == {n: (n, "row", n) for n in range(3)}


def test_a_log_table_shows_its_damage_too(node: Node, tmp_path: Path) -> None:
    table = node.caller.create_table()
    for text in "abc":
        node.caller.produce(table, batch(text))
    node.stop()
    shutil.rmtree(tmp_path / "data/log/db")
    node.start()
    with pytest.raises(CorruptRecord):
        node.caller.fetch(table, 0)
    with connect(node.caller.address) as client:
        (found,) = client.damage.list()
        assert (found.start, found.stop, found.refused) == (0, 3, "")
        with pytest.raises(LogOffsetOutOfRange, match="no key-value store"):
            client.damage.skip(found)
    _, told = run(node, "doctor")
    assert "offsets 0 to 2 are damaged" in told
    assert "sluice repair db.t" in told
    assert run(node, "skip-damaged", "db.t", "0:0", "--yes")[0] == 1


def test_an_intact_server_has_no_damage(node: Node) -> None:
    kv = KvCaller(node.caller)
    kv.put((1, "a", 1))
    with connect(node.caller.address) as client:
        assert client.damage.list() == []
