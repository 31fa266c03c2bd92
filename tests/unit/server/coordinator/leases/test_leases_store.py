"""Leases in the metadata file: how small, how they come back, what a damage says."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.errors import StorageError
from sluice.leases import PLAIN, BucketKey, Change, Lease, SnapshotsByTable
from sluice.server.coordinator.leases.codec import (
    Unreadable,
    decode_head,
    decode_holds,
    encode_head,
    encode_holds,
)
from sluice.server.coordinator.leases.store import SqliteLeaseStore
from sluice.server.storage.database import Database

KEYS = st.tuples(st.one_of(st.just(PLAIN), st.integers(0, 2**62)), st.integers(0, 2**31 - 1))
HOLDS = st.dictionaries(KEYS, st.integers(0, 2**63 - 1), min_size=1, max_size=50)


@given(st.text(min_size=1), st.integers(0, 2**63 - 1), HOLDS)
def test_blocks_come_back(lease_id: str, table_id: int, holds: dict[BucketKey, int]) -> None:
    lease_id = lease_id.encode("utf-8", "replace").decode()
    block = encode_holds(lease_id, table_id, holds)
    assert decode_holds(lease_id, table_id, block) == holds
    with pytest.raises(Unreadable):
        decode_holds(lease_id + "x", table_id, block)
    with pytest.raises(Unreadable):
        decode_holds(lease_id, table_id ^ 1, block)


@given(HOLDS, st.data())
def test_a_damaged_block_is_never_taken_for_a_whole_one(
    holds: dict[BucketKey, int], data: st.DataObject
) -> None:
    block = bytearray(encode_holds("a", 1, holds))
    if data.draw(st.booleans()):
        block[data.draw(st.integers(0, len(block) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del block[data.draw(st.integers(0, len(block) - 1)) :]
    with pytest.raises(Unreadable):
        decode_holds("a", 1, bytes(block))


@given(st.binary(max_size=60))
def test_any_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(Unreadable):
        decode_holds("a", 1, content)
    with pytest.raises(Unreadable):
        decode_head("a", content, {})


def test_a_head_belongs_to_its_lease_and_its_tables() -> None:
    lease = Lease("a", 1, 2, 3, {1: {(PLAIN, 0): 5}})
    head = encode_head(lease)
    assert decode_head("a", head, lease.held) == lease
    with pytest.raises(Unreadable, match="checksum"):
        decode_head("b", head, lease.held)
    with pytest.raises(Unreadable, match="buckets of 1 tables, but those of 0 are stored"):
        decode_head("a", head, {})


# ---- in the file ----


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[], Database]]:
    opened: list[Database] = []

    def open_() -> Database:
        opened.append(Database(tmp_path / "metadata.sqlite"))
        return opened[-1]

    yield open_
    for database in opened:
        database.close()


def make(lease_id: str, held: SnapshotsByTable, now: int = 10) -> Change:
    return Change(lease_id, None, Lease(lease_id, now, now, now + 5, held), frozenset(held))


def test_a_change_writes_what_it_changes_and_nothing_else(
    opened: Callable[[], Database],
) -> None:
    database = opened()
    store = SqliteLeaseStore(database)
    held: SnapshotsByTable = {1: {(5, 0): 1, (5, 1): 2}, 2: {(PLAIN, 0): 3}, 3: {(PLAIN, 0): 4}}
    first = make("a", held)
    store.write([first, make("b", {1: {(5, 0): 1}})])
    after = Lease("a", 10, 20, 25, {1: held[1], 2: {(PLAIN, 0): 9}})
    written: list[str] = []
    with database.transaction() as connection:
        connection.set_trace_callback(written.append)
    store.write([Change("a", first.after, after, frozenset({2, 3}))])
    with database.transaction() as connection:
        connection.set_trace_callback(None)
    blocks = [sql for sql in written if "INTO kv_snapshot_lease_tables" in sql]
    assert len(blocks) == 1, "the block of table 2; that of table 1 is as it was"
    assert store.read("a") == after
    assert SqliteLeaseStore(opened()).load() == [after, make("b", {1: {(5, 0): 1}}).after]

    renewed = Lease("a", 10, 90, 95, after.held)
    store.write([Change("a", after, renewed, frozenset())])
    assert store.read("a") == renewed
    store.write([Change("a", renewed, None, frozenset({1, 2}))])
    assert store.read("a") is None
    left = database.query("SELECT COUNT(*) FROM kv_snapshot_lease_tables")
    assert left == [(1,)], "its blocks went with it"


def test_a_hundred_thousand_buckets_take_less_than_a_megabyte(
    opened: Callable[[], Database], tmp_path: Path
) -> None:
    """Of 50 tables with 20 partitions each; ids are whatever the buckets have reached."""
    rng = random.Random(7)
    partitions = iter(range(10**6, 10**9, 37))
    held: dict[int, dict[BucketKey, int]] = {}
    for table_id in range(4_000, 4_050):
        owners = [next(partitions) for _ in range(20)]
        held[table_id] = {(p, n): rng.randrange(100_000) for p in owners for n in range(100)}
    database = opened()
    before = _size(database, tmp_path)
    SqliteLeaseStore(database).write([make("sluice-" + "x" * 36, held)])
    assert _size(database, tmp_path) - before < 1_000_000
    [lease] = SqliteLeaseStore(opened()).load()
    assert (lease.buckets, lease.held) == (100_000, held)


def _size(database: Database, folder: Path) -> int:
    database.query("PRAGMA wal_checkpoint(TRUNCATE)")
    return sum(file.stat().st_size for file in folder.iterdir())


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        ("UPDATE kv_snapshot_lease_tables SET holds = x'0100'", "5 bytes|2 bytes"),
        ("UPDATE kv_snapshot_lease_tables SET holds = CAST(holds || x'00' AS BLOB)", "checksum"),
        ("UPDATE kv_snapshot_lease_tables SET table_id = table_id + 1", "checksum"),
        ("DELETE FROM kv_snapshot_lease_tables", "buckets of 1 tables, but those of 0 are stored"),
        (
            "UPDATE kv_snapshot_leases SET head = CAST(x'02' || substr(head, 2) AS BLOB)",
            "version 2, .* reads only 1",
        ),
        ("UPDATE kv_snapshot_leases SET lease_id = 'b;x'", "lease 'b;x' cannot be read"),
    ],
)
def test_a_lease_that_cannot_be_read_is_named_with_the_way_out(
    opened: Callable[[], Database], tmp_path: Path, damage: str, why: str
) -> None:
    store = SqliteLeaseStore(opened())
    store.write([make("job-7", {1: {(PLAIN, 0): 100}})])
    with sqlite3.connect(tmp_path / "metadata.sqlite") as connection:
        connection.execute(damage)
    connection.close()
    with pytest.raises(StorageError, match=why) as caught:
        store.load()
    [name] = store.ids()
    assert repr(name) in str(caught.value)
    assert f"sluice leases drop {name!r} --data-dir" in str(caught.value)
    assert store.remove(name)
    assert not store.remove(name)
    assert store.load() == []
