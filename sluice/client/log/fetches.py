"""Fetches log batches, from many buckets in one request and from remote log segments.

This code runs on the thread that fetches ahead of a reader. Batches stay bytes here: views of the
bytes from the socket or the file.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sluice.client.connection.connection import Connection
from sluice.client.connection.remote_files import RemoteFiles
from sluice.client.connection.retry import interruptible_sleep
from sluice.client.log.remote_segments import Batches, read_ahead, read_segment, segments_of
from sluice.errors import (
    CorruptMessage,
    CorruptRecord,
    FlussError,
    RequestTimeOut,
    StorageError,
    from_code,
)
from sluice.formats.log.batch import Buffer, complete_batches
from sluice.model import TableBucket, TableInfo
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.messages.fetch_response import FetchedBucket, read_fetch_response

_POLL_MS = 500
_PAUSE_S = 0.05
_REMOTE_TRIES_MAX = 3
_ANSWER_OVERHEAD_BYTES = 1024
"""Bytes of a response around the records of one bucket, generously."""
_BUCKETS_MAX = 256
"""Maximum number of buckets in one request."""


@dataclass(slots=True, eq=False)
class FetchRange:
    """The range of offsets to read from one bucket, and the progress."""

    bucket: TableBucket
    start: int
    stop: int
    offset: int
    """The next offset to fetch."""
    waited_s: float = 0
    """Time since the last data, in seconds."""
    remote_failures: int = 0
    """Failed reads of remote segments since the last data."""


@dataclass(frozen=True, slots=True)
class FetchedBatches:
    """Complete batches of one bucket from one response or file piece."""

    window: FetchRange
    batches: Batches
    source: str
    """The remote segment file in error messages; empty for a fetch."""


class LogFetches:
    """Fetches the logs of one table. Safe for use by many threads, each with its own ranges."""

    def __init__(
        self, connection: Connection, info: TableInfo, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._connection = connection
        self._info = info
        self._now = now
        self._files = RemoteFiles(connection)

    def fetch(
        self, windows: Sequence[FetchRange], abandoned: threading.Event
    ) -> Iterator[FetchedBatches]:
        """Yields the batches with offsets of the ranges, in offset order within each bucket.

        :raises FlussError: see ``LogReader.read``.
        """
        left = [window for window in windows if window.offset < window.stop]
        while left and not abandoned.is_set():
            groups = self._by_leader(left)
            served: set[FetchRange] = set()
            for group in groups:
                wait_ms = _POLL_MS // len(groups)
                for window, answer, waited_s in self._answers(group, wait_ms, abandoned):
                    for fetched in self._taken(window, answer, abandoned):
                        served.add(window)
                        yield fetched
                    self._count_wait(window, answer, 0 if window in served else waited_s)
            if not served:
                abandoned.wait(_PAUSE_S)  # in case the server does not wait itself
            # Buckets without data come first next time: others may have used all the bytes.
            left = [w for w in left if w not in served] + [w for w in left if w in served]
            left = [w for w in left if w.offset < w.stop]

    def _count_wait(self, window: FetchRange, answer: FetchedBucket, waited_s: float) -> None:
        if not waited_s:
            window.waited_s, window.remote_failures = 0, 0
            return
        window.waited_s += waited_s + _PAUSE_S
        timeout_s = self._connection.config.request_timeout_ms / 1000
        if window.waited_s > timeout_s:
            raise RequestTimeOut(
                f"{self.name(window)}: no data from offset {window.offset} in {timeout_s:.0f} s;"
                f" the read stops at offset {window.stop}, the log ends at {answer.high_watermark}"
            )

    def name(self, window: FetchRange) -> str:
        return f"bucket {window.bucket.name} of table {self._info.path}"

    def bytes_from(self, bucket: TableBucket, offset: int, count: int = 0) -> Buffer:
        """The bytes of the log as stored, from the batch that holds ``offset`` or an earlier one.

        They are not checked, and may end within a batch.

        :param count: the bytes that are needed, if the batch is larger than a usual fetch.
        """
        window = FetchRange(bucket, offset, offset + 1, offset)
        answers, _ = self._timed([window], 0, threading.Event(), count)
        answer = answers.get(bucket)
        if answer is None or answer.remote_log_fetch_info is None:
            return (answer and answer.records) or b""
        segment = next(iter(segments_of(answer.remote_log_fetch_info)))
        count = max(count, self._connection.config.fetch_max_bytes_per_bucket)
        return read_ahead(segment, self._files, count)

    @property
    def bytes_max(self) -> int:
        """The largest ``count`` of :meth:`bytes_from`."""
        return self._connection.config.max_message_bytes - _ANSWER_OVERHEAD_BYTES

    # ---- requests ----

    def _by_leader(self, windows: list[FetchRange]) -> list[list[FetchRange]]:
        """Groups ranges into requests; a bucket with an unknown leader gets its own request."""
        if len(windows) == 1:
            return [windows]
        groups: dict[object, list[list[FetchRange]]] = {}
        for window in windows:
            key: object
            try:
                key = self._connection.leader(self._info.path, window.bucket)
            except FlussError:  # its own request retries, and reports the error
                key = window
            parts = groups.setdefault(key, [[]])
            if len(parts[-1]) == _BUCKETS_MAX:
                parts.append([])
            parts[-1].append(window)
        return [group for parts in groups.values() for group in parts]

    def _answers(
        self, group: list[FetchRange], wait_ms: int, abandoned: threading.Event
    ) -> Iterator[tuple[FetchRange, FetchedBucket, float]]:
        """Yields each range with its response and the time that it took."""
        answers, took_s = self._timed(group, wait_ms, abandoned)
        for window in group:
            answer, spent_s = answers.get(window.bucket), took_s
            if len(group) > 1 and (answer is None or answer.error_code):
                # Alone, to find a new leader and to retry other errors by their rules.
                alone, alone_s = self._timed([window], 0, abandoned)
                answer, spent_s = alone.get(window.bucket), took_s + alone_s
            if answer is None:
                raise CorruptMessage(
                    f"{self.name(window)}: the response to a fetch lacks this bucket"
                )
            yield window, answer, spent_s

    def _timed(
        self,
        group: list[FetchRange],
        wait_ms: int,
        abandoned: threading.Event,
        bytes_min: int = 0,
    ) -> tuple[dict[TableBucket, FetchedBucket], float]:
        started = self._now()
        answers = self._connection.call_leader(
            self._info.path,
            group[0].bucket,
            apis.FETCH_LOG,
            self._request(group, wait_ms, bytes_min),
            lambda reply: self._unpack(group, reply),
            sleep=interruptible_sleep(abandoned, f"{self.name(group[0])}: the read"),
            decode=lambda answer: read_fetch_response(answer, len(group)),
        )
        return answers, self._now() - started

    def _request(self, group: list[FetchRange], wait_ms: int, bytes_min: int) -> pb.FetchLogRequest:
        config = self._connection.config
        request = pb.FetchLogRequest(
            follower_server_id=-1,
            max_bytes=max(min(config.fetch_max_bytes, self.bytes_max), bytes_min),
            min_bytes=1,
            max_wait_ms=min(wait_ms, config.request_timeout_ms // 2),
        )
        table = request.tables_req.add(
            table_id=self._info.table_id, projection_pushdown_enabled=False
        )
        for window in group:
            table.buckets_req.add(
                partition_id=window.bucket.partition_id,
                bucket_id=window.bucket.bucket,
                fetch_offset=window.offset,
                max_fetch_bytes=max(config.fetch_max_bytes_per_bucket, bytes_min),
            )
        return request

    def _unpack(
        self, group: list[FetchRange], entries: list[FetchedBucket]
    ) -> dict[TableBucket, FetchedBucket]:
        """Returns responses by bucket; the error of a single bucket is raised, maybe retried."""
        asked = {window.bucket for window in group}
        found: dict[TableBucket, FetchedBucket] = {}
        for entry in entries:
            bucket = TableBucket(entry.table_id, entry.partition_id, entry.bucket_id)
            if bucket not in asked or bucket in found:
                raise CorruptMessage(
                    f"{self.name(group[0])}: the response to a fetch of {len(group)} buckets has"
                    f" {'two entries' if bucket in found else 'an entry'} for bucket {bucket}"
                )
            found[bucket] = entry
        if len(group) == 1 and entries and entries[0].error_code:
            self._check_damaged(group[0], entries[0])
            error = from_code(entries[0].error_code, entries[0].error_message)
            raise type(error)(f"{self.name(group[0])}: {error}", **error.details)
        return found

    def _check_damaged(self, window: FetchRange, answer: FetchedBucket) -> None:
        """Raises the error of offsets that the server itself cannot read.

        :raises CorruptRecord: its details have the range, which is certain.
        """
        start, end = answer.damaged_start_offset, answer.damaged_end_offset
        if answer.error_code == CorruptRecord.code and start is not None and end is not None:
            raise CorruptRecord.of_batch(
                self.name(window),
                start,
                answer.error_message,
                bucket=window.bucket,
                next_offset=end,
                is_certain=True,
            )

    # ---- responses ----

    def _taken(
        self, window: FetchRange, answer: FetchedBucket, abandoned: threading.Event
    ) -> Iterator[FetchedBatches]:
        if answer.remote_log_fetch_info is not None:
            yield from self._from_remote(window, answer.remote_log_fetch_info, abandoned)
            return
        if not answer.records:
            return
        batches, damage = complete_batches(answer.records)
        fetched = self._wanted(window, batches, "")
        if fetched is not None:
            yield fetched
            if damage is None or window.offset >= window.stop:
                return
        why = damage or f"{len(answer.records)} bytes hold no complete batch"
        raise self._unreadable(window, why) from damage

    def _unreadable(self, window: FetchRange, why: object) -> CorruptRecord:
        """The error of a batch that begins at the range's offset."""
        return CorruptRecord.of_batch(
            self.name(window), window.offset, str(why), bucket=window.bucket
        )

    def _from_remote(
        self, window: FetchRange, info: pb.PbRemoteLogFetchInfo, abandoned: threading.Event
    ) -> Iterator[FetchedBatches]:
        """Yields the batches of the segments that a fetch response names.

        If a segment is deleted or its storage fails before it is read, the bucket is fetched again,
        a few times.
        """
        config = self._connection.config
        before = window.offset
        try:
            for segment in segments_of(info):
                for batches in read_segment(
                    segment,
                    self._files,
                    config.fetch_max_bytes_per_bucket,
                    config.max_message_bytes,
                ):
                    fetched = self._wanted(window, batches, segment.uri)
                    if fetched is not None:
                        yield fetched
                    if window.offset >= window.stop or abandoned.is_set():
                        return
            if window.offset == before:
                raise StorageError(
                    f"remote log in {info.remote_log_tablet_dir}: offset {before} is in none of the"
                    f" {len(info.remote_log_segments)} segments that the server named"
                )
        except CorruptRecord as error:
            if "base_offset" in error.details:
                raise
            raise self._unreadable(window, error) from error
        except StorageError as error:
            window.remote_failures += 1
            if window.remote_failures >= _REMOTE_TRIES_MAX:
                raise StorageError(
                    f"{self.name(window)}, offset {window.offset}: {error} (tried"
                    f" {window.remote_failures} times)"
                ) from error
            abandoned.wait(_PAUSE_S)

    def _wanted(self, window: FetchRange, batches: Batches, source: str) -> FetchedBatches | None:
        """Returns the batches within the range, and advances its offset."""
        wanted: Batches = []
        for header, view in batches:
            if header.next_offset <= window.offset:
                continue  # a server may send earlier batches
            if window.offset >= window.stop:
                break
            if header.base_offset < window.offset != window.start:
                raise self._unreadable(
                    window, f"the next batch begins before it, at offset {header.base_offset}"
                )
            if header.base_offset > window.offset:
                raise self._unreadable(
                    window,
                    f"offset {window.offset} is missing, the next batch starts at offset"
                    f" {header.base_offset}" + (f" (in {source})" if source else ""),
                )
            wanted.append((header, view))
            window.offset = header.next_offset
        return FetchedBatches(window, wanted, source) if wanted else None
