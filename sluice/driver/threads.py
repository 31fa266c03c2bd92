"""Runs the splits of a round on threads of this process instead of executors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager

import pyarrow as pa

from sluice.clock import Clock
from sluice.errors import ClaimLost
from sluice.rounds.copy.parts import in_copy_order
from sluice.rounds.copy.split import copy_split
from sluice.rounds.values.ports import BucketRows, KeyedSource, LogSource, SplitWriterFactory
from sluice.rounds.values.types import LogRecords, Split, SplitFailure, SplitResult

Outcome = SplitResult | SplitFailure


class ThreadRunner:
    """A SplitRunner on threads, which help because decoding and compression release the GIL."""

    def __init__(
        self,
        source: LogSource,
        writers: SplitWriterFactory,
        parallelism: int,
        *,
        cancelled: threading.Event | None = None,
        on_rows: Callable[[int], None] | None = None,
        clock: Clock | None = None,
        secrets: Iterable[str] = (),
    ) -> None:
        """:param cancelled: once set, because the claim was lost, all splits fail at their next
            batch.

        :param clock: the clock for the splits' deadlines.
        :param secrets: values to mask in the reason of a failure.
        """
        self._source = _Cancellable(source, cancelled or threading.Event())
        self._writers = writers
        self._parallelism = max(1, parallelism)
        self._on_rows = on_rows
        self._clock = clock
        self._secrets = tuple(secrets)

    def __call__(self, splits: Sequence[Split]) -> Iterator[Outcome]:
        """Yields outcomes as they arrive; at most ``parallelism`` splits run at once.

        A failed split does not end the others: the round commits what they copied.
        """
        waiting = in_copy_order(splits)[::-1]
        running: set[Future[Outcome]] = set()
        with ThreadPoolExecutor(self._parallelism, thread_name_prefix="sluice-copy") as pool:
            try:
                while waiting or running:
                    while waiting and len(running) < self._parallelism:
                        running.add(pool.submit(self._copy, waiting.pop()))
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        yield future.result()
            finally:
                if running:  # the caller stopped reading: the round has failed
                    self._source.cancel()

    def _copy(self, split: Split) -> Outcome:
        return copy_split(
            split,
            self._source,
            self._writers,
            on_rows=self._on_rows,
            clock=self._clock,
            secrets=self._secrets,
            check=lambda: self._source.check(split),
        )


class _Cancellable:
    """A LogSource that raises an error once it is cancelled."""

    def __init__(self, source: LogSource, cancelled: threading.Event) -> None:
        self._source = source
        self._given_up = threading.Event()
        self._cancelled = cancelled

    def cancel(self) -> None:
        self._given_up.set()

    def read(self, split: Split) -> Iterator[LogRecords]:
        self.check(split)  # a split that waited reads nothing
        for records in self._source.read(split):
            self.check(split)
            yield records

    @contextmanager
    def rows(self, split: Split) -> Iterator[BucketRows]:
        if not isinstance(self._source, KeyedSource):
            raise TypeError(f"{self._source!r} does not support primary keys")
        self.check(split)
        with self._source.rows(split) as rows:
            yield _CancellableRows(rows, lambda: self.check(split))

    def check(self, split: Split) -> None:
        """:raises ClaimLost: it was cancelled."""
        if self._cancelled.is_set() or self._given_up.is_set():
            raise ClaimLost(f"bucket {split.bucket}: the round was cancelled")


class _CancellableRows:
    """BucketRows that raise an error once their source is cancelled."""

    def __init__(self, rows: BucketRows, check: Callable[[], None]) -> None:
        self._rows, self._check = rows, check
        self.log_offset = rows.log_offset

    @property
    def note(self) -> str:
        return self._rows.note

    def batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._rows.batches():
            self._check()
            yield batch
