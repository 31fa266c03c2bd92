"""kill -9 at a hundred places and moments while several writers put, and snapshots are taken.

Three writers change the same keys of four buckets, under both images of the changelog: whole rows,
some columns, deletes, one or two buckets in a request. Snapshots are taken all the time, old ones
deleted, and stores closed for one another. Then the server dies, or a put fails on its way, and
what was not acknowledged is sent again.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sluice.errors import FlussError
from sluice.model import TableDescriptor
from tests.faults.scenes.kv_history import BUCKETS, IMAGES, TIMEOUT_MS, Checker, Model, Writer
from tests.faults.scenes.kv_steps import PUTS, SNAPSHOTS
from tests.support.programs.forked_server import ForkedServer, NotStarted
from tests.unit.server.kv_support import KEYED
from tests.unit.server.support import Caller

RUNS = 25
WRITERS = 3
SETTINGS = {
    "kv_snapshot_interval_ms": 15,
    # one more than usual: the check reads the newest one without a lease, while two more may come
    "kv_snapshot_num_retained": 3,
    "kv_write_buffer_bytes": 65_536,
    "kv_max_open_tablets": 3,
    "segment_bytes": 20_000,
}


class Scene:
    """A server, its writers, and what they have been acknowledged."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.server = ForkedServer(folder / "fluss", **SETTINGS)
        self.server.start()
        caller = Caller(self.server.address, timeout_ms=TIMEOUT_MS)
        for image, path in IMAGES.items():
            properties = {"table.changelog.image": image}
            table = TableDescriptor(KEYED, bucket_count=BUCKETS, properties=properties)
            caller.create_table(path, table)
        caller.transport.close()
        self.model = Model()
        self.checker = Checker(self.model, folder)
        self.writers = [
            Writer(self.model, self.server, self.random.randrange(2**32)) for _ in range(WRITERS)
        ]

    def restart(self, failpoints: str = "") -> None:
        self.server.kill()
        self.server.start(failpoints)
        for writer in self.writers:
            writer.close()
            writer.connect()

    def check(self, *, whole: bool = False) -> None:
        """Sends again what is pending, then compares. :raises FlussError: the server has died."""
        for writer in self.writers:
            writer.send_again()
        self.checker.check(self.writers[0].tables, whole=whole)

    def run(self, kill_at: str, fail_at: str) -> None:
        """Kills the server at a step, or at any moment once a put has failed at another step."""
        rand = self.random
        if kill_at:
            # behind the check; that of snapshots may come inside it
            passage = rand.randrange(20, 60) if kill_at in PUTS else rand.randrange(1, 8)
            failpoints = f"{kill_at}=kill@{passage}"
        else:
            failpoints = f"{fail_at}=raise@{rand.randrange(20, 60)}"
        try:
            self.restart(failpoints)
            self.check()
        except (FlussError, NotStarted):  # it was no answer of a server that lives on
            assert kill_at in SNAPSHOTS, self.server.log_text[-5000:]
            assert self.server.wait_until_dead() == -9
            self.model.count("killed during a check")
            return
        with self._writing() as failed:
            if kill_at:
                assert self.server.wait_until_dead() == -9
                self.model.count(f"killed at {kill_at}")
            else:
                assert failed.wait(180), "no put has failed"
                threading.Event().wait(rand.uniform(0, 0.2))  # any moment
                self.server.kill_running()

    @contextmanager
    def _writing(self) -> Iterator[threading.Event]:
        """Lets the writers put until the server is dead; the event says that a put has failed."""
        failed, errors = threading.Event(), list[BaseException]()

        def put(writer: Writer) -> None:
            try:
                writer.put_until_dead(failed.set)
            except BaseException as error:
                errors.append(error)
                self.server.kill_running()  # nobody shall wait for what will not come

        threads = [threading.Thread(target=put, args=(writer,)) for writer in self.writers]
        for thread in threads:
            thread.start()
        try:
            yield failed
        finally:
            self.server.kill_running()
            for thread in threads:
                thread.join()
        assert not errors, errors

    def close(self) -> None:
        for writer in self.writers:
            writer.close()
        self.server.kill()


@contextmanager
def played(folder: Path, seed: int) -> Iterator[Scene]:
    scene = Scene(folder, seed)
    try:
        yield scene
    finally:
        scene.close()


def plan(rand: random.Random) -> list[tuple[str, str]]:
    """Where each run kills, or (then at any moment) where a put fails: every step at least once."""
    steps = [*PUTS, *SNAPSHOTS]
    failing = [rand.choice(PUTS) for _ in range(RUNS - len(steps) - len(PUTS))]
    runs = [(step, "") for step in steps] + [("", step) for step in (*PUTS, *failing)]
    rand.shuffle(runs)
    return runs


@pytest.mark.slow
def test_several_writers_and_a_server_killed_where_the_answer_is_lost(tmp_path: Path) -> None:
    with played(tmp_path, 1) as scene:
        for step in ("server.put_kv.after_log", "server.put_kv.after_store"):
            scene.run(step, "")
        scene.restart()
        scene.check(whole=True)
        assert scene.model.seen["stored before"] >= 2


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(4))
def test_a_server_killed_at_random_a_hundred_times(tmp_path: Path, seed: int) -> None:
    with played(tmp_path, seed) as scene:
        for kill_at, fail_at in plan(scene.random):
            scene.run(kill_at, fail_at)
        scene.restart()
        scene.check(whole=True)
        check_all_occurred(scene)


def check_all_occurred(scene: Scene) -> None:
    """A run in which nothing happens would show nothing."""
    seen = scene.model.seen
    for what in ("insert", "whole row", "partial update", "partial delete", "delete"):
        assert seen[what] >= 20, (what, seen)
    assert seen["check"] + seen["killed during a check"] == RUNS + 1
    assert seen["check"] > RUNS - len(SNAPSHOTS)
    assert all(seen[f"killed at {step}"] for step in PUTS), seen
    # a kill behind the log loses an answer, one before it loses the put; a failure does the same
    assert seen["stored before"] >= 3, seen
    assert seen["not stored before"] >= 1, seen
    assert seen["failed"] >= RUNS - len(PUTS) - len(SNAPSHOTS), seen
    assert seen["new snapshot"] >= len(PUTS), seen
    log = scene.server.log_text
    for words in ("KV snapshot taken", "KV store caught up"):
        assert words in log
