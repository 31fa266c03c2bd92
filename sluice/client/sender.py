"""Sends encoded batches in the background, each bucket's in order, several buckets at once."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from sluice.errors import RequestTimeOut, SluiceError, UnknownServerError
from sluice.model import TableBucket

Send = Callable[[TableBucket, bytes], None]


class BatchSender:
    """A bounded queue of batches per bucket and a few threads that empty them.

    Of one bucket one batch is under way at a time, so that a batch that is sent again never
    overtakes or is overtaken: the server sees sequences in order. After the first failure nothing
    more is sent, and every call raises that failure.
    """

    def __init__(
        self,
        send: Send,
        *,
        threads: int,
        queued_bytes_max: int,
        name: str,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """:param send: returns when the batch is stored; called from several threads."""
        self._send = send
        self._threads_max = max(1, threads)
        self._queued_bytes_max = queued_bytes_max
        self._name = name
        self._now = now
        self._changed = threading.Condition()  # guards the rest
        self._queues: dict[TableBucket, deque[bytes]] = {}
        self._ready: deque[TableBucket] = deque()  # has a batch, and none under way
        self._queued_bytes = 0
        self._error: SluiceError | None = None
        self._stopping = False
        self._threads: list[threading.Thread] = []

    def put(self, bucket: TableBucket, records: bytes) -> None:
        """Takes a batch; waits while too many bytes are queued.

        :raises FlussError: the failure of an earlier batch.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._error is not None
                    or self._queued_bytes == 0
                    or self._queued_bytes + len(records) <= self._queued_bytes_max
                )
            )
            self._raise_failure()
            queue = self._queues.get(bucket)
            if queue is None:
                self._queues[bucket] = deque([records])
                self._ready.append(bucket)
                self._begin_threads()
            else:
                queue.append(records)
            self._queued_bytes += len(records)
            self._changed.notify_all()

    def drain(self, timeout_s: float) -> None:
        """Waits until everything is stored.

        :raises FlussError: the failure of a batch; RequestTimeOut, naming the buckets that wait.
        """
        with self._changed:
            done = self._changed.wait_for(
                lambda: self._error is not None or not self._queues, timeout_s
            )
            self._raise_failure()
            if not done:
                names = ", ".join(str(bucket) for bucket in sorted_buckets(self._queues)[:10])
                raise RequestTimeOut(
                    f"{self._name}: not everything was stored within {timeout_s:.0f} s; buckets"
                    f" that still wait: {names}"
                )

    def fail(self, error: SluiceError) -> None:
        """Ends the sending by a failure found outside, and raises it."""
        with self._changed:
            self._error = self._error or error
            self._stopping = True
            self._changed.notify_all()
            self._raise_failure()

    def check(self) -> None:
        """:raises FlussError: the failure of a batch, if there was one."""
        with self._changed:
            self._raise_failure()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Sends nothing more and ends the threads; those within a call are waited for that long."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            threads = list(self._threads)
        deadline = self._now() + timeout_s
        for thread in threads:
            thread.join(max(0.0, deadline - self._now()))

    def _raise_failure(self) -> None:
        if self._error is not None:
            raise type(self._error)(self._error.message, **self._error.details) from self._error

    def _begin_threads(self) -> None:
        # As many as there is work for: a table of one bucket needs one.
        if len(self._threads) < min(self._threads_max, len(self._queues)):
            name = f"{self._name}-{len(self._threads)}"
            thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ready or self._stopping)
                if self._stopping:
                    return
                bucket = self._ready.popleft()
                records = self._queues[bucket][0]
            error: SluiceError | None = None
            try:
                self._send(bucket, records)
            except SluiceError as caught:
                error = caught
            except Exception as caught:  # must surface at the writer, not end a thread unseen
                error = UnknownServerError(f"bucket {bucket}: {type(caught).__name__}: {caught}")
                error.__cause__ = caught
            with self._changed:
                self._finish(bucket, records, error)
                self._changed.notify_all()
            del records

    def _finish(self, bucket: TableBucket, records: bytes, error: SluiceError | None) -> None:
        if error is not None:
            self._error = self._error or error
            self._stopping = True
            return
        queue = self._queues[bucket]
        queue.popleft()
        self._queued_bytes -= len(records)
        if queue:
            self._ready.append(bucket)
        else:
            del self._queues[bucket]


def sorted_buckets(buckets: dict[TableBucket, deque[bytes]]) -> list[TableBucket]:
    """By partition and number (None does not compare with a number)."""
    return sorted(
        buckets, key=lambda b: (-1 if b.partition_id is None else b.partition_id, b.bucket)
    )
