"""Creates tables of a real Fluss for certain, although its coordinator may miss a new one.

Fluss 0.9.1 makes a table's node in ZooKeeper and fills it a few milliseconds later; its coordinator
knows a new table by the second step alone. Where its watcher is slow (a cold or busy JVM) it sees
both as one, and the table has no leaders until the coordinator starts anew. A partition that is
created then breaks the leaders of all tables to come, so one has to look before.
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
from sluice.model import TableDescriptor, TablePath

_TRIES = 5
_LOOK_EVERY_S = 0.1
_NOT_LED = (LeaderNotAvailable, NotLeaderOrFollower, UnknownTableOrBucket, RequestTimeOut)
"""A server that is too busy to answer in time has not said that it leads either."""


def create_table(
    client: Client,
    path: TablePath,
    descriptor: TableDescriptor,
    warehouse: Path | None = None,
    wait_s: float = 8.0,
) -> None:
    """Creates a table, and creates it anew if the coordinator has missed it.

    :param descriptor: of a partitioned table only if it is tiered, with a freshness of seconds: by
        nothing else is one without partitions seen to be known.
    :param warehouse: of the cluster's Hadoop catalog, if the table is tiered: Fluss leaves the
        empty lake table behind.
    :param wait_s: how long the coordinator may take to notice the new table.
    :raises LeaderNotAvailable: it missed the table every time.
    """
    is_noticed = is_handed_out if descriptor.partition_keys else is_led
    for _ in range(_TRIES):
        client.admin.create_table(path, descriptor)
        if is_noticed(client, path, wait_s):
            return
        client.admin.drop_table(path)
        if warehouse is not None:
            shutil.rmtree(warehouse / path.database / path.table, ignore_errors=True)
    raise LeaderNotAvailable(f"the coordinator did not notice table {path}, {_TRIES} times created")


def is_led(client: Client, path: TablePath, wait_s: float) -> bool:
    """Whether every bucket of a table without partitions gets a leader in that time."""
    patient = replace(client.config, retry_timeout_ms=int(wait_s * 1000))
    with connect(patient) as other:
        try:
            other.admin.list_offsets(path)
        except _NOT_LED:
            return False
    return True


def is_handed_out(client: Client, path: TablePath, wait_s: float) -> bool:
    """Only a table that the coordinator knows is handed out; it goes back at once."""
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline:
        claim = client.tiering.claim([path])
        if claim is not None:
            client.tiering.release(claim, "only looked whether the table is known")
            return True
        time.sleep(_LOOK_EVERY_S)
    return False
