"""Servers that a round could not reach, so that it waits for each of them only once.

A bucket's read waits up to ``client.retry_timeout_ms`` for its leader. Without this, a round with
many buckets on one dead server would wait that long for one bucket after another.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sluice.client.addresses import Address
from sluice.client.connection import Connection
from sluice.errors import FlussError, LeaderNotAvailable, NetworkError, RequestTimeOut
from sluice.model import TableBucket, TablePath

_KINDS = (NetworkError, RequestTimeOut, LeaderNotAvailable)
_KEPT_MAX = 1_000

Place = tuple[str, Address | None]
"""A round, and the address of a leader; None: the buckets have no leader."""

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
    try:
        place: Place = round_id, connection.leader(path, bucket)
    except LeaderNotAvailable:
        place = round_id, None
    except FlussError:  # the read tries again, and reports the error
        yield
        return
    with _lock:
        before = _found.get(place)
    if before is not None:
        where = "its leader" if place[1] is None else str(place[1])
        raise type(before)(
            f"bucket {bucket.name} of table {path}: this round waited for {where} before,"
            f" without success: {before}",
            **before.details,
        )
    try:
        yield
    except _KINDS as error:
        if error.details.get("gave_up"):
            with _lock:
                while len(_found) >= _KEPT_MAX:
                    del _found[next(iter(_found))]
                # Not the error itself, whose traceback would keep the connection open.
                _found[place] = type(error)(error.message, **error.details)
        raise
