"""What requests of the page may ask the cluster, so that one that hangs stops nothing else.

Such a request holds a thread of the server until the cluster answers. In Airflow, the threads are
those of its own API, too. So few wait at once, a read waits for a short time only, and what was
read before is told again where nothing newer can be read.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Depends, HTTPException, Request

from sluice.client import Client
from sluice.errors import LeaderNotAvailable, NetworkError, RequestTimeOut, StatusUnreadable
from sluice.masking import reason_text
from sluice.page.models import Old
from sluice.page.per_owner import PerOwner
from sluice.page.ports import AtPlace, Place

AT_ONCE = 8
"""Requests that wait for one cluster."""
AT_ONCE_IN_ALL = 16
"""Requests that wait for any cluster: less than half of a server's threads."""
READ_MS = 4_000
"""Longest call of a read: a view asks again after five seconds. Actions wait as long as the client
of the place does."""
AWAY_MS = 30_000
"""After this time it is not known any more that a cluster is away."""
KEPT_MAX = 100
"""Reads of one cluster that are kept, the last ones: each has at most some 100 kB."""
BUSY = f"{AT_ONCE} requests of the page wait for the cluster already: try again in some seconds"
AWAY = (NetworkError, RequestTimeOut, LeaderNotAvailable, StatusUnreadable)
"""Errors that say nothing of what was read before."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Known(Generic[T]):
    """What was read of the cluster: just now, or earlier."""

    value: T
    old: Old | None = None
    """When it was read, and why not now; None: now."""


class _Kept:
    """The last reads of one cluster. Safe for use by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reads: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def put(self, key: Hashable, value: Any, read_ms: int) -> None:
        with self._lock:
            self._reads[key] = value, read_ms
            self._reads.move_to_end(key)
            while len(self._reads) > KEPT_MAX:
                self._reads.popitem(last=False)

    def get(self, key: Hashable) -> tuple[Any, int] | None:
        with self._lock:
            if key in self._reads:
                self._reads.move_to_end(key)
            return self._reads.get(key)

    def forget(self, key: Hashable) -> None:
        with self._lock:
            self._reads.pop(key, None)


@dataclass(frozen=True, slots=True)
class _OfCluster:
    slots: threading.BoundedSemaphore = field(
        default_factory=lambda: threading.BoundedSemaphore(AT_ONCE)
    )
    kept: _Kept = field(default_factory=_Kept)


class Calls:
    """The reads of one request."""

    def __init__(self, place: Place, why_not: Exception | None = None) -> None:
        """:param why_not: the cluster is not called, because of this error."""
        self._place, self._why_not = place, why_not
        self._kept = _of_clusters.of(place.client, _OfCluster).kept

    def read(self, key: Hashable, do: Callable[[Client], T]) -> Known[T]:
        """What ``do`` reads, or what it read before if the cluster does not answer.

        :param key: names what is read, and of which table. It names no viewer: what only some may
            see is left out afterwards.
        :param do: called with a client whose calls are short.
        :raises NetworkError, RequestTimeOut, HTTPException: it was not read before.
        :raises SluiceError: any other error of ``do``.
        """
        error = self._why_not
        if error is None:
            read_ms = self._place.clock.now_ms()
            try:
                value = do(self._place.client.within(READ_MS))
            except AWAY as away:
                error = away
            except Exception:
                self._kept.forget(key)
                raise
            else:
                self._kept.put(key, value, read_ms)
                return Known(value)
        kept = self._kept.get(key)
        if kept is None:
            raise error
        return Known(kept[0], old(kept[1], error))


def old(read_ms: int, error: Exception) -> Old:
    """That an answer was read earlier, and why."""
    why = error.detail if isinstance(error, HTTPException) else str(error)
    return Old(read_ms=read_ms, why=reason_text(why))


_in_all = threading.BoundedSemaphore(AT_ONCE_IN_ALL)
_of_clusters: PerOwner[Client, _OfCluster] = PerOwner()


async def _bounded(request: Request, place: AtPlace) -> AsyncIterator[Calls]:
    """Keeps what would wait from it at once: asynchronous, so that it needs no thread itself.

    :raises HTTPException: 503; too many wait, and this is an action.
    """
    is_read = request.method == "GET"
    seen = place.reader.seen
    is_away = seen.away_ms is not None and place.clock.now_ms() - seen.away_ms < AWAY_MS
    if is_away and is_read:  # an action is tried nevertheless
        yield Calls(place, NetworkError(f"the cluster did not answer lately: {seen.error}"))
        return
    of_cluster = _of_clusters.of(place.client, _OfCluster)
    with ExitStack() as held:
        for slots in (of_cluster.slots, _in_all):
            if not slots.acquire(blocking=False):
                busy = HTTPException(503, BUSY, headers={"Retry-After": "2"})
                if not is_read:
                    raise busy
                yield Calls(place, busy)
                return
            held.callback(slots.release)
        yield Calls(place)


CALLS_CLUSTER = Depends(_bounded)
"""For each path that calls the cluster."""
ByCalls = Annotated[Calls, CALLS_CLUSTER]
"""For each path that reads the cluster by :meth:`Calls.read`."""
