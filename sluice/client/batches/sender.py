"""Sends encoded batches in the background: in order per bucket, several buckets at once."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from sluice.errors import RequestTimeOut, SluiceError, UnknownServerError
from sluice.model import TableBucket

Send = Callable[[TableBucket, bytes], None]


class BatchSender:
    """Bounded queues of batches per bucket, and the threads that send them.

    At most one batch of a bucket is being sent at a time, so a retry never changes the order, and
    the server receives sequence numbers in order. After the first error nothing more is sent, and
    every call raises that error.
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
        """:param send: sends a batch and returns when it is stored; called from several threads."""
        self._send = send
        self._threads_max = max(1, threads)
        self._queued_bytes_max = queued_bytes_max
        self._name = name
        self._now = now
        self._changed = threading.Condition()  # guards the rest
        self._queues: dict[TableBucket, deque[bytes]] = {}
        self._ready: deque[TableBucket] = deque()  # buckets with a queued batch and none being sent
        self._queued_bytes = 0
        self._error: SluiceError | None = None
        self._stopping = False
        self._threads: list[threading.Thread] = []

    def put(self, bucket: TableBucket, records: bytes) -> None:
        """Queues a batch; waits while too many bytes are queued.

        :raises FlussError: the error of an earlier batch.
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
        """Waits until all batches are stored.

        :raises FlussError: the error of a failed batch.
        :raises RequestTimeOut: batches are left; the message names their buckets.
        """
        with self._changed:
            done = self._changed.wait_for(
                lambda: self._error is not None or not self._queues, timeout_s
            )
            self._raise_failure()
            if not done:
                names = ", ".join(str(bucket) for bucket in sorted_buckets(self._queues)[:10])
                raise RequestTimeOut(
                    f"{self._name}: not all batches were stored within {timeout_s:.0f} s; buckets"
                    f" with unsent batches: {names}"
                )

    def fail(self, error: SluiceError) -> None:
        """Stops the sending because of an error found elsewhere, and raises it."""
        with self._changed:
            self._error = self._error or error
            self._stopping = True
            self._changed.notify_all()
            self._raise_failure()

    def check(self) -> None:
        """:raises FlussError: the error of a failed batch, if any."""
        with self._changed:
            self._raise_failure()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Sends nothing more; waits at most ``timeout_s`` for running calls."""
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
        # At most one thread per bucket with work.
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
            except Exception as caught:  # must be raised by the writer, not end the thread silently
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
    """Sorts buckets by partition and number; buckets without a partition first."""
    return sorted(
        buckets, key=lambda b: (-1 if b.partition_id is None else b.partition_id, b.bucket)
    )
