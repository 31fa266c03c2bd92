"""Partitions by time: the same names, refusals and expiry as a real Fluss has."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sluice.client import Client, connect
from sluice.config import ClientConfig, ServerConfig
from sluice.errors import SluiceError
from sluice.model import Column, Schema, TableDescriptor, TablePath
from sluice.model.types import BIGINT, STRING
from sluice.server.cluster import EmbeddedCluster
from tests.support.fluss.real_fluss import RealFluss

pytestmark = [pytest.mark.real_fluss, pytest.mark.slow]

UNITS = ("HOUR", "DAY", "MONTH", "QUARTER", "YEAR")
ZONE = "Asia/Kathmandu"
"""Its clock is 5 hours and 45 minutes ahead: nobody's zone by accident."""
NOTICED_S = 10
EXPIRED_S = 60


def table(keys: tuple[str, ...] = ("at",), **options: str) -> TableDescriptor:
    """A log table that is partitioned by time."""
    columns = (Column("at", STRING, 0), Column("region", STRING, 1), Column("id", BIGINT, 2))
    named = {f"table.auto-partition.{name.replace('_', '-')}": v for name, v in options.items()}
    properties = {
        "table.auto-partition.enabled": "true",
        "table.auto-partition.time-zone": ZONE,
        **named,
    }
    schema = Schema(columns, highest_field_id=2)
    return TableDescriptor(schema, keys, bucket_count=1, properties=properties)


def names(client: Client, path: TablePath) -> list[str]:
    return sorted(one.name for one in client.admin.partitions(path))


def created(client: Client, name: str, descriptor: TableDescriptor) -> TablePath:
    """A new table with partitions; again under another name if Fluss 0.9.1 has missed it."""
    for number in range(3):
        path = TablePath("by_time", f"{name}_{number}")
        client.admin.create_table(path, descriptor)
        deadline = time.monotonic() + NOTICED_S
        while time.monotonic() < deadline:
            if len(names(client, path)) >= 3:
                return path
            time.sleep(0.1)
    raise AssertionError(f"{name} was not noticed, three times created")


@contextmanager
def embedded(folder: Path, **settings: Any) -> Iterator[Client]:
    config = ServerConfig(str(folder / "data"), listen="grpc://127.0.0.1:0", **settings)
    with EmbeddedCluster(config) as cluster, connect(ClientConfig(cluster.address)) as client:
        client.admin.create_database("by_time", ignore_if_exists=True)
        yield client


@pytest.fixture
def real(real_fluss: RealFluss) -> Iterator[Client]:
    with connect(real_fluss.bootstrap) as client:
        client.admin.create_database("by_time", ignore_if_exists=True)
        yield client


def test_new_tables_have_the_same_partitions(real: Client, tmp_path: Path) -> None:
    with embedded(tmp_path) as ours:
        for unit in UNITS:
            descriptor = table(time_unit=unit, num_precreate="3")
            for _ in range(2):  # again if an hour has begun meanwhile
                found = [
                    names(client, created(client, f"{unit.lower()}_{time.time_ns()}", descriptor))
                    for client in (real, ours)
                ]
                if found[0] == found[1]:
                    break
            assert found[0] == found[1]
            assert len(found[0]) == 3


MISFITS = {
    "no partition key": table(()),
    "two keys, none named": table(("at", "region")),
    "two keys, another named": table(("at", "region"), key="id"),
    "two keys, created ahead": table(("at", "region"), key="at", num_precreate="2"),
    "an unknown unit": table(time_unit="WEEK"),
    "no number": table(num_retention="many"),
    "no number of 32 bits": table(num_retention=str(2**31)),
    "a format of a later Fluss": table(time_format="yyyy-MM-dd"),
}


def test_the_same_options_are_refused(real: Client, tmp_path: Path) -> None:
    told: dict[str, list[str]] = {}
    with embedded(tmp_path) as ours:
        for number, (what, descriptor) in enumerate(MISFITS.items()):
            for client in (real, ours):
                path = TablePath("by_time", f"misfit_{number}")
                try:
                    client.admin.create_table(path, descriptor)
                    told.setdefault(what, []).append("created")
                except SluiceError as error:
                    told.setdefault(what, []).append(type(error).__name__)
    assert {what: both for what, both in told.items() if both[0] != both[1]} == {}
    assert all(both[1] != "created" for both in told.values()), told


@pytest.mark.long
def test_old_partitions_go_alike(tmp_path: Path) -> None:
    """Also those of users: their names are compared as texts."""
    of_users = ["1999", "2020010100", "0", "9999123123", "north"]
    conf = {"auto-partition.check.interval": "1s"}
    left = []
    descriptor = table(time_unit="HOUR", num_precreate="3", num_retention="0")
    with (
        RealFluss(tmp_path / "fluss", lake=False, conf=conf) as fluss,
        connect(fluss.bootstrap) as real,
        embedded(tmp_path, auto_partition_check_interval_ms=1_000) as ours,
    ):
        real.admin.create_database("by_time", ignore_if_exists=True)
        for client in (real, ours):
            path = created(client, f"old_{time.time_ns()}", descriptor)
            for value in of_users:
                client.admin.create_partition(path, {"at": value})
            deadline = time.monotonic() + EXPIRED_S
            while time.monotonic() < deadline and "1999" in names(client, path):
                time.sleep(0.2)
            time.sleep(2)  # another check
            left.append([one for one in names(client, path) if one in of_users])
    assert left[0] == left[1] == ["9999123123", "north"]
