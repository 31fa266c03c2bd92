"""Commits and reports whose answers are lost: looked up or repeated, never done twice blindly."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.client import Client, connect
from sluice.config import ClientConfig
from sluice.errors import (
    FencedTieringEpoch,
    FlussError,
    LakeSnapshotNotExist,
    NetworkError,
    RequestTimeOut,
    TableNotExist,
)
from sluice.model import Claim, Reason, TableBucket, TablePath
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Role
from sluice.wire.error_codes import put_error, to_error_response
from tests.support.network.wire_server import WireServer

PATH = TablePath("shop", "orders")
CLAIM = Claim(1, PATH, 5, 3)
BUCKET = TableBucket(1, None, 0)


class Coordinator:
    """Registers lake snapshots; loses the answers that a test wants lost."""

    def __init__(self) -> None:
        self.registered: list[int] = []
        self.commits: list[Any] = []
        self.reports: list[Any] = []
        self.lost: list[tuple[FlussError, bool]] = []
        """What the next commits end by, and whether they are carried out all the same."""
        self.epoch = 5
        self.server = WireServer(
            {
                (Role.COORDINATOR, apis.COMMIT_LAKE_TABLE_SNAPSHOT): self.commit,
                (Role.COORDINATOR, apis.GET_LAKE_SNAPSHOT): self.look,
                (Role.COORDINATOR, apis.LAKE_TIERING_HEARTBEAT): self.heartbeat,
                (Role.COORDINATOR, apis.GET_TABLE_INFO): self.no_table,
            }
        )

    def commit(self, request: Any) -> Any:
        self.commits.append(request)
        (metadata,) = request.lake_table_snapshot_metadata
        reply = pb.CommitLakeTableSnapshotResponse()
        entry = reply.table_resp.add(table_id=metadata.table_id)
        error, done = self.lost.pop(0) if self.lost else (None, True)
        if done:
            self.registered.append(metadata.snapshot_id)
        if isinstance(error, FencedTieringEpoch):
            put_error(entry, error)
        elif error is not None:
            raise error
        return reply

    def no_table(self, request: Any) -> Any:
        raise TableNotExist("no status was recorded yet")

    def look(self, request: Any) -> Any:
        if request.snapshot_id not in self.registered:
            raise LakeSnapshotNotExist(f"no lake snapshot {request.snapshot_id}")
        return pb.GetLakeSnapshotResponse(table_id=1, snapshotId=request.snapshot_id)

    def heartbeat(self, request: Any) -> Any:
        self.reports.append(request)
        reply = pb.LakeTieringHeartbeatResponse(coordinator_epoch=3)
        for given, answers in (
            (request.finished_tables, reply.finished_table_resp),
            (request.failed_tables, reply.failed_table_resp),
        ):
            for table in given:
                answer = answers.add(table_id=table.table_id)
                if table.tiering_epoch != self.epoch:
                    error = FencedTieringEpoch(f"{table.tiering_epoch} is not {self.epoch}")
                    answer.error.CopyFrom(to_error_response(error))
        error, done = self.lost.pop(0) if self.lost else (None, True)
        if done and request.failed_tables:
            self.epoch += 1
        if error is not None:
            raise error
        return reply


@pytest.fixture
def coordinator() -> Any:
    coordinator = Coordinator()
    with coordinator.server:
        yield coordinator


@pytest.fixture
def client(coordinator: Coordinator) -> Any:
    with connect(ClientConfig(bootstrap=coordinator.server.address)) as client:
        yield client


def commit(client: Client) -> None:
    client.tiering.commit_lake_snapshot(
        CLAIM, 900, "/lake/offsets", {BUCKET: 10}, {BUCKET: 1_700_000_000_000}, -1
    )


def test_a_commit_carries_all_that_fluss_and_the_fence_want(
    client: Client, coordinator: Coordinator
) -> None:
    commit(client)
    (request,) = coordinator.commits
    (metadata,) = request.lake_table_snapshot_metadata
    assert metadata.tiered_bucket_offsets_file_path == "/lake/offsets"
    assert metadata.readable_bucket_offsets_file_path == "/lake/offsets"
    assert (metadata.snapshot_id, metadata.earliest_snapshot_id_to_keep) == (900, -1)
    assert (metadata.tiering_epoch, metadata.coordinator_epoch) == (5, 3)
    (table,) = request.tables_req
    (bucket,) = table.buckets_req
    assert (table.table_id, table.snapshot_id, table.table_path.table_name) == (1, 900, "orders")
    assert (bucket.bucket_id, bucket.log_end_offset) == (0, 10)
    assert bucket.max_timestamp == 1_700_000_000_000
    assert not bucket.HasField("partition_id")


@pytest.mark.parametrize("error", [NetworkError("lost"), RequestTimeOut("late")])
def test_a_commit_that_landed_unheard_is_not_sent_again(
    client: Client, coordinator: Coordinator, error: FlussError
) -> None:
    coordinator.lost = [(error, True)]
    commit(client)
    assert coordinator.registered == [900]
    assert len(coordinator.commits) == 1


def test_a_commit_that_did_not_land_is_sent_again(client: Client, coordinator: Coordinator) -> None:
    coordinator.lost = [(NetworkError("lost"), False), (RequestTimeOut("late"), False)]
    commit(client)
    assert coordinator.registered == [900]
    assert len(coordinator.commits) == 3


def test_a_commit_is_not_tried_for_ever(client: Client, coordinator: Coordinator) -> None:
    coordinator.lost = [(NetworkError("lost"), False)] * 99
    with pytest.raises(NetworkError, match="lost"):
        commit(client)
    assert len(coordinator.commits) == 5


def test_a_fenced_commit_is_not_repeated(client: Client, coordinator: Coordinator) -> None:
    coordinator.lost = [(FencedTieringEpoch("epoch 5 is not 6"), False)]
    with pytest.raises(FencedTieringEpoch, match="epoch 5 is not 6"):
        commit(client)
    assert len(coordinator.commits) == 1


def test_a_report_repeated_after_a_lost_answer_is_no_fence(
    client: Client, coordinator: Coordinator
) -> None:
    coordinator.lost = [(RequestTimeOut("late"), True)]
    client.tiering.failed(CLAIM, Reason.from_text("x" * 5000))
    assert len(coordinator.reports) == 2
    (entry,) = coordinator.reports[0].failed_tables
    assert len(entry.error_message) == 4096
    with pytest.raises(FencedTieringEpoch):
        client.tiering.failed(CLAIM, Reason.from_text("again, with an epoch that is over"))


def test_a_claim_whose_answer_is_lost_is_not_taken_twice(
    client: Client, coordinator: Coordinator
) -> None:
    coordinator.lost = [(NetworkError("lost"), True)]
    with pytest.raises(NetworkError):
        client.tiering.claim()
    assert len(coordinator.reports) == 1
    assert client.tiering.claim([]) is None
    assert len(coordinator.reports) == 1
