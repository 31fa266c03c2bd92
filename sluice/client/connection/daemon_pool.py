"""A pool whose threads end with the program: a call that hangs does not keep Python running."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class DaemonPool:
    """Calls on few daemon threads. They end when nothing waits. Safe for use by many threads."""

    def __init__(self, threads: int, name: str) -> None:
        self._most, self._name = threads, name
        self._lock = threading.Lock()  # guards the rest
        self._running = 0
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Calls it as soon as a thread is free."""
        result: Future[T] = Future()
        with self._lock:
            self._waiting.append((result, call))
            if self._running < self._most:
                threading.Thread(target=self._work, name=self._name, daemon=True).start()
                self._running += 1
        return result

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._running -= 1
                    return
                result, call = self._waiting.popleft()
            if result.set_running_or_notify_cancel():
                _run(result, call)
            del result, call  # the next wait keeps nothing of them


def _run(result: Future[T], call: Callable[[], T]) -> None:
    try:
        value = call()
    except BaseException as error:
        result.set_exception(error)
    else:
        result.set_result(value)
