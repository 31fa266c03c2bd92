"""Tables without leaders, by the metadata of a Fluss, and what is advised."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from sluice.client import connect
from sluice.client.admin.missing_leaders import (
    TABLES_MAX,
    await_leaders,
    never_tiered,
    tables_without_leaders,
)
from sluice.client.connection.connection import Connection
from sluice.clock import SystemClock
from sluice.config import ClientConfig
from sluice.errors import (
    FencedTieringEpoch,
    LakeSnapshotNotExist,
    LeaderNotAvailable,
    TableNotDue,
    TableNotExist,
)
from sluice.formats.types.descriptors import descriptor_to_json
from sluice.model import TableInfo, TablePath
from sluice.model.types import BIGINT
from sluice.statuses import RecordedStatus
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Role
from sluice.wire.error_codes import to_error_response
from tests.support.models.tables import table_info
from tests.support.network.wire_server import WireServer

ALIVE = 0
NOW_MS = 1_790_000_000_000


def info(table_id: int, properties: Mapping[str, str] | None = None) -> TableInfo:
    path = TablePath("shop", f"t{table_id}")
    found = table_info({"n": BIGINT}, path=path, table_id=table_id)
    described = replace(found.descriptor, properties=properties or {})
    return replace(found, descriptor=described)


@dataclass
class Cluster:
    """The leader of each bucket of each table, on servers of which only ``ALIVE`` runs.

    The coordinator knows all tables for tiering, except the missed ones.
    """

    leaders: Mapping[int, Mapping[int, int | None]]
    dropped: set[int] = field(default_factory=set)
    missed: set[int] = field(default_factory=set)
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

    def heartbeat(self, request: Any) -> pb.LakeTieringHeartbeatResponse:
        reply = pb.LakeTieringHeartbeatResponse(coordinator_epoch=4)
        for one in request.tiering_tables:
            assert (one.tiering_epoch, one.coordinator_epoch) == (0, 4), "no claim has this epoch"
            is_missed = one.table_id in self.missed
            error = TableNotExist("not known") if is_missed else FencedTieringEpoch("it has 3")
            reply.tiering_table_resp.add(table_id=one.table_id, error=to_error_response(error))
        return reply

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        handlers = {
            (Role.COORDINATOR, apis.GET_METADATA): self.metadata,
            (Role.COORDINATOR, apis.LAKE_TIERING_HEARTBEAT): self.heartbeat,
        }
        with WireServer(handlers) as server:
            self.port = server.port
            connection = Connection(ClientConfig(server.address))
            try:
                yield connection
            finally:
                connection.close()

    def found(self, ids: range, *, may_be_missed: bool = True) -> dict[int, str]:
        with self.connection() as connection:
            tables = [info(n) for n in ids]
            return tables_without_leaders(connection, tables, may_be_missed=may_be_missed)

    def awaited(self, table: TableInfo, *, is_new: bool) -> str | None:
        """A wait whose leaders are not elected meanwhile."""
        with self.connection() as connection:
            return await_leaders(connection, table, is_new=is_new, wait_s=0.0)


LEADERS: Mapping[int, Mapping[int, int | None]] = {
    2: {0: None},
    3: {0: ALIVE, 1: None, 2: None, 3: None, 4: None},
    4: {0: 7, 1: ALIVE},
    5: {0: None, 1: None},
}
MISSED = "although the tablet servers run: Fluss's coordinator has missed the table. Restart the"
ELECTION = (
    "now, as while a tablet server restarts. If it stays so for a minute, restart the coordinator"
)


def test_each_lack_has_its_advice() -> None:
    """Of an election and of a server that does not run, none is to restart the coordinator."""
    texts = Cluster(LEADERS, missed={2}).found(range(1, 6))
    assert texts == {
        2: f"no leader: bucket 0 of table shop.t2, {MISSED} coordinator",
        3: f"no leader: buckets 1, 2, 3 and 1 more of table shop.t3 {ELECTION}",
        4: "no leader: bucket 0 of table shop.t4: 1 tablet server of it does not run (id 7)."
        " Start it",
        5: f"no leader: buckets 0, 1 of table shop.t5 {ELECTION}",
    }


def test_a_table_that_was_tiered_was_not_missed() -> None:
    """The coordinator is not even asked."""
    texts = Cluster(LEADERS, missed={2, 3, 4, 5}).found(range(1, 6), may_be_missed=False)
    assert [number for number, text in texts.items() if "has missed" in text] == []
    assert sorted(texts) == [2, 3, 4, 5]


def test_a_new_table_without_leaders_is_an_error() -> None:
    cluster = Cluster(LEADERS, missed={2})
    tiered = {"table.datalake.enabled": "true"}
    assert cluster.awaited(info(1, tiered), is_new=True) is None
    for number, properties in ((2, tiered), (2, {}), (5, tiered)):
        with pytest.raises(LeaderNotAvailable, match=f"t{number} exists, but cannot be written"):
            cluster.awaited(info(number, properties), is_new=True)


def test_an_old_table_without_leaders_is_an_error_only_if_it_was_missed() -> None:
    """As for ``create-table --if-not-exists`` while a tablet server restarts."""
    cluster = Cluster(LEADERS, missed={2})
    tiered = {"table.datalake.enabled": "true"}
    with pytest.raises(LeaderNotAvailable, match="has missed the table"):
        cluster.awaited(info(2, tiered), is_new=False)
    for number, properties in ((5, tiered), (2, {})):
        lack = cluster.awaited(info(number, properties), is_new=False)
        assert lack is not None
        assert ELECTION in lack


def test_a_table_that_a_server_does_not_know_yet_has_no_leaders_yet() -> None:
    """Its metadata may reach that server later."""
    cluster = Cluster({}, dropped={1})
    with pytest.raises(LeaderNotAvailable, match="no leader: bucket 0 of table shop.t1"):
        cluster.awaited(info(1), is_new=True)


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


@pytest.mark.parametrize("what", ["new", "old", "old, with a lake snapshot"])
def test_a_request_for_a_table_that_the_coordinator_does_not_know(what: str) -> None:
    """The coordinator learns of a new table a little later; what was tiered, it did not miss."""
    is_old = what.startswith("old")
    made_ms = 1_000 if is_old else SystemClock().now_ms()
    asked = info(7, {"table.datalake.enabled": "true"})

    def described(request: Any) -> pb.GetTableInfoResponse:
        if request.table_path.table_name != asked.path.table:
            raise TableNotExist("no status is recorded")
        return pb.GetTableInfoResponse(
            table_id=7,
            schema_id=1,
            table_json=descriptor_to_json(asked.descriptor),
            created_time=made_ms,
            modified_time=made_ms,
        )

    def snapshot(request: Any) -> pb.GetLakeSnapshotResponse:
        if "snapshot" not in what:
            raise LakeSnapshotNotExist("none")
        return pb.GetLakeSnapshotResponse(table_id=7, snapshotId=3)

    handlers = {
        (Role.COORDINATOR, apis.LAKE_TIERING_HEARTBEAT): Cluster({}, missed={7}).heartbeat,
        (Role.COORDINATOR, apis.GET_TABLE_INFO): described,
        (Role.COORDINATOR, apis.GET_LAKE_SNAPSHOT): snapshot,
    }
    with (
        WireServer(handlers) as server,
        connect(server.address) as client,
        pytest.raises(TableNotDue) as caught,
    ):
        client.statuses.request_round(asked.path)
    assert ("has missed the creation of table" in str(caught.value)) == (what == "old")
    assert "estart the coordinator" in str(caught.value)
    assert caught.value.details["waits"]
