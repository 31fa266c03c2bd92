"""A time limit for a sequence of steps, some of which may hang: a stop of the server has one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import TypeVar

from sluice.clock import Clock

Item = TypeVar("Item")


class TimeLimit:
    """Runs steps until a time. A step that has not ended by then goes on, on a daemon thread."""

    def __init__(self, within_s: float | None, clock: Clock) -> None:
        """:param within_s: time from now on; None: no limit."""
        self._clock = clock
        self._end_s = None if within_s is None else clock.monotonic_s() + within_s

    def left_s(self) -> float | None:
        """The time that is left, not below 0; None: no limit."""
        return None if self._end_s is None else max(self._end_s - self._clock.monotonic_s(), 0.0)

    def run(self, *steps: Callable[[], object]) -> bool:
        """Runs steps in order; returns whether all of them have ended in time."""

        def run_all() -> None:
            for step in steps:
                step()

        return self.each([run_all], lambda run: run(), 1) == 0

    def each(self, items: Iterable[Item], action: Callable[[Item], object], threads: int) -> int:
        """Runs an action for each item, on several threads; returns how many have not ended.

        Items whose turn comes too late are left out. If an action raises, the error is raised here,
        after the others.
        """
        waiting: SimpleQueue[Item] = SimpleQueue()
        for item in items:
            waiting.put(item)
        left = waiting.qsize()
        lock = threading.Lock()  # guards `left` and `errors`
        errors: list[BaseException] = []

        def work() -> None:
            nonlocal left
            while self.left_s() != 0:
                try:
                    item = waiting.get_nowait()
                except Empty:
                    return
                try:
                    action(item)
                except BaseException as error:
                    with lock:
                        errors.append(error)
                with lock:
                    left -= 1

        workers = [
            threading.Thread(target=work, name="time-limit", daemon=True)
            for _ in range(min(threads, left))
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(self.left_s())
        with lock:
            if errors:
                raise errors[0]
            return left
