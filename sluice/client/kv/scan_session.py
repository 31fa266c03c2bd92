"""Client side of one ScanKv session; a call whose response is lost is sent again."""

from __future__ import annotations

import random as random_module
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sluice.client.connection.connection import Connection
from sluice.client.connection.retry import RetryPolicy, Rule, call_with_retries, interruptible_sleep
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
from sluice.wire.messages.table_paths import bucket_ids

_SESSION_ENDED = (
    ScannerExpired,
    UnknownScannerId,
    # An Apache Fluss server ends the scan at any of these errors.
    InvalidScanRequest,
    NotLeaderOrFollower,
    UnknownTableOrBucket,
    KvStorageError,
)
"""Errors after which a scan cannot continue, because its frozen rows are lost."""

_WAIT_FOR_ROOM: dict[type[FlussError], Rule] = {TooManyScanners: Rule(executed=False)}


class SessionLost(SluiceError):
    """The server no longer has the session; the message is the server's error."""


class ScanSession:
    """Sends the calls of one session, one at a time; not safe for use by several threads at once.

    A call without a response is sent again with the same number; the server returns the same batch,
    or an error. The first call carries the requested session id. An Apache Fluss server ignores
    that field: if its first response is lost, it keeps an unused session until that expires.
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
        """:param abandoned: once it is set, no call is retried."""
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
        """Starts the scan and returns its first batch, which is empty if there is no row.

        If the server has too many scans, the call is retried until one ends, or time is up.

        :raises TooManyScanners: no scan ended in time.
        :raises UnsupportedVersion: the server does not support scans.
        :raises FlussError: the server's error.
        """
        request = pb.ScanKvRequest(
            bucket_scan_req=pb.PbScanReqForBucket(limit=limit, **bucket_ids(self._bucket)),
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
            raise CorruptMessage(
                f"ScanKv of bucket {self._bucket}: the first response has no log offset"
            )
        self.log_offset = int(answer.log_offset)
        return self._taken(answer)

    def more(self, batch_bytes: int) -> bytes:
        """Returns the next batch, with at least one row unless the scan has ended.

        :raises SessionLost: the server no longer has the session.
        :raises FlussError: the server cannot be reached in time, or a row is too large.
        """
        assert self.has_more
        request = pb.ScanKvRequest(
            scanner_id=self._scanner_id, call_seq_id=self._next_call, batch_size_bytes=batch_bytes
        )

        def unpack(answer: pb.ScanKvResponse) -> pb.ScanKvResponse:
            try:
                return _checked(answer)
            except _SESSION_ENDED as error:  # no retry: no other server has this session
                self.has_more = False
                raise SessionLost(f"{type(error).__name__}: {error}") from error

        return self._taken(self._call(request, unpack))

    def close(self) -> None:
        """Asks the server to end the session if it may still exist; sent once."""
        if not self.has_more:
            return
        self.has_more = False
        request = pb.ScanKvRequest(scanner_id=self._scanner_id, close_scanner=True)
        ended = threading.Event()
        ended.set()
        self._sleep = interruptible_sleep(ended, "the end of a scan")
        with suppress(FlussError):  # the server ends the session itself later
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
                f"ScanKv of bucket {self._bucket}: the response announces more rows, but has"
                f" {'no row' if answer.scanner_id else 'no scanner id'}"
            )
        self._scanner_id = answer.scanner_id
        return bytes(answer.records)


def _checked(answer: pb.ScanKvResponse) -> pb.ScanKvResponse:
    raise_in_body(answer)
    return answer
