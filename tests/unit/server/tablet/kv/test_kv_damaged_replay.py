"""A damaged log of a primary-key table: everybody is told, and a user can give the range up."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from sluice.cli.main import cli
from sluice.client import connect
from sluice.errors import CorruptRecord, LogOffsetOutOfRange, OutOfOrderSequence
from sluice.model import TablePath
from sluice.server.tablet.kv.files import KvFolder
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from tests.unit.server.kv_support import KvCaller, snapshot_rows
from tests.unit.server.support import Node, batch, give_up
from tests.unit.server.tablet.kv.test_kv_snapshots_damaged import flip, largest

QUIET = {"kv_snapshot_interval_ms": 0, "log_ttl_check_interval_ms": 0}


@pytest.fixture
def node(start: Callable[..., Node]) -> Node:
    return start(**QUIET)


def damaged(node: Node, folder: Path, keys: tuple[int, ...]) -> KvCaller:
    """A table of five rows, one a batch, without its store; batches of these keys are damaged."""
    kv = KvCaller(node.caller)
    for key in range(5):
        kv.put((key, "row", key))
    kv.put((1, "new", 1))
    node.stop()
    shutil.rmtree(folder / "data" / "kv")
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


def test_a_refused_bucket_is_told_and_can_be_given_up(node: Node, tmp_path: Path) -> None:
    kv = damaged(node, tmp_path, (3,))
    with pytest.raises(CorruptRecord, match="offsets 3 to 3"):  # the start trusts the index
        kv.lookup((0,))
    with connect(node.caller.address) as client:
        (found,) = client.damage.list(kv.path)
        assert (found.start, found.stop, str(found.path)) == (3, 4, "db.kv")
        assert "give the offsets 3 to 3 up" in found.refused
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
    with pytest.raises(CorruptRecord, match=r"refuses .*\.log, bytes .*offsets 3 to 3.*-damaged"):
        kv.lookup((0,))
    with pytest.raises(CorruptRecord, match="refuses reads and writes"):
        kv.changelog()
    code, told = run(node, "skip-damaged", "db.kv", "0:3", "--yes")
    assert (code, "goes on without the offsets 3 to 3" in told) == (0, True), told
    assert "sluice repair db.kv --skip 0:3" in told
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
    damaged(node, tmp_path, ())
    node.stop()
    shutil.copytree(tmp_path / "data", tmp_path / "good")
    for place in (0, 8, 12, 13, 21, 25, 28, 31, 32, 40, 44, 47):
        shutil.rmtree(tmp_path / "data")
        shutil.copytree(tmp_path / "good", tmp_path / "data")
        shutil.rmtree(tmp_path / "data/kv", ignore_errors=True)
        (log,) = (tmp_path / "data/log").rglob("*.log")
        content = bytearray(log.read_bytes())
        content[place_of(content, 1) + 2 + place] ^= 1  # batch 2
        log.write_bytes(content)
        node.start()
        kv = KvCaller(node.caller, create=False)
        with pytest.raises(CorruptRecord, match=r"offsets 2 to 2 up.*skip-damaged db.kv 0:2"):
            kv.lookup((0,))
        assert run(node, "skip-damaged", "db.kv", "0:2", "--yes")[0] == 0
        assert sorted(kv.table()) == [0, 1, 3, 4], f"byte {place}"
        node.stop()
    node.start()


@pytest.mark.parametrize("action", ["status", "doctor", "skip-damaged"])
def test_a_restart_in_between_forgets_no_refusal(node: Node, tmp_path: Path, action: str) -> None:
    """The start trusts the index of a log, but for what a reader has found."""
    kv = damaged(node, tmp_path, (3,))
    with pytest.raises(CorruptRecord, match=r"`sluice skip-damaged db.kv 0:3`"):
        kv.lookup((0,))
    node.restart()
    if action == "skip-damaged":
        assert run(node, "skip-damaged", "db.kv", "0:3", "--yes")[0] == 0
        assert sorted(KvCaller(node.caller, create=False).table()) == [0, 1, 2, 4]
    else:
        assert "sluice skip-damaged db.kv 0:3" in run(node, action)[1]


def test_a_restored_file_ends_the_refusal(node: Node, tmp_path: Path) -> None:
    kv = damaged(node, tmp_path, (3,))
    for _ in range(2):
        with pytest.raises(CorruptRecord, match="refuses reads and writes"):
            kv.lookup((0,))
        node.restart()
        kv = KvCaller(node.caller, create=False)
    node.stop()
    damage(tmp_path, (3,))  # the same bit again
    node.start()
    with connect(node.caller.address) as client:
        assert client.damage.list() == []
    assert sorted(KvCaller(node.caller, create=False).table()) == [0, 1, 2, 3, 4]


def kill(node: Node, folder: Path) -> None:
    """Stops it, and leaves the files as they were before."""
    shutil.copytree(folder / "data", folder / "left")
    node.stop()
    shutil.rmtree(folder / "data")
    (folder / "left").rename(folder / "data")


@pytest.mark.parametrize("stops", ["clean", "killed"])
def test_a_restored_end_of_a_log_ends_the_refusal(
    start: Callable[..., Node], tmp_path: Path, stops: str
) -> None:
    """After a kill, only an offset far behind the end is stored; the range does not grow."""
    node = start(**QUIET, sync_interval_ms=20)
    table = node.caller.create_table()
    for _ in range(5):
        node.caller.produce(table, batch("x"))
    kill(node, tmp_path)
    (log,) = (tmp_path / "data" / "log").rglob("*.log")
    log.with_suffix(".index").unlink(missing_ok=True)
    good = log.read_bytes()
    log.write_bytes(good[:-5] + bytes([good[-5] ^ 1]) + good[-4:])
    ranges = set()
    for _ in range(3):
        node.start()
        with connect(node.caller.address) as client:
            ranges |= {(found.start, found.stop) for found in client.damage.list()}
        node.stop() if stops == "clean" else kill(node, tmp_path)
    assert len(ranges) == 1
    log.write_bytes(good)
    node.start()
    with connect(node.caller.address) as client:
        assert client.damage.list() == []
    assert node.caller.produce(table, batch("x")) == 5


def test_each_range_is_given_up_by_itself(node: Node, tmp_path: Path) -> None:
    kv = damaged(node, tmp_path, (0, 3))
    for start in (0, 3):
        with pytest.raises(CorruptRecord, match=f"offsets {start} to {start}"):
            kv.table()
        code, told = run(node, "skip-damaged", "db.kv", "0:4", "--yes")
        assert (code, f"0:{start}" in told) == (1, True)
        assert run(node, "skip-damaged", "db.kv", f"0:{start}", "--yes")[0] == 0
    assert sorted(kv.table()) == [1, 2, 4]
    with connect(node.caller.address) as client:
        assert client.damage.list() == []
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
        with pytest.raises(OutOfOrderSequence, match="batch 2 was stored at offset 2.*given it up"):
            kv.send(sent[2])
        assert kv.send(sent[1]) == 2, "the others are there"
        node.restart()
        kv = KvCaller(node.caller, create=False)
    another = node.caller.init_writer()
    kv.send(kv.records([(2, "row", 2)], writer_id=another, sequence=0))
    assert kv.table() == {n: (n, "row", n) for n in range(3)}


def test_a_log_table_is_told_and_given_up_too(node: Node, tmp_path: Path) -> None:
    table = node.caller.create_table()
    for text in "abc":
        node.caller.produce(table, batch(text))
    node.stop()
    shutil.rmtree(tmp_path / "data/log/db")
    node.start()
    with pytest.raises(CorruptRecord, match="refuses reads and writes"):
        node.caller.fetch(table, 0)
    with connect(node.caller.address) as client:
        (found,) = client.damage.list()
        assert (found.start, found.stop) == (0, 3)
        with pytest.raises(LogOffsetOutOfRange, match="offsets 0 to 3 are not damaged"):
            client.damage.skip(replace(found, stop=4))
    assert "sluice skip-damaged db.t 0:0" in run(node, "doctor")[1]
    assert run(node, "skip-damaged", "db.t", "0:0", "--yes")[0] == 0
    assert run(node, "skip-damaged", "db.t", "0:0", "--yes")[0] == 1
    assert node.caller.produce(table, batch("x")) == 3


def test_other_buckets_go_on(node: Node, tmp_path: Path) -> None:
    """In one fetch, only the damaged buckets get an error; it has no range until it is given up."""
    tables = [node.caller.create_table(TablePath("db", name)) for name in "abc"]
    for table in tables:
        node.caller.produce(table, batch("x"))
        node.caller.produce(table, batch("y"))
    node.stop()
    for table in tables[1:]:
        (log,) = (tmp_path / f"data/log/db/{'abc'[tables.index(table)]}-{table}").rglob("*.log")
        content = bytearray(log.read_bytes())
        content[place_of(content, 1)] ^= 1
        log.write_bytes(content)
    node.start()
    request = pb.FetchLogRequest(follower_server_id=-1, max_bytes=1 << 20)
    for table in tables:
        asked = request.tables_req.add(table_id=table, projection_pushdown_enabled=False)
        asked.buckets_req.add(bucket_id=0, fetch_offset=0, max_fetch_bytes=1 << 20)
    for _ in range(2):
        answers = node.caller.call(apis.FETCH_LOG, request)
        parts = [one.buckets_resp[0] for one in answers.tables_resp]
        assert [part.error_code for part in parts] == [0, CorruptRecord.code, CorruptRecord.code]
        assert [part.HasField("damaged_start_offset") for part in parts] == [False] * 3
    give_up(node.caller.address)
    for table in tables[1:]:
        with pytest.raises(CorruptRecord, match="offsets 1 to 1 are lost"):
            node.caller.fetch(table, 1)


def test_an_intact_server_has_no_damage(node: Node) -> None:
    kv = KvCaller(node.caller)
    kv.put((1, "a", 1))
    with connect(node.caller.address) as client:
        assert client.damage.list() == []
