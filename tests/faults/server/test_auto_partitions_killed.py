"""kill -9 of the server between the partitions that it creates or drops by time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from sluice.client import connect
from sluice.config import ClientConfig
from sluice.errors import FlussError
from sluice.model import Column, Schema, TableDescriptor, TablePath
from sluice.model.types import BIGINT, STRING
from tests.support.programs.clocked_server import FIRST_MS, ClockedServerProcess

DAY_MS = 86_400_000
PATH = TablePath("shop", "days")
COLUMNS = (Column("day", STRING, 0), Column("id", BIGINT, 1))
OPTIONS = {
    "table.auto-partition.enabled": "true",
    "table.auto-partition.time-zone": "UTC",
    "table.auto-partition.num-retention": "0",
}
TABLE = TableDescriptor(Schema(COLUMNS, highest_field_id=1), ("day",), properties=OPTIONS)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ClockedServerProcess]:
    process = ClockedServerProcess(tmp_path / "data")
    yield process
    process.kill()


def names(server: ClockedServerProcess) -> list[str]:
    with connect(ClientConfig(server.address)) as client:
        return sorted(one.name for one in client.admin.partitions(PATH))


def test_killed_after_the_first_partition_of_a_new_table(server: ClockedServerProcess) -> None:
    assert FIRST_MS == 1_700_000_000_000, "14 November 2023"
    server.start(SLUICE_FAILPOINTS="server.auto_partition.created=kill")
    config = ClientConfig(server.address, retry_timeout_ms=1_000)
    with connect(config) as client, suppress(FlussError):
        client.admin.create_database(PATH.database)
        client.admin.create_table(PATH, TABLE)
    assert server.wait_until_dead() == -9
    server.start()
    assert names(server) == ["20231114", "20231115"]


@pytest.mark.slow
def test_killed_before_the_data_of_an_expired_partition_is_deleted(
    server: ClockedServerProcess,
) -> None:
    server.start()
    with connect(ClientConfig(server.address)) as client:
        client.admin.create_database(PATH.database)
        client.admin.create_table(PATH, TABLE)
        with client.log_writer(PATH) as writer:
            writer.write(pa.table({"day": ["20231114"], "id": [1]}))
    server.stop()
    folders = server.data_dir / "log" / "shop"
    assert list(folders.rglob("20231114-p*"))
    server.clock.move(1 * DAY_MS)
    with suppress(AssertionError):  # it may die before it says that it is ready
        server.start(
            SLUICE_FAILPOINTS="server.auto_partition.dropped=kill",
            SLUICE_SERVER_AUTO_PARTITION_CHECK_INTERVAL_MS="10",
        )
    assert server.wait_until_dead() == -9
    server.start()
    assert names(server) == ["20231115", "20231116"]
    assert not list(folders.rglob("20231114-p*"))
