"""Runs an iterator on a background thread, a few items ahead of its consumer."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


def prefetched(
    make: Callable[[threading.Event], Iterator[T]], depth: int, name: str
) -> Generator[T, None, None]:
    """Yields the items of an iterator, while a thread fetches at most ``depth`` items ahead.

    An error of the iterator is raised after the items before it. If the consumer stops early, the
    thread ends after the current item.

    :param make: creates the iterator; its argument is an event that is set once the consumer stops.
    """
    buffer: _BoundedBuffer[T] = _BoundedBuffer(depth)
    thread = threading.Thread(target=_fill, args=(make, buffer), name=name, daemon=True)
    thread.start()
    try:
        yield from buffer.items()
    finally:
        buffer.abandon()


def _fill(make: Callable[[threading.Event], Iterator[T]], buffer: _BoundedBuffer[T]) -> None:
    try:
        for item in make(buffer.abandoned):
            if not buffer.put(item):
                return
        buffer.end(None)
    except BaseException as error:  # raised to the consumer
        buffer.end(error)


class _BoundedBuffer(Generic[T]):
    """A bounded queue between one producer and one consumer."""

    def __init__(self, depth: int) -> None:
        self.abandoned = threading.Event()
        self._depth = depth
        self._changed = threading.Condition()  # guards the rest
        self._items: deque[T] = deque()
        self._ended = False
        self._error: BaseException | None = None

    def put(self, item: T) -> bool:
        """Waits for room and adds an item; returns False once the consumer stopped."""
        with self._changed:
            self._changed.wait_for(
                lambda: len(self._items) < self._depth or self.abandoned.is_set()
            )
            self._items.append(item)
            self._changed.notify_all()
            return not self.abandoned.is_set()

    def end(self, error: BaseException | None) -> None:
        with self._changed:
            self._ended, self._error = True, error
            self._changed.notify_all()

    def items(self) -> Iterator[T]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._items or self._ended)
                if not self._items:
                    if self._error is not None:
                        raise self._error
                    return
                item = self._items.popleft()
                self._changed.notify_all()
            yield item
            del item  # or it would stay in memory while the next one is awaited

    def abandon(self) -> None:
        with self._changed:
            self.abandoned.set()
            self._items.clear()
            self._changed.notify_all()
