"""Reads the tiering statuses of a cluster in the background, for many readers of the page.

Two threads read. One reads all statuses again and again. The other reads what is asked for: the
status of one table after an action, the lags and rounds of tables that people look at, and on
Apache Fluss the lags of all others in turn. Nobody waits for them, and both rest when nobody asks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from sluice.client import Client
from sluice.client.statuses.watch import DESCRIBED_MAX, WatchedTable
from sluice.clock import Clock, SystemClock
from sluice.errors import NetworkError, RequestTimeOut
from sluice.masking import reason_text
from sluice.model import TablePath
from sluice.page.cluster.detail_reader import DetailReader
from sluice.page.cluster.round_cache import RoundPoint
from sluice.page.cluster.seen import Seen, SeenStore, SeenTable
from sluice.quantities import counted

READ_EVERY_S = 5.0
SHARE = 4
"""A pass is followed by a pause of at least this many times its own CPU time."""
PASS_S = 30.0
"""Longest pass. The next one begins with what this one did not reach."""
FIRST = 50
"""Tables of the first step, so that rows appear soon."""
DESCRIBED_AGAIN_S = 60.0
"""After this time a known table is described again: its options may have changed."""
IDLE_AFTER_S = 300.0
"""The reader rests when nobody has asked for this long."""
ANSWERED_S = 1.0
"""Longest wait for the status of a table after an action."""
CHANGED_PER_S_MAX = 50
"""Tables that are read in one second because a caller says that they have changed."""
CHANGED_WAITS_MAX = 4
"""Callers that wait for such tables at one time: each holds a thread of the server."""
CHANGED_FOR_MS = 60_000
"""For this long a change is read at once. Later passes have read it."""
CLOCKS_DIFFER_MS = 1_000
"""The clock of the process that made a change may be ahead of this one by as much."""


class _SlowPass(Exception):
    """A pass has ended before its last table, though the cluster answers."""


class ClusterReader:
    """Reads a cluster again and again until it is stopped. Safe for use by many threads."""

    def __init__(
        self,
        client: Client,
        clock: Clock | None = None,
        *,
        read_every_s: float | None = None,
        idle_after_s: float = IDLE_AFTER_S,
        pass_s: float = PASS_S,
    ) -> None:
        """:param read_every_s: None: :data:`READ_EVERY_S`."""
        self._clock = clock or SystemClock()
        self._every_s = READ_EVERY_S if read_every_s is None else read_every_s
        self._idle_after_s = idle_after_s
        self._pass_s = pass_s
        self._watch = client.status_watch()
        self._store = SeenStore()
        self._described: dict[TablePath, tuple[WatchedTable, float]] = {}  # of one thread
        self._lock = threading.Condition()  # guards the rest
        self._stopped = False
        self._read_now = False
        self._resting = 0
        self._asked_s = self._clock.monotonic_s()
        self._changed_waits = threading.BoundedSemaphore(CHANGED_WAITS_MAX)
        self._changed = (0, 0)  # a second, and tables that were read in it as changed
        self._details = DetailReader(self._watch, self._store, self._clock, self._rest)
        self._thread = threading.Thread(target=self._run, name="sluice-page-statuses", daemon=True)
        self._started = False

    def start(self) -> None:
        """Begins to read. A second call does nothing."""
        with self._lock:
            if self._started or self._stopped:
                return
            self._started = True
        self._ask()
        self._thread.start()
        self._details.start()

    def stop(self) -> None:
        """Ends within a second, also in the middle of a read."""
        with self._lock:
            self._stopped = True
            self._lock.notify_all()
        self._details.stop()
        self._watch.close()  # ends calls that are under way
        if self._started:
            self._thread.join()
            self._details.join()

    @property
    def seen(self) -> Seen:
        """What was last read. To ask for it keeps the reader awake."""
        self._ask()
        return self._store.seen

    @property
    def is_resting(self) -> bool:
        """Whether nobody has asked for so long that nothing is read."""
        with self._lock:
            return self._resting == 2

    def look_at(self, paths: Iterable[TablePath]) -> None:
        """Somebody looks at these tables: their lags are read before those of others."""
        self._ask()
        self._details.look_at(paths)

    def rounds_of(self, tables: Sequence[SeenTable]) -> tuple[list[Sequence[RoundPoint]], bool]:
        """The newest rounds of tables as far as they are known, the oldest first.

        Those that are not known yet are read in the background.

        :returns: the rounds of each table, and whether all of them are known.
        """
        self._ask()
        return self._details.rounds_of(tables)

    def read_soon(self, path: TablePath | None = None) -> None:
        """Something has changed: reads again now.

        :param path: the table that has changed. It is read first, and this call waits for it, a
            second at most.
        """
        self._ask()
        if path is not None and self._started:
            self._details.read_soon(path).wait(ANSWERED_S)
        with self._lock:
            self._read_now = True
            self._lock.notify_all()

    def read_changed(self, changes: Mapping[TablePath, int]) -> None:
        """Tables have changed, perhaps by another process: reads those that were read before.

        Waits for all of them, a second at most, unless too many callers wait already. A table that
        is not known, or that is one of too many, is read by the next pass.

        :param changes: when each one changed, epoch milliseconds. Other times than those of the
            last minute are ignored.
        """
        self._ask()
        if not self._changed_waits.acquire(blocking=False):
            return
        try:
            self._read_changed(changes)
        finally:
            self._changed_waits.release()

    def _read_changed(self, changes: Mapping[TablePath, int]) -> None:
        seen, now_ms = self._store.seen, self._clock.now_ms()
        if not self._started or seen.away_ms is not None:
            return
        old = [
            path
            for path, changed_ms in changes.items()
            if -CLOCKS_DIFFER_MS <= now_ms - changed_ms <= CHANGED_FOR_MS
            and path in seen.tables
            and seen.tables[path].status_read_ms <= min(changed_ms, now_ms)
            and self._may_read_changed()
        ]
        reads = [self._details.read_soon(path) for path in old]
        until_s = time.monotonic() + ANSWERED_S
        for each in reads:
            each.wait(max(until_s - time.monotonic(), 0.0))

    def _may_read_changed(self) -> bool:
        """Counts a table; returns whether it is not one of too many in this second."""
        now = int(self._clock.monotonic_s())
        with self._lock:
            second, tables = self._changed
            self._changed = now, tables + 1 if second == now else 1
            return self._changed[1] <= CHANGED_PER_S_MAX

    # ---- rest ----

    def _ask(self) -> None:
        with self._lock:
            was_idle = self._is_idle()
            self._asked_s = self._clock.monotonic_s()
            if was_idle:
                self._lock.notify_all()

    def _is_idle(self) -> bool:
        return self._clock.monotonic_s() - self._asked_s > self._idle_after_s

    def _rest(self) -> bool:
        """Waits while nobody asks; returns whether to go on."""
        with self._lock:
            self._resting += 1
            while self._is_idle() and not self._stopped:
                self._lock.wait()
            self._resting -= 1
            return not self._stopped

    def _pause(self, took_s: float) -> None:
        """Waits for the next pass."""
        until_s = time.monotonic() + max(self._every_s, SHARE * took_s)
        with self._lock:
            while not self._read_now and not self._stopped:
                left_s = until_s - time.monotonic()
                if left_s <= 0:
                    break
                self._lock.wait(left_s)
            self._read_now = False

    # ---- passes ----

    def _run(self) -> None:
        while self._rest():
            started_s = time.thread_time()
            try:
                self._read()
            except Exception as error:  # shown by the page; the next pass tries again
                is_away = isinstance(error, NetworkError | RequestTimeOut)
                name = "RequestTimeOut" if isinstance(error, _SlowPass) else type(error).__name__
                why = reason_text(f"{name}: {error}")
                self._store.fail(why, self._clock.now_ms() if is_away else None)
            self._pause(time.thread_time() - started_s)

    def _read(self) -> None:
        read_ms = self._clock.now_ms()
        if not self._watch.keeps_statuses():
            self._read_fluss(read_ms)
            return
        found = self._watch.reported()
        gone = self._store.seen.tables.keys() - {status.path for status in found}
        self._store.drop(gone, read_ms)
        self._store.put((SeenTable.reported(status, read_ms) for status in found), is_fluss=False)
        self._store.complete(read_ms)

    def _read_fluss(self, read_ms: int) -> None:
        """Apache Fluss: describes new tables, then reads recorded statuses, in small steps."""
        until_s = time.monotonic() + self._pass_s
        self._store.put((), is_fluss=True)
        paths = self._watch.paths()
        there = set(paths)
        self._described = {p: d for p, d in self._described.items() if p in there}
        self._store.drop(self._store.seen.tables.keys() - there, read_ms)
        unread: str | None = None
        done = 0
        for batch in self._batches(paths):
            unread = self._read_batch(batch, read_ms, unread)
            done += len(batch)
            if self._stopped:
                return
            if done < len(paths) and time.monotonic() > until_s:
                raise _SlowPass(
                    f"the cluster is slow: {done:,} of {counted(len(paths), 'table')} were read in"
                    f" {self._pass_s:.0f} s, and the next read begins with the others"
                )
        self._store.complete(read_ms, unread)

    def _batches(self, paths: Sequence[TablePath]) -> Iterator[Sequence[TablePath]]:
        """New tables first, then those whose status was read longest ago."""
        tables = self._store.seen.tables
        new = [path for path in paths if path not in self._described]
        known = [path for path in paths if path in self._described]
        known.sort(key=lambda path: tables[path].status_read_ms if path in tables else 0)
        at, step = 0, FIRST
        ordered = [*new, *known]
        while at < len(ordered):
            yield ordered[at : at + step]
            at, step = at + step, DESCRIBED_MAX

    def _read_batch(
        self, batch: Sequence[TablePath], first_ms: int, unread: str | None
    ) -> str | None:
        """:returns: why the status table cannot be read; it is not asked again in this pass."""
        now_s = time.monotonic()
        old = [
            path
            for path in batch
            if path not in self._described or now_s - self._described[path][1] > DESCRIBED_AGAIN_S
        ]
        if old:
            for path, table in self._watch.described(old).items():
                self._described[path] = table, now_s
        tables = [self._described[path][0] for path in batch if path in self._described]
        tiered = [table for table in tables if table.is_tiered]
        read_ms = self._clock.now_ms()
        self._store.drop({t.path for t in tables if not t.is_tiered}, read_ms)
        statuses = self._watch.recorded(tiered, unread)
        found = SeenTable.recorded(tiered, statuses, read_ms)
        self._store.put(found, is_fluss=True, read_ms=first_ms)
        self._details.know(tiered)
        return next((status.note for status in statuses if status.is_unread), unread)
