"""kill -9 of the server while leases run out, and while what they held is deleted."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sluice.leases import RESTART_GRACE_MS
from tests.faults.scenes.lease_history import DAY_MS, DEAD, MINUTE_MS, STEPS_MS, History
from tests.support.programs.clocked_server import ClockedServerProcess

SHORT, LONG = "short", "long"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ClockedServerProcess]:
    process = ClockedServerProcess(tmp_path / "data")
    yield process
    process.kill()


@pytest.mark.parametrize(
    ("failpoint", "is_stored"),
    [
        ("server.lease.before_commit=kill@3", False),  # after the two acquires
        pytest.param("server.lease.after_commit=kill@3", True, marks=pytest.mark.long),
        pytest.param("server.kv_snapshot.before_delete=kill", True, marks=pytest.mark.long),
    ],
)
def test_killed_while_a_lease_expires(
    server: ClockedServerProcess, failpoint: str, is_stored: bool
) -> None:
    """Two leases on snapshots that are kept for nothing else; one of them ends."""
    history = History(server, failpoints=failpoint)
    with history.connected():
        history.put_everywhere()
        history.acquire(SHORT, MINUTE_MS, history.buckets)
        history.acquire(LONG, DAY_MS, history.buckets[:1])
        history.put_everywhere()
        assert [len(ids) for ids in history.snapshots().values()] == [2, 2, 2]
        history.let_pass(RESTART_GRACE_MS - 1)
        history.agree()  # one is over, but the server has not run for long enough
        with suppress(*DEAD):  # deletion comes after the answer
            history.let_pass(1)
    assert server.wait_until_dead(60) == -9
    history.look()
    assert history.model.held.keys() == ({LONG} if is_stored else {SHORT, LONG})
    history.start()
    with history.connected():
        history.let_pass(RESTART_GRACE_MS - 1)
        history.agree()
        history.let_pass(1)
        assert history.model.held.keys() == {LONG}
        history.agree()
        history.settle()
        assert [len(ids) for ids in history.snapshots().values()] == [2, 1, 1]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_leases_come_and_run_out_between_kills(server: ClockedServerProcess) -> None:
    history = History(server, seed=5)
    for _ in range(10):
        process = server.process
        assert process is not None
        with history.connected():
            history.agree()
            history.put_everywhere()
            history.acquire(SHORT, MINUTE_MS, history.buckets)
            history.let_pass(RESTART_GRACE_MS)
            assert SHORT not in history.model.held
            for _ in range(history.random.randint(1, 20)):
                history.step()
            timer = threading.Timer(history.random.uniform(0, 0.1), process.kill)
            timer.start()
            with suppress(*DEAD):
                while True:
                    history.step()
        assert server.wait_until_dead(60) == -9
        timer.join()
        history.look()
        server.clock.move(history.random.choice(STEPS_MS))
        history.start()
    with history.connected():
        history.agree()
        history.let_pass(2 * DAY_MS)
        assert history.model.held == {}
        history.settle()
