"""In which order waiting calls get a worker."""

from __future__ import annotations

import asyncio
import queue
import threading

from sluice.wire.listeners.fair_turns import FairTurns, LoopTurns, Turns
from tests.support.programs.processes import wait_for


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
        wait_for("it", lambda number=number: len(turns._waiting) == number)
    order = []
    for _ in calls:
        turns.give_back()
        order.append(began.get(timeout=60))
    assert order == ["greedy", "small", "greedy", "greedy", "greedy"]
    for _ in range(2):
        turns.give_back()
    assert not turns.take("small")
    assert not turns.take("small")


def test_the_oldest_of_the_party_that_has_the_most_is_dropped() -> None:
    turns = Turns[int]()
    for party, item in (("small", 1), ("greedy", 2), ("greedy", 3), ("greedy", 4), ("small", 5)):
        turns.add(party, item)
    assert [turns.drop_one(), turns.next(), turns.drop_one()] == [2, 1, 3]
    assert [turns.next() for _ in range(len(turns))] == [4, 5]
    assert not turns


def test_tasks_take_turns_and_one_that_is_cancelled_takes_no_worker() -> None:
    began: list[str] = []

    async def call(turns: LoopTurns, party: str) -> None:
        await turns.take(party)
        began.append(party)

    async def scene() -> None:
        turns = LoopTurns(1)
        await turns.take("greedy")
        tasks = [
            asyncio.create_task(call(turns, party)) for party in ["greedy"] * 4 + ["small", "gone"]
        ]
        await asyncio.sleep(0)
        assert len(turns) == 6
        tasks.pop().cancel()
        for _ in range(5):
            turns.give_back()
            await asyncio.sleep(0)
        assert began == ["greedy", "small", "greedy", "greedy", "greedy"]
        await asyncio.gather(*tasks)
        cut = asyncio.create_task(call(turns, "cut"))
        last = asyncio.create_task(call(turns, "last"))
        await asyncio.sleep(0)
        turns.give_back()  # to one that is cancelled before it goes on
        cut.cancel()
        await asyncio.wait_for(last, 60)
        assert began[5:] == ["last"]
        turns.give_back()
        await asyncio.wait_for(turns.take("free"), 60)

    asyncio.run(scene())
