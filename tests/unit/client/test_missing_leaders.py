"""Tables without leaders, by the metadata of a Fluss, and what is advised."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from sluice.client.connection import Connection
from sluice.client.missing_leaders import TABLES_MAX, never_tiered, tables_without_leaders
from sluice.config import ClientConfig
from sluice.errors import TableNotExist
from sluice.model import TableInfo, TablePath
from sluice.model.types import BIGINT
from sluice.statuses import RecordedStatus
from sluice.testing.tables import table_info
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Role
from tests.support.wire_server import WireServer

ALIVE = 0
NOW_MS = 1_790_000_000_000


def info(table_id: int) -> TableInfo:
    return table_info({"n": BIGINT}, path=TablePath("shop", f"t{table_id}"), table_id=table_id)


@dataclass
class Cluster:
    """The leader of each bucket of each table, on servers of which only ``ALIVE`` runs."""

    leaders: Mapping[int, Mapping[int, int | None]]
    dropped: set[int] = field(default_factory=set)
    asked: list[int] = field(default_factory=list)
    port: int = 0

    def metadata(self, request: Any) -> pb.MetadataResponse:
        node = {"node_id": ALIVE, "host": "127.0.0.1", "port": self.port}
        reply = pb.MetadataResponse(coordinator_server=node, tablet_servers=[node])
        ids = [int(path.table_name[1:]) for path in request.table_path]
        self.asked += [len(ids)] if ids else []
        if self.dropped & {*ids}:
            raise TableNotExist("one of them")
        for table_id in ids:
            path = pb.PbTablePath(database_name="shop", table_name=f"t{table_id}")
            entry = reply.table_metadata.add(
                table_path=path,
                table_id=table_id,
                schema_id=1,
                table_json=b"{}",
                created_time=0,
                modified_time=0,
            )
            for number, leader in self.leaders.get(table_id, {0: ALIVE}).items():
                replicas = [ALIVE if leader is None else leader]
                bucket = entry.bucket_metadata.add(bucket_id=number, replica_id=replicas)
                if leader is not None:
                    bucket.leader_id = leader
        return reply

    def found(self, ids: range) -> dict[int, str]:
        handlers = {(Role.COORDINATOR, apis.GET_METADATA): self.metadata}
        with WireServer(handlers) as server:
            self.port = server.port
            connection = Connection(ClientConfig(server.address))
            try:
                return tables_without_leaders(connection, [info(n) for n in ids])
            finally:
                connection.close()


@pytest.fixture
def texts() -> Iterator[dict[int, str]]:
    leaders = {
        2: {0: None},
        3: {0: ALIVE, 1: None, 2: None, 3: None, 4: None},
        4: {0: 7, 1: ALIVE},
    }
    yield Cluster(leaders).found(range(1, 5))


def test_each_lack_has_its_advice(texts: dict[int, str]) -> None:
    missed = (
        "although the tablet servers run: Fluss's coordinator has missed the table. Restart the"
    )
    assert texts == {
        2: f"no leader: bucket 0 of table shop.t2, {missed} coordinator",
        3: f"no leader: buckets 1, 2, 3 and 1 more of table shop.t3, {missed} coordinator",
        4: "no leader: bucket 0 of table shop.t4: 1 tablet server of it does not run (id 7)."
        " Start it",
    }


def test_many_tables_take_few_calls() -> None:
    cluster = Cluster({777: {0: None}})
    assert [*cluster.found(range(1, 1001))] == [777]
    assert cluster.asked == [TABLES_MAX] * 5


def test_a_table_that_was_dropped_hides_no_other() -> None:
    cluster = Cluster({1: {0: None}, 8: {0: None}}, dropped={5})
    assert [*cluster.found(range(1, 9))] == [1, 8]


def test_only_old_tables_without_a_round_are_suspected() -> None:
    tables = [info(number) for number in (1, 2, 3)]
    rows = {
        1: RecordedStatus(1, last_tiered_ms=NOW_MS),
        2: RecordedStatus(2, last_error="no leader"),
    }
    old = {each.table_id for each in never_tiered(tables, rows, NOW_MS)}
    created_ms = tables[0].created_ms
    assert old == {2, 3}
    assert never_tiered(tables, rows, created_ms + 5_000) == []
