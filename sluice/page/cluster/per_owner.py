"""One value for each living object: for what is kept of a cluster as long as its client is open."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

K = TypeVar("K")
V = TypeVar("V")


class PerOwner(Generic[K, V]):
    """Values by their owner. Safe for use by many threads.

    A value ends with its owner, and so do the threads of a pool that only the value holds. A value
    that refers to its owner would keep both for ever.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: WeakKeyDictionary[K, V] = WeakKeyDictionary()

    def of(self, owner: K, make: Callable[[], V]) -> V:
        """The value of an owner.

        :param make: called if there is none yet, once for each owner. It should take no time, for
            the owners have one lock.
        """
        with self._lock:
            if owner not in self._values:
                self._values[owner] = make()
            return self._values[owner]
