"""Reads in the background what people look at: one table at a time, the most urgent first."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from sluice.client.statuses.lag import LAG_ERRORS, Lag
from sluice.client.statuses.watch import StatusWatch, WatchedTable
from sluice.clock import Clock
from sluice.errors import NetworkError, RequestTimeOut, TableNotExist
from sluice.masking import mask
from sluice.model import TablePath
from sluice.model.round_record import ROUNDS_KEPT
from sluice.page.cluster.round_cache import SHOWN, RoundCache, RoundPoint, failing_since_ms
from sluice.page.cluster.seen import SeenStore, SeenTable

_LOG = logging.getLogger(__name__)

THREADS = 2
"""Calls at the same time."""
STEP = 32
"""Tables of one step, after which more urgent ones come first."""
ROUNDS_STEP = 100
LOOKED_MAX = 1_000
"""Most tables that count as looked at, and most whose rounds are wanted: the newest."""
LOOKED_S = 15.0
"""How long a table counts as looked at: a page asks again within this time."""
LOOKED_EVERY_S = 5.0
"""The lag of a table that is looked at is read again after this time."""
OTHERS_EVERY_S = 60.0
"""The lag of any other table is not read again before."""
SHARE = 3
"""Reading lags that nobody looks at is followed by a pause of this many times its own time."""
PUBLISHED_EVERY_S = 0.5
"""Lags that nobody looks at are published together."""
AWAY_S = 5.0
"""Pause after the cluster did not answer."""
UNREACHED_AGAIN_S = 60.0
"""A table whose server did not answer is not tried before, whoever looks: each try takes long."""
UNREACHED_MAX = 4
"""So many tables in a row without an answer: the cluster is away, and not one of its servers."""


class DetailReader:
    """One thread with few helpers. Safe for use by many threads."""

    def __init__(
        self, watch: StatusWatch, store: SeenStore, clock: Clock, rest: Callable[[], bool]
    ) -> None:
        """:param rest: waits while nobody asks; returns whether to go on."""
        self._watch, self._store, self._clock, self._rest = watch, store, clock, rest
        self._rounds = RoundCache()
        self._lock = threading.Condition()  # guards what others ask for
        self._stopped = False
        self._urgent: dict[TablePath, threading.Event] = {}
        self._looked: dict[TablePath, float] = {}
        self._wanted: dict[TablePath, SeenTable] = {}
        self._known: dict[TablePath, WatchedTable] = {}  # read without the lock
        # The rest belongs to the thread alone.
        self._tried_s: dict[TablePath, float] = {}
        self._unreached_s: dict[TablePath, float] = {}
        self._since_tried_s: dict[TablePath, float] = {}
        self._turn: deque[TablePath] = deque()
        self._unpublished: dict[TablePath, tuple[int, Lag | None, int]] = {}
        self._published_s = 0.0
        self._has_read_rounds = False  # by the last step
        self._thread = threading.Thread(target=self._run, name="sluice-page-details", daemon=True)
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="sluice-page-lag")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            self._lock.notify_all()

    def join(self) -> None:
        self._thread.join()
        self._pool.shutdown(cancel_futures=True)

    # ---- what others ask for ----

    def know(self, tables: Iterable[WatchedTable]) -> None:
        """Descriptions of tables on Apache Fluss, whose lags are read one by one."""
        with self._lock:
            self._known.update((table.path, table) for table in tables)
            self._lock.notify_all()

    def look_at(self, paths: Iterable[TablePath]) -> None:
        now_s = time.monotonic()
        with self._lock:
            for path in paths:
                self._looked.pop(path, None)  # to the end
                self._looked[path] = now_s
            while len(self._looked) > LOOKED_MAX:
                del self._looked[next(iter(self._looked))]
            self._lock.notify_all()

    def rounds_of(self, tables: Sequence[SeenTable]) -> tuple[list[Sequence[RoundPoint]], bool]:
        """See :meth:`ClusterReader.rounds_of`."""
        found: list[Sequence[RoundPoint]] = []
        missing: dict[TablePath, SeenTable] = {}
        for each in tables:
            points, are_newest = self._rounds.of(each.status)
            found.append(points)
            if not are_newest:
                missing[each.status.path] = each
        if missing:
            with self._lock:
                self._wanted |= missing
                while len(self._wanted) > LOOKED_MAX:
                    del self._wanted[next(iter(self._wanted))]
                self._lock.notify_all()
        return found, not missing

    def read_soon(self, path: TablePath) -> threading.Event:
        """Reads the status of a table next; the event says that it was tried."""
        with self._lock:
            done = self._urgent.setdefault(path, threading.Event())
            self._lock.notify_all()
        return done

    # ---- the thread ----

    def _run(self) -> None:
        while self._rest() and not self._stopped:
            try:
                pause_s = self._step()
            except Exception as error:  # the statuses' own reader tells the page of it
                _LOG.debug("cannot read details: %s", mask(f"{type(error).__name__}: {error}"))
                pause_s = AWAY_S
            with self._lock:
                if not self._stopped and not self._urgent and (pause_s > 1 or not self._wanted):
                    self._lock.wait(pause_s)

    def _step(self) -> float:
        """The most urgent work that there is; returns how long to wait then, in seconds."""
        with self._lock:
            urgent, self._urgent = self._urgent, {}
            # By turns: more rounds may be wanted than are kept, and then their want never ends.
            wanted = [] if self._has_read_rounds else list(self._wanted.values())[-ROUNDS_STEP:]
            for each in wanted:
                del self._wanted[each.status.path]
            limit_s = time.monotonic() - LOOKED_S
            self._looked = {path: at for path, at in self._looked.items() if at > limit_s}
            looked = list(self._looked)
        if urgent:
            self._read_now(urgent)
            return 0.0
        self._has_read_rounds = bool(wanted)
        if wanted:
            self._read_rounds(wanted)
            return 0.0
        if paths := self._failing(looked)[:STEP]:
            self._read_since(paths)
            return 0.0
        is_fluss = self._store.seen.is_fluss
        if is_fluss and (paths := self._due(looked, LOOKED_EVERY_S)[:STEP]):
            self._read_lags(paths)
            return 0.0
        return self._read_others(is_fluss)

    def _read_others(self, is_fluss: bool) -> float:
        """Reads of tables that nobody looks at; returns how long to wait then."""
        started_s, tables = time.monotonic(), self._store.seen.tables
        if is_fluss and (paths := self._next_of_turn()):
            is_first = any(_is_untried(tables[path]) for path in paths if path in tables)
            self._read_lags(paths, at_once=False)
        elif paths := self._failing(tables)[:STEP]:
            is_first = False
            self._read_since(paths)
        else:
            return 1.0
        return 0.0 if is_first else SHARE * (time.monotonic() - started_s)

    def _read_now(self, urgent: dict[TablePath, threading.Event]) -> None:
        try:
            for path in urgent:
                self._read_status(path)
        finally:
            for done in urgent.values():
                done.set()

    def _read_status(self, path: TablePath) -> None:
        read_ms = self._clock.now_ms()
        is_fluss = self._store.seen.is_fluss
        try:
            if not is_fluss:
                found = [
                    SeenTable.reported(status, read_ms) for status in self._watch.reported(path)
                ]
            else:
                table = self._watch.described([path]).get(path)
                tables = [table] if table is not None and table.is_tiered else []
                found = SeenTable.recorded(tables, self._watch.recorded(tables), read_ms)
        except TableNotExist:
            found = []
        if found:
            self._store.put(found, is_fluss=is_fluss)
        else:
            self._store.drop([path], read_ms)

    def _read_rounds(self, wanted: Sequence[SeenTable]) -> None:
        statuses = [each.status for each in wanted]
        if self._store.seen.is_fluss:
            numbers = {status.table_id: status.rounds or 0 for status in statuses}
            found = self._watch.recorded_rounds(numbers, SHOWN)
            for status in statuses:
                self._rounds.put(status, found.get(status.table_id, ()))
            return
        for status in statuses:
            try:
                self._rounds.put(status, self._watch.reported_rounds(status.path, SHOWN))
            except TableNotExist:  # dropped since it was seen
                self._rounds.put(status, ())

    # ---- since when tables fail ----

    def _failing(self, paths: Iterable[TablePath]) -> list[TablePath]:
        """Those that fail, since when is not known, and whose history was not tried lately."""
        now_s, tables = time.monotonic(), self._store.seen.tables
        return [
            path
            for path in paths
            if (each := tables.get(path)) is not None
            and each.failing_since_ms is None
            and each.status.is_failing
            and now_s - self._since_tried_s.get(path, -OTHERS_EVERY_S) >= OTHERS_EVERY_S
        ]

    def _read_since(self, paths: Sequence[TablePath]) -> None:
        seen, now_s = self._store.seen, time.monotonic()
        self._since_tried_s = {p: at for p, at in self._since_tried_s.items() if p in seen.tables}
        found = {}
        for path in paths:
            self._since_tried_s[path] = now_s
            each = seen.tables.get(path)
            if each is None:
                continue
            try:
                if seen.is_fluss:
                    rounds = self._watch.recorded_history(each.status.table_id, ROUNDS_KEPT)
                else:
                    rounds = self._watch.reported_rounds(path, ROUNDS_KEPT)
            except TableNotExist:
                continue
            since_ms = failing_since_ms(each.status, rounds)
            if since_ms is not None:
                found[path] = each, since_ms
        if found:
            self._store.put_failing_since(found)

    # ---- lags on Apache Fluss ----

    def _due(self, paths: Iterable[TablePath], every_s: float) -> list[TablePath]:
        """Those that are there and whose lag was not tried for some time."""
        now_s, tables = time.monotonic(), self._store.seen.tables
        return [
            path
            for path in paths
            if path in tables
            and path in self._known
            and now_s - self._tried_s.get(path, -every_s) >= every_s
            and now_s - self._unreached_s.get(path, -UNREACHED_AGAIN_S) >= UNREACHED_AGAIN_S
        ]

    def _next_of_turn(self) -> list[TablePath]:
        if not self._turn:
            tables = self._store.seen.tables
            self._tried_s = {p: at for p, at in self._tried_s.items() if p in tables}
            self._unreached_s = {p: at for p, at in self._unreached_s.items() if p in tables}
            with self._lock:
                self._known = {p: table for p, table in self._known.items() if p in tables}
            due = self._due(list(tables), OTHERS_EVERY_S)
            due.sort(key=lambda path: self._tried_s.get(path, 0.0))
            self._turn.extend(due)
        paths: list[TablePath] = []
        while self._turn and not paths:  # some were read since, because somebody looked
            some = [self._turn.popleft() for _ in range(min(STEP, len(self._turn)))]
            paths = self._due(some, LOOKED_EVERY_S)
        return paths

    def _read_lags(self, paths: Sequence[TablePath], *, at_once: bool = True) -> None:
        """:param at_once: publish them now, and not only after some time: each time costs a copy.

        :raises NetworkError, RequestTimeOut: the cluster does not answer. Tables that were not
            tried then stay due.
        """
        now_s = time.monotonic()
        found = self._unpublished
        away: list[Exception] = []  # of the last tables in a row
        known = self._known

        def read(path: TablePath) -> None:
            if len(away) >= UNREACHED_MAX or self._stopped:
                return
            self._tried_s[path] = time.monotonic()
            table, read_ms = known[path], self._clock.now_ms()
            lag: Lag | None = None
            try:
                lag = self._watch.lag(table)
            except (NetworkError, RequestTimeOut) as error:
                away.append(error)
                self._unreached_s[path] = time.monotonic()
            except TableNotExist:  # dropped in the meantime
                return
            except LAG_ERRORS as error:  # no leader, for example
                away.clear()
                _LOG.debug("no lag of table %s: %s", path, mask(str(error)))
            else:
                away.clear()
                self._unreached_s.pop(path, None)
            found[path] = table.table_id, lag, read_ms

        list(self._pool.map(read, paths))
        if found and (at_once or not self._turn or now_s - self._published_s > PUBLISHED_EVERY_S):
            self._store.put_lags(found)
            self._unpublished, self._published_s = {}, now_s
        if len(away) >= UNREACHED_MAX:
            raise away[0]


def _is_untried(each: SeenTable) -> bool:
    return each.lag_read_ms is None and each.lag_unread_ms is None
