"""Servers that a round could not reach, so that it waits for each of them only once.

A bucket's read waits up to ``client.retry_timeout_ms`` for its leader. Without this, a round with
many buckets on one dead server would wait that long for one bucket after another.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sluice.client.connection.connection import Connection
from sluice.errors import FlussError, LeaderNotAvailable, NetworkError, RequestTimeOut
from sluice.model import TableBucket, TablePath

_KINDS = (NetworkError, RequestTimeOut, LeaderNotAvailable)
_KEPT_MAX = 1_000

Place = tuple[str, str]
"""A round, and the server that its last attempt could not reach: the error's detail ``server``."""

_lock = threading.Lock()
_found: dict[Place, FlussError] = {}
"""For all sources of this process: on an executor each task has its own."""


@contextmanager
def waited_for_once(
    round_id: str, connection: Connection, path: TablePath, bucket: TableBucket
) -> Iterator[None]:
    """Runs a read of the bucket, unless the round has already waited for its leader.

    :raises FlussError: the error of that wait, or of this read.
    """
    with _lock:
        waits = {server: error for (of, server), error in _found.items() if of == round_id}
    if waits:
        server = _server_now(connection, path, bucket)
        if before := waits.get(server):
            raise type(before)(
                f"bucket {bucket.name} of table {path}: this round waited for {server} before,"
                f" without success: {before}",
                **before.details,
            )
    try:
        yield
    except _KINDS as error:
        unreached = error.details.get("server")
        if unreached and error.details.get("gave_up"):
            with _lock:
                while len(_found) >= _KEPT_MAX:
                    del _found[next(iter(_found))]
                # Not the error itself, whose traceback would keep the connection open.
                _found[round_id, unreached] = type(error)(error.message, **error.details)
        raise


def _server_now(connection: Connection, path: TablePath, bucket: TableBucket) -> str:
    """The leader of the bucket by new metadata, as the detail ``server`` of an error names it."""
    connection.forget_leader(bucket)  # the bucket may have left the dead server
    try:
        return str(connection.leader(path, bucket))
    except FlussError as error:  # the read tries again, and reports the error
        return str(error.details.get("server", ""))
