"""kill -9 of the server during puts and KV snapshots: the table is what was acknowledged.

One writer puts batches of random changes, under a writer id. A put whose answer is lost is sent
again when the server is back. Meanwhile snapshots are taken all the time.
"""

from __future__ import annotations

import multiprocessing
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from sluice.errors import FlussError
from sluice.server.tablet.kv.store import KvResources, KvStore
from tests.faults.scenes.kv_steps import PUTS, SNAPSHOTS
from tests.support.harness.findings import finding
from tests.support.programs.processes import ServerProcess
from tests.unit.server.kv_support import KvCaller, Row, replayed, snapshot_rows
from tests.unit.server.support import Caller

KEYS = 40
SETTINGS = {
    "SLUICE_SERVER_KV_SNAPSHOT_INTERVAL_MS": "15",
    # one more than usual: the check reads the newest one without a lease, while two more may come
    "SLUICE_SERVER_KV_SNAPSHOT_NUM_RETAINED": "3",
    "SLUICE_SERVER_KV_WRITE_BUFFER_BYTES": "65536",
    "SLUICE_SERVER_SEGMENT_BYTES": "20000",
}


class Writer:
    """Puts random changes; ``rows`` is what was acknowledged, ``pending`` what may be stored."""

    def __init__(self, server: ServerProcess, folder: Path, seed: int) -> None:
        self.server = server
        self.folder = folder
        self.random = random.Random(seed)
        self.rows: dict[int, Row] = {}
        self.sequence = 0
        self.acknowledged = 0
        self.pending: tuple[bytes, dict[int, Row | None]] | None = None
        self.connect()
        self.writer = self.caller.init_writer()

    def connect(self, *, create: bool = True) -> None:
        self.caller = Caller(self.server.address)
        self.kv = KvCaller(self.caller, create=create)

    def start_server(self, **env: str) -> None:
        self.server.kill()
        self.server.start(**env)
        self.caller.transport.close()
        self.connect(create=False)

    def close(self) -> None:
        self.caller.transport.close()

    def put(self) -> None:
        """One batch to its acknowledgement. :raises FlussError: the outcome is unknown."""
        if self.pending is None:
            self.pending = self.batch()
        records, changes = self.pending
        self.kv.send(records)
        for key, row in changes.items():
            if row is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = row
        self.pending = None
        self.sequence += 1
        self.acknowledged += 1

    def batch(self) -> tuple[bytes, dict[int, Row | None]]:
        rows: list[Row] = []
        deletes: list[bool] = []
        for _ in range(self.random.randrange(1, 12)):
            number = self.random.randrange(1000)
            text = "x" * self.random.randrange(300) + str(number)
            rows.append((self.random.randrange(KEYS), text, number))
            deletes.append(self.random.random() < 0.3)
        records = self.kv.records(rows, deletes, writer_id=self.writer, sequence=self.sequence)
        changes: dict[int, Row | None] = {
            row[0]: None if gone else row for row, gone in zip(rows, deletes, strict=True)
        }
        return records, changes

    def put_until_dead(self) -> None:
        try:
            while True:
                self.put()
        except FlussError:
            pass

    @finding()
    def check(self) -> None:
        """After a restart: what is pending is sent again, then everything is compared."""
        if self.pending is not None:
            self.put()
        assert self.kv.table() == self.rows
        changes = self.kv.changelog()
        assert replayed(changes) == self.rows
        newest = self.kv.snapshots().get(0)
        if newest is None:
            return
        snapshot_id, log_offset = newest
        rows = snapshot_rows(self.kv, snapshot_id, self.folder / "snapshot")
        assert replayed(self.kv.changelog(offset=log_offset), rows) == self.rows

    def check_unless_dead(self) -> None:
        try:
            self.check()
        except FlussError:
            assert self.server.process is not None
            self.server.process.wait(30)  # it was no answer of a server that lives on


def armed(step: str) -> str:
    """Later than at first: the check after a start puts a batch too."""
    return f"{step}=kill@{9 if step == 'server.kv_snapshot.before_file' else 4}"


@contextmanager
def written(folder: Path, **env: str) -> Iterator[Writer]:
    """A writer on a new server, which is gone when the block ends."""
    server = ServerProcess(folder / "fluss", SETTINGS)
    try:
        server.start(**env)
        writer = Writer(server, folder, 1)
        yield writer
        writer.close()
    finally:
        server.kill()


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    with written(tmp_path) as made:
        yield made


def kill_at(writer: Writer, step: str) -> None:
    """Starts the server with a step armed, checks what it has, and puts until it is dead."""
    try:
        writer.start_server(SLUICE_FAILPOINTS=armed(step))
    except (FlussError, AssertionError):  # snapshots begin before anybody is connected
        if step not in SNAPSHOTS or writer.server.wait_until_dead() != -9:
            raise
    else:
        writer.check_unless_dead()
        writer.put_until_dead()
    assert writer.server.wait_until_dead() == -9


def revive(writer: Writer) -> None:
    writer.start_server()
    writer.check()


def kill_at_each(writer: Writer, steps: tuple[str, ...]) -> None:
    for step in steps:
        kill_at(writer, step)
    revive(writer)
    assert writer.acknowledged >= len(steps)


@pytest.mark.slow
def test_a_server_killed_between_log_and_store_and_behind_a_snapshots_record(
    tmp_path: Path,
) -> None:
    first, second = "server.put_kv.after_log", "server.kv_snapshot.after_record"
    with written(tmp_path, SLUICE_FAILPOINTS=armed(first)) as writer:
        writer.put_until_dead()
        assert writer.server.wait_until_dead() == -9
        kill_at(writer, second)
        revive(writer)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [PUTS, SNAPSHOTS], ids=["puts", "snapshots"])
def test_a_server_killed_at_each_step(writer: Writer, steps: tuple[str, ...]) -> None:
    kill_at_each(writer, steps)


BIG_ROWS = [(b"%06d" % number, bytes(2000)) for number in range(5000)]


def _close_store(folder: Path, ready: Connection) -> None:
    store = KvStore(folder, _resources())
    store.write(BIG_ROWS, [], 7)
    ready.send(None)
    store.close()
    ready.send(None)
    threading.Event().wait()


def _resources() -> KvResources:
    return KvResources(block_cache_bytes=1 << 20, write_buffer_bytes=256 << 20, open_max=1)


@pytest.mark.slow
def test_a_store_killed_while_it_is_closed_has_the_rows_that_its_offset_tells_of(
    tmp_path: Path,
) -> None:
    """The writing of its rows takes longest, so that some of the kills come while it is on."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["sluice.server.tablet.kv.store"])
    for number in range(6):
        folder = tmp_path / str(number)
        ready, there = context.Pipe(duplex=False)
        process = context.Process(target=_close_store, args=(folder, there), daemon=True)
        with ready:
            process.start()
            there.close()
            assert ready.poll(60)
            ready.recv()
            ready.poll(0.02 * number)
            process.kill()
            process.join()
        process.close()
        store = KvStore(folder, _resources())
        rows = store.get([key for key, _ in BIG_ROWS])
        assert store.log_offset in (0, 7)
        assert store.log_offset == 0 or all(rows), f"{number}: offset without rows"
        store.close()


@pytest.mark.slow
def test_a_server_killed_while_it_catches_up(writer: Writer) -> None:
    writer.start_server(SLUICE_SERVER_KV_SNAPSHOT_INTERVAL_MS="0")
    for _ in range(30):
        writer.put()
    writer.start_server(
        SLUICE_FAILPOINTS="server.kv_replay.after_batch=kill@3",
        SLUICE_SERVER_KV_SNAPSHOT_INTERVAL_MS="0",
    )
    writer.put_until_dead()
    assert writer.server.wait_until_dead() == -9
    revive(writer)
