"""What requests of the page may ask the cluster, so that one that hangs stops nothing else.

Such a request holds a thread of the server until the cluster answers. In Airflow, the threads are
those of its own API, too. So few wait at once, a read waits for a short time only, and what was
read before is told again where nothing newer can be read.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable
from concurrent.futures import wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

from fastapi import Depends, HTTPException, Request

from sluice.client import Client
from sluice.client.connection.daemon_pool import DaemonPool
from sluice.errors import (
    AuthenticateError,
    AuthorizationError,
    DatabaseNotExist,
    InvalidDatabase,
    InvalidTable,
    KvStorageError,
    LeaderNotAvailable,
    LogStorageError,
    NetworkError,
    NotLeaderOrFollower,
    RequestTimeOut,
    StatusUnreadable,
    StorageError,
    TableNotExist,
)
from sluice.masking import reason_text
from sluice.model import TablePath
from sluice.page.cluster.models import Old
from sluice.page.cluster.per_owner import PerOwner
from sluice.page.requests.ports import AtPlace, Place

AT_ONCE = 8
"""Requests that wait for one cluster."""
AT_ONCE_IN_ALL = 16
"""Requests that wait for any cluster: less than half of a server's threads."""
READ_MS = 4_000
"""Longest wait for a read, whatever it calls: a view asks again after five seconds. Actions wait as
long as the client of the place does."""
AWAY_MS = 30_000
"""After this time it is not known any more that a cluster is away."""
KEPT_MAX = 100
"""Reads of one cluster that are kept, the last ones."""
KEPT_SPLITS_MAX = 10_000
"""Splits of all these reads together: a thousand take about 1.3 MB."""
BUSY = f"{AT_ONCE} requests of the page wait for the cluster already: try again in some seconds"
AWAY = (
    NetworkError,
    RequestTimeOut,
    LeaderNotAvailable,
    NotLeaderOrFollower,
    StorageError,
    LogStorageError,
    KvStorageError,
    StatusUnreadable,
)
"""Errors that say nothing of what was read before."""
_GONE = (
    TableNotExist,
    DatabaseNotExist,
    InvalidDatabase,
    InvalidTable,
    AuthenticateError,
    AuthorizationError,
)
"""Errors after which nothing that was read before is told."""

T = TypeVar("T")


class What(NamedTuple):
    """What is read. It names no viewer: what only some may see is left out afterwards."""

    name: str
    path: TablePath | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Known(Generic[T]):
    """What was read of the cluster: just now, or earlier."""

    value: T
    old: Old | None = None
    """When it was read, and why not now; None: now."""


@dataclass(frozen=True, slots=True)
class _KeptRead:
    value: Any
    read_ms: int
    number: int
    table_id: int | None
    """Id of the table of its path, as the background reader knew it. None: the table was not tiered
    or not known, or the read is of no table."""
    splits: int


class _Kept:
    """The last reads of one cluster. Safe for use by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reads: OrderedDict[What, _KeptRead] = OrderedDict()
        self._begun = 0
        self._forgotten: OrderedDict[Hashable, int] = OrderedDict()
        """By path or name: the number of the last read that had begun by then."""

    def begin(self) -> int:
        """The number of a read that begins: a later one has a higher number."""
        with self._lock:
            self._begun += 1
            return self._begun

    def put(self, what: What, read: _KeptRead) -> None:
        """Keeps a read, unless a later one is kept, or it was forgotten while it was made."""
        with self._lock:
            forgotten = max(self._forgotten.get(key, 0) for key in (what.name, what.path))
            known = self._reads.get(what)
            if read.number <= forgotten or (known is not None and known.number > read.number):
                return
            self._reads[what] = read
            self._reads.move_to_end(what)
            while len(self._reads) > KEPT_MAX or (
                sum(each.splits for each in self._reads.values()) > KEPT_SPLITS_MAX
            ):
                self._reads.popitem(last=False)

    def get(self, what: What) -> _KeptRead | None:
        with self._lock:
            if what in self._reads:
                self._reads.move_to_end(what)
            return self._reads.get(what)

    def forget(self, of: TablePath | str) -> None:
        """Forgets all reads of a table or of a name, also those that are being made."""
        with self._lock:
            for what in [what for what in self._reads if of in (what.name, what.path)]:
                del self._reads[what]
            self._forgotten.pop(of, None)
            self._forgotten[of] = self._begun
            while len(self._forgotten) > KEPT_MAX:
                self._forgotten.popitem(last=False)


@dataclass(frozen=True, slots=True)
class _OfCluster:
    slots: threading.BoundedSemaphore = field(
        default_factory=lambda: threading.BoundedSemaphore(AT_ONCE)
    )
    kept: _Kept = field(default_factory=_Kept)
    pool: DaemonPool = field(default_factory=lambda: DaemonPool(AT_ONCE, "sluice-page-read"))
    """A read that takes too long ends there, and is kept then."""


class Calls:
    """The reads of one request."""

    def __init__(self, place: Place, why_not: Exception | None = None) -> None:
        """:param why_not: the cluster is not called, because of this error."""
        self._place, self._why_not = place, why_not
        self._of_cluster = _of_clusters.of(place.client, _OfCluster)
        self._kept = self._of_cluster.kept

    def read(
        self,
        what: What,
        do: Callable[[Client], T],
        *,
        is_kept: bool = True,
        shared_ms: int = 0,
        splits: Callable[[T], int] = lambda _: 0,
    ) -> Known[T]:
        """What ``do`` reads, or what it read before if the cluster does not answer in time.

        :param do: called on another thread, with a client whose calls are short.
        :param is_kept: whether it may be told later.
        :param shared_ms: what was read at most so long ago is told as if it were read now.
        :param splits: counts the splits in what was read.
        :raises NetworkError, RequestTimeOut, HTTPException: it was not read before.
        :raises SluiceError: any other error of ``do``.
        """
        error = self._why_not
        if error is None:
            kept = self._before(what) if is_kept and shared_ms else None
            if kept is not None and 0 <= self._place.clock.now_ms() - kept.read_ms < shared_ms:
                return Known(kept.value)
            try:
                return Known(self._in_time(what, do, splits if is_kept else None))
            except AWAY as away:
                error = away
        kept = self._before(what) if is_kept else None
        if kept is None:
            raise error
        return Known(kept.value, old(kept.read_ms, error))

    def _before(self, what: What) -> _KeptRead | None:
        """What was read before, unless it was of another table of this name."""
        kept = self._kept.get(what)
        if kept is not None and what.path and self._is_other(what.path, kept.table_id):
            self._kept.forget(what.path)
            return None
        return kept

    def forget(self, of: TablePath | str) -> None:
        """What was read of a table, or under a name, is not told any more."""
        self._kept.forget(of)

    def _in_time(
        self, what: What, do: Callable[[Client], T], splits: Callable[[T], int] | None
    ) -> T:
        """:raises RequestTimeOut: the read takes too long; it is kept once it ends."""
        client, kept, number = self._place.client.within(READ_MS), self._kept, self._kept.begin()
        read_ms, before_id = self._place.clock.now_ms(), self._table_id(what.path)

        def read() -> T:
            try:
                found = do(client)
            except _GONE:
                kept.forget(what.path or what.name)
                raise
            if splits is not None:
                table_id = self._table_id(what.path) if before_id is None else before_id
                kept.put(what, _KeptRead(found, read_ms, number, table_id, splits(found)))
            return found

        reading = self._of_cluster.pool.submit(read)
        wait([reading], READ_MS / 1000)
        if reading.done():
            return reading.result()
        reading.cancel()
        raise RequestTimeOut(
            f"the cluster did not answer all calls of this read within {READ_MS} ms"
        )

    def _table_id(self, path: TablePath | None) -> int | None:
        seen = None if path is None else self._place.reader.seen.tables.get(path)
        return None if seen is None else seen.status.table_id

    def _is_other(self, path: TablePath, table_id: int | None) -> bool:
        """Whether what was read is of a table that is known to be gone."""
        seen = self._place.reader.seen
        if path not in seen.tables:
            return seen.is_complete and table_id is not None
        return seen.tables[path].status.table_id != table_id


def old(read_ms: int, error: Exception) -> Old:
    """That an answer was read earlier, and why."""
    why = error.detail if isinstance(error, HTTPException) else str(error)
    return Old(read_ms=read_ms, why=reason_text(why))


_in_all = threading.BoundedSemaphore(AT_ONCE_IN_ALL)
_of_clusters: PerOwner[Client, _OfCluster] = PerOwner()


async def _bounded(request: Request, place: AtPlace) -> AsyncIterator[Calls]:
    """Stops requests that would wait, before they take a thread.

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
