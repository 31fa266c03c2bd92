"""One ScanKv session from the client's side. A call whose answer is lost is sent again."""

from __future__ import annotations

import random as random_module
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sluice.client.connection import Connection
from sluice.client.retry import RetryPolicy, Rule, call_with_retries, interruptible_sleep
from sluice.errors import (
    CorruptMessage,
    FlussError,
    InvalidScanRequest,
    KvStorageError,
    NotLeaderOrFollower,
    ScannerExpired,
    SluiceError,
    TooManyScanners,
    UnknownScannerId,
    UnknownTableOrBucket,
)
from sluice.model import TableBucket, TablePath
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.error_codes import raise_in_body

_OVER = (
    ScannerExpired,
    UnknownScannerId,
    # Of a real Fluss, whatever it refuses within a scan ends it.
    InvalidScanRequest,
    NotLeaderOrFollower,
    UnknownTableOrBucket,
    KvStorageError,
)
"""What says within a scan that it cannot go on: its rows are gone."""

_WAIT_FOR_ROOM: dict[type[FlussError], Rule] = {TooManyScanners: Rule(executed=False)}


class SessionLost(SluiceError):
    """The server has the session no more; says what it answered."""


class ScanSession:
    """Sends one call at a time; not safe for use by several threads at once.

    A call whose answer does not come is sent again with its number: the same batch comes, or an
    error. An open carries the id that the session is to have. A real Fluss does not know that
    field: where its answer to an open is lost, it keeps a session for nobody until it expires.
    """

    def __init__(
        self,
        connection: Connection,
        path: TablePath,
        bucket: TableBucket,
        abandoned: threading.Event,
        *,
        now: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = random_module.random,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        """:param abandoned: set, no call is retried any more."""
        self._connection = connection
        self._path = path
        self._bucket = bucket
        self._sleep = interruptible_sleep(abandoned, f"a scan of bucket {bucket} of {path}")
        self._now, self._random = now, random
        self._scanner_id = new_id().encode()
        self._next_call = 0
        self.has_more = False
        self.log_offset = -1

    def open(self, batch_bytes: int, limit: int | None) -> bytes:
        """Begins the scan; its first batch, empty if there is no row.

        Where there are too many scans it is tried until one has ended, or time is up.

        :raises TooManyScanners: :raises UnsupportedVersion: the server does not know such scans.
        :raises FlussError: as the server says.
        """
        wanted = pb.PbScanReqForBucket(
            table_id=self._bucket.table_id,
            partition_id=self._bucket.partition_id,
            bucket_id=self._bucket.bucket,
            limit=limit,
        )
        request = pb.ScanKvRequest(
            bucket_scan_req=wanted,
            call_seq_id=0,
            batch_size_bytes=batch_bytes,
            wanted_scanner_id=self._scanner_id,
        )
        answer = call_with_retries(
            lambda: self._call(request, _checked),
            RetryPolicy(timeout_ms=self._connection.config.retry_timeout_ms),
            idempotent=True,
            rules=_WAIT_FOR_ROOM,
            sleep=self._sleep,
            now=self._now,
            random=self._random,
        )
        if not answer.HasField("log_offset"):
            raise CorruptMessage(f"ScanKv of bucket {self._bucket}: the first answer has no offset")
        self.log_offset = int(answer.log_offset)
        return self._taken(answer)

    def more(self, batch_bytes: int) -> bytes:
        """The next batch; at least one row, unless the scan has come to its end.

        :raises SessionLost: the server has it no more.
        :raises FlussError: the server cannot be reached in time, or a row fits no answer.
        """
        assert self.has_more
        request = pb.ScanKvRequest(
            scanner_id=self._scanner_id, call_seq_id=self._next_call, batch_size_bytes=batch_bytes
        )

        def unpack(answer: pb.ScanKvResponse) -> pb.ScanKvResponse:
            try:
                return _checked(answer)
            except _OVER as error:  # not to be retried: nobody else has this session
                self.has_more = False
                raise SessionLost(f"{type(error).__name__}: {error}") from error

        return self._taken(self._call(request, unpack))

    def close(self) -> None:
        """Has the server give up the session, if it may still have it; tried once."""
        if not self.has_more:
            return
        self.has_more = False
        request = pb.ScanKvRequest(scanner_id=self._scanner_id, close_scanner=True)
        ended = threading.Event()
        ended.set()
        self._sleep = interruptible_sleep(ended, "the end of a scan")
        with suppress(FlussError):  # the server ends it by itself, later
            self._call(request, _checked)

    def _call(
        self, request: pb.ScanKvRequest, unpack: Callable[[Any], pb.ScanKvResponse]
    ) -> pb.ScanKvResponse:
        return self._connection.call_leader(
            self._path,
            self._bucket,
            apis.SCAN_KV,
            request,
            unpack,
            idempotent=True,
            sleep=self._sleep,
        )

    def _taken(self, answer: pb.ScanKvResponse) -> bytes:
        self._next_call += 1
        self.has_more = answer.has_more_results
        if self.has_more and not (answer.scanner_id and answer.records):
            raise CorruptMessage(
                f"ScanKv of bucket {self._bucket}: more rows are said to come, but there is"
                f" {'no row' if answer.scanner_id else 'no scanner id'} in the answer"
            )
        self._scanner_id = answer.scanner_id
        return bytes(answer.records)


def _checked(answer: pb.ScanKvResponse) -> pb.ScanKvResponse:
    raise_in_body(answer)
    return answer
