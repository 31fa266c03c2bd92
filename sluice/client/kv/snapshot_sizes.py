"""Requests the sizes of KV snapshots without downloading them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import wait
from functools import partial

from sluice.client.connection.connection import Connection
from sluice.client.connection.daemon_pool import DaemonPool
from sluice.client.connection.remote_files import RemoteFiles
from sluice.client.kv.snapshot_files import snapshot_files, with_sizes
from sluice.errors import SluiceError
from sluice.model import BucketSnapshot, TableBucket

_LOG = logging.getLogger(__name__)
_AT_ONCE = 8
WAIT_S = 60.0


def kv_snapshot_sizes(
    connection: Connection, snapshots: Sequence[BucketSnapshot], wait_s: float = WAIT_S
) -> dict[TableBucket, int]:
    """Returns the stored bytes of each snapshot whose ``_METADATA`` lists the sizes of all files.

    Errors are logged, and the snapshot has no size then.

    :param wait_s: after this time, the sizes that are still missing are given up.
    """
    remote = RemoteFiles(connection)

    def size(snapshot: BucketSnapshot) -> int | None:
        name = f"KV snapshot {snapshot.snapshot_id} of bucket {snapshot.bucket}"
        found = snapshot_files(connection, name, snapshot.bucket, snapshot.snapshot_id)
        sizes = [file.size_bytes for file in with_sizes(found, snapshot.snapshot_id, remote).files]
        return None if None in sizes else sum(filter(None, sizes))

    pool = DaemonPool(_AT_ONCE, "sluice-kv-snapshot-size")
    asked = {pool.submit(partial(size, snapshot)): snapshot.bucket for snapshot in snapshots}
    done, late = wait(asked, wait_s)
    for one in late:
        one.cancel()
    if late:
        _LOG.warning("the sizes of %d KV snapshots were not read in %g s", len(late), wait_s)
    found = {}
    for future in done:
        try:
            size_bytes = future.result()
        except SluiceError as error:
            _LOG.warning("the size of a KV snapshot cannot be read: %s", error)
            continue
        if size_bytes is not None:
            found[asked[future]] = size_bytes
    return found
