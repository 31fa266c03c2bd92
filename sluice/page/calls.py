"""Bounds the requests that wait for the cluster, so that one that hangs stops nothing else.

Such a request holds a thread of the server until the cluster answers. In Airflow, the threads are
those of its own API, too.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import ExitStack

from fastapi import Depends, HTTPException, Request

from sluice.client import Client
from sluice.errors import NetworkError
from sluice.page.per_owner import PerOwner
from sluice.page.ports import AtPlace

AT_ONCE = 8
"""Requests that wait for one cluster."""
AT_ONCE_IN_ALL = 16
"""Requests that wait for any cluster: less than half of a server's threads."""
AWAY_MS = 30_000
"""After this time it is not known any more that a cluster is away."""
BUSY = f"{AT_ONCE} requests of the page wait for the cluster already: try again in some seconds"

_in_all = threading.BoundedSemaphore(AT_ONCE_IN_ALL)
_of_clusters: PerOwner[Client, threading.BoundedSemaphore] = PerOwner()


async def _bounded(request: Request, place: AtPlace) -> AsyncIterator[None]:
    """Refuses at once what would wait: asynchronous, so that it needs no thread itself.

    :raises HTTPException: 503; too many wait.
    :raises NetworkError: the reader knows that the cluster is away.
    """
    seen = place.reader.seen
    is_away = seen.away_ms is not None and place.clock.now_ms() - seen.away_ms < AWAY_MS
    if is_away and request.method == "GET":  # an action is tried nevertheless
        raise NetworkError(f"the cluster did not answer lately: {seen.error}")
    of_cluster = _of_clusters.of(place.client, lambda: threading.BoundedSemaphore(AT_ONCE))
    with ExitStack() as held:
        for slots in (of_cluster, _in_all):
            if not slots.acquire(blocking=False):
                raise HTTPException(503, BUSY, headers={"Retry-After": "2"})
            held.callback(slots.release)
        yield


CALLS_CLUSTER = Depends(_bounded)
"""For each path that calls the cluster."""
