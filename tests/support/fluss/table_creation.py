"""Creates tables of an Apache Fluss cluster again until its coordinator has noticed them.

Fluss 0.9.1 creates a table's node in ZooKeeper and fills it a few milliseconds later. Its
coordinator recognizes a new table by the second step only. If its watcher is slow (a cold or busy
JVM), it sees both steps as one, and the table has no leaders until the coordinator restarts. A
partition created in this state breaks the leaders of all later tables, so check the table first.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path

from sluice.client import Client, connect
from sluice.errors import (
    LeaderNotAvailable,
    NotLeaderOrFollower,
    RequestTimeOut,
    UnknownTableOrBucket,
)
from sluice.model import Reason, TableDescriptor, TablePath

_TRIES = 5
_LOOK_EVERY_S = 0.1
_NOT_LED = (LeaderNotAvailable, NotLeaderOrFollower, UnknownTableOrBucket, RequestTimeOut)
"""Errors that leave open whether a bucket has a leader; a server may be too busy to answer."""


def create_table(
    client: Client,
    path: TablePath,
    descriptor: TableDescriptor,
    warehouse: Path | None = None,
    wait_s: float = 8.0,
) -> None:
    """Creates a table, and creates it again if the coordinator has missed it.

    :param descriptor: a partitioned table must be tiered, with a freshness of seconds. Without
        partitions, only an assigned round shows that the coordinator has noticed the table.
    :param warehouse: of the cluster's Hadoop catalog, if the table is tiered. Fluss leaves the
        empty lake table of a missed table there.
    :param wait_s: how long the coordinator may take to notice the new table.
    :raises LeaderNotAvailable: the coordinator missed the table every time.
    """
    is_noticed = is_assigned if descriptor.partition_keys else has_leaders
    for _ in range(_TRIES):
        client.admin.create_table(path, descriptor)
        if is_noticed(client, path, wait_s):
            return
        client.admin.drop_table(path)
        if warehouse is not None:
            shutil.rmtree(warehouse / path.database / path.table, ignore_errors=True)
    raise LeaderNotAvailable(
        f"table {path} was created {_TRIES} times, and the coordinator did not notice it"
    )


def has_leaders(client: Client, path: TablePath, wait_s: float) -> bool:
    """Whether every bucket of a table without partitions gets a leader within ``wait_s``."""
    patient = replace(client.config, retry_timeout_ms=int(wait_s * 1000))
    with connect(patient) as other:
        try:
            other.admin.list_offsets(path)
        except _NOT_LED:
            return False
    return True


def is_assigned(client: Client, path: TablePath, wait_s: float) -> bool:
    """Whether the coordinator assigns the table, which it must know for that. Releases it again."""
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline:
        claim = client.tiering.claim([path])
        if claim is not None:
            checked = "checked that the coordinator knows the table"
            client.tiering.release(claim, Reason.from_text(checked))
            return True
        time.sleep(_LOOK_EVERY_S)
    return False
