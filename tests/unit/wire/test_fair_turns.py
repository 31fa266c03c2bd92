"""In which order waiting calls get a worker."""

from __future__ import annotations

import queue
import threading

from sluice.wire.fair_turns import FairTurns
from tests.support.processes import wait_for


def test_peers_take_turns() -> None:
    """One peer has all workers and four calls waiting; another's only call comes second."""
    turns = FairTurns(2)
    assert not turns.take("greedy")
    assert not turns.take("greedy")
    began: queue.SimpleQueue[str] = queue.SimpleQueue()

    def call(peer: str) -> None:
        assert turns.take(peer)
        began.put(peer)

    calls = []
    for number, peer in enumerate(["greedy"] * 4 + ["small"], 1):
        calls.append(threading.Thread(target=call, args=(peer,)))
        calls[-1].start()
        wait_for("it", lambda number=number: sum(map(len, turns._waiting.values())) == number)
    order = []
    for _ in calls:
        turns.give_back()
        order.append(began.get(timeout=60))
    assert order == ["greedy", "small", "greedy", "greedy", "greedy"]
    for _ in range(2):
        turns.give_back()
    assert not turns.take("small")
    assert not turns.take("small")
