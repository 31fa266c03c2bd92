"""Claims, reports and lake snapshots against a real cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from sluice.client import Client, Heartbeats, connect
from sluice.errors import (
    ClaimLost,
    FencedTieringEpoch,
    InvalidCoordinator,
    InvalidUpdateVersion,
    NetworkError,
    TableNotExist,
    UnknownServerError,
)
from sluice.model import Claim, Reason, TableBucket, TableDescriptor, TablePath
from sluice.rounds.values.ports import Cluster as ClusterPort
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Role
from tests.support.network.wire_server import WireServer
from tests.support.tables.orders import PATH, PLAIN, SCHEMA, create, orders, write

ITEMS = TablePath("shop", "items")
LAKE = {"table.datalake.enabled": "true", "table.datalake.freshness": "60s"}


@pytest.fixture
def lake(client: Client) -> Iterator[Client]:
    """A lake table that waits to be tiered."""
    create(client, PLAIN, bucket_count=2, properties=LAKE)
    yield client


def claimed(client: Client) -> Claim:
    claim = client.tiering.claim()
    assert claim is not None
    return claim


def test_it_is_a_rounds_cluster(client: Client) -> None:
    port: ClusterPort = client.tiering
    assert port is client.tiering


def test_a_new_table_is_claimed_at_once(client: Client) -> None:
    create(client, PLAIN, properties=LAKE)
    claim = claimed(client)
    info = client.admin.table_info(PATH)
    assert (claim.path, claim.table_id) == (PATH, info.table_id)
    assert (claim.tiering_epoch, claim.coordinator_epoch) == (1, 1)
    assert client.tiering.claim() is None
    (status,) = client.statuses.list(PATH)
    assert (status.status, status.tiering_epoch, status.path) == ("Tiering", 1, PATH)


def test_a_server_that_hands_out_any_table_gets_unwanted_ones_back() -> None:
    """Fluss 0.9.1 skips the field ``requested_tables``."""
    queue, told = ["a", "b", "c"], []

    def heartbeat(request: Any) -> pb.LakeTieringHeartbeatResponse:
        reply = pb.LakeTieringHeartbeatResponse(coordinator_epoch=3)
        for entry in request.failed_tables:
            told.append((entry.table_id, entry.error_message))
            reply.failed_table_resp.add(table_id=entry.table_id)
            queue.append("abc"[entry.table_id])
        if request.request_table and queue:
            name = queue.pop(0)
            reply.tiering_table.table_id, reply.tiering_table.tiering_epoch = "abc".index(name), 7
            reply.tiering_table.table_path.database_name = "shop"
            reply.tiering_table.table_path.table_name = name
        return reply

    def no_table(request: Any) -> pb.GetTableInfoResponse:
        raise TableNotExist("no status was recorded yet")

    handlers = {
        (Role.COORDINATOR, apis.LAKE_TIERING_HEARTBEAT): heartbeat,
        (Role.COORDINATOR, apis.GET_TABLE_INFO): no_table,
    }
    with WireServer(handlers) as server, connect(server.address) as client:
        wanted = TablePath("shop", "c")
        many = [wanted, *(TablePath("shop", f"t{i}") for i in range(20))]  # not checked one by one
        assert client.tiering.claim(many) == Claim(2, wanted, 7, 3)
        assert [table for table, _ in told] == [0, 1]
        assert all("was not requested" in reason for _, reason in told)
        assert client.tiering.claim(many) is None
        assert queue == ["a", "b"], "both can be had by those who want them"


def test_only_requested_tables_are_claimed(lake: Client) -> None:
    lake.admin.create_table(ITEMS, TableDescriptor(SCHEMA, properties=LAKE))
    assert lake.tiering.claim([TablePath("shop", "nothing")]) is None
    assert lake.tiering.claim([]) is None
    first = lake.tiering.claim([ITEMS])
    assert first is not None
    assert first.path == ITEMS
    assert claimed(lake).path == PATH


def test_a_finished_table_is_tiered_again_after_its_freshness(lake: Client, cluster: Any) -> None:
    lake.tiering.finished(claimed(lake), file_size=1000, record_count=10)
    (status,) = lake.statuses.list(PATH)
    assert (status.status, status.last_tiered_ms) == ("Scheduled", cluster.clock.ms)
    assert lake.tiering.claim() is None
    cluster.clock.ms += 60_000
    assert claimed(lake).tiering_epoch == 2


def test_a_forced_finish_queues_the_table_at_once(lake: Client) -> None:
    lake.tiering.finished(claimed(lake), forced=True)
    assert claimed(lake).tiering_epoch == 2


def test_the_server_warns_once_of_a_reason(lake: Client, cluster: Any) -> None:
    """It may name a damaged batch, which the server itself has not read."""
    levels = []
    for reason in ("bucket 0: offset 3", "bucket 0: offset 3", "bucket 1: offset 7", None):
        claim = claimed(lake)
        with capture_logs() as events:
            if reason is None:
                lake.tiering.finished(claim, forced=True)
            else:
                lake.tiering.failed(claim, Reason.from_text(reason))
        failed = [one for one in events if one["event"] == "tiering failed"]
        levels += [(one["log_level"], one["table"], one["reason"]) for one in failed]
        cluster.clock.ms += 120_000
    assert levels == [
        ("warning", "shop.orders", "bucket 0: offset 3"),
        ("info", "shop.orders", "bucket 0: offset 3"),
        ("warning", "shop.orders", "bucket 1: offset 7"),
    ]


def test_a_failed_table_keeps_its_reason_and_comes_again(lake: Client, cluster: Any) -> None:
    claim = claimed(lake)
    lake.tiering.failed(claim, Reason.from_text("warehouse is full" + "!" * 5000))
    (status,) = lake.statuses.list()
    assert status.last_error is not None
    assert status.last_error.startswith("warehouse is full!")
    assert len(status.last_error) == 4096
    assert (status.status, status.failures, status.is_failing) == ("Failed", 1, True)
    assert status.next_attempt_ms == cluster.clock.ms + 10_000
    assert lake.tiering.claim() is None
    cluster.clock.ms += 10_000
    assert claimed(lake).tiering_epoch == claim.tiering_epoch + 1
    with pytest.raises(FencedTieringEpoch):
        lake.tiering.failed(claim, Reason.from_text("late"))
    with pytest.raises(FencedTieringEpoch):
        lake.tiering.finished(claim)


def test_a_claim_is_given_back_without_a_failure(lake: Client) -> None:
    claim = claimed(lake)
    lake.tiering.release(claim, Reason.from_text("not wanted"))
    (status,) = lake.statuses.list(PATH)
    assert (status.status, status.failures, status.last_error) == ("Pending", 0, None)
    assert claimed(lake).tiering_epoch == claim.tiering_epoch + 1
    with pytest.raises(FencedTieringEpoch):
        lake.tiering.release(claim, Reason.from_text("late"))


def test_a_user_pauses_retries_and_wants_it_again(lake: Client, cluster: Any) -> None:
    statuses = lake.statuses
    statuses.pause(PATH)
    cluster.clock.ms += 600_000
    assert lake.tiering.claim() is None
    assert statuses.list(PATH)[0].paused
    statuses.resume(PATH)
    lake.tiering.failed(claimed(lake), Reason.from_text("broken"))
    statuses.retry(PATH)
    lake.tiering.finished(claimed(lake))
    (status,) = statuses.list(PATH)
    assert (status.is_failing, status.paused, status.status) == (False, False, "Scheduled")
    statuses.request_round(PATH)
    assert claimed(lake) is not None


def test_heartbeats_keep_a_claim_and_silence_loses_it(lake: Client, cluster: Any) -> None:
    claim = claimed(lake)
    with Heartbeats(lake.tiering, interval_s=3600) as heartbeats:
        heartbeats.add(claim)
        for _ in range(5):
            cluster.clock.ms += 100_000
            heartbeats.beat()
        heartbeats.check(claim)
        assert lake.tiering.still_claimed(claim)
        cluster.clock.ms += 120_000
        heartbeats.beat()
        with pytest.raises(ClaimLost, match=r"shop\.orders.*has failed and ended"):
            heartbeats.check(claim)
    assert not lake.tiering.still_claimed(claim)


def test_a_restart_of_the_coordinator_ends_every_claim(lake: Client, cluster: Any) -> None:
    claim = claimed(lake)
    cluster.stop()
    with Heartbeats(lake.tiering) as heartbeats:
        heartbeats.add(claim)
        heartbeats.beat()
        heartbeats.check(claim)  # down is not lost
        cluster.start()
        assert not lake.tiering.still_claimed(claim)
        heartbeats.beat()
        with pytest.raises(ClaimLost, match="coordinator epoch 1"):
            heartbeats.check(claim)
    with pytest.raises(InvalidCoordinator):
        lake.tiering.finished(claim)
    again = claimed(lake)
    assert again.coordinator_epoch == claim.coordinator_epoch + 1
    assert lake.tiering.still_claimed(again)


def test_a_dropped_table_ends_its_claim(lake: Client) -> None:
    claim = claimed(lake)
    lake.admin.drop_table(PATH)
    assert not lake.tiering.still_claimed(claim)
    with pytest.raises(TableNotExist):
        lake.tiering.finished(claim)


def test_a_finished_round_is_no_longer_claimed_but_that_is_no_fence(lake: Client) -> None:
    claim = claimed(lake)
    lake.tiering.finished(claim)
    with pytest.raises(UnknownServerError, match="Scheduled"):
        lake.tiering.still_claimed(claim)


# ---- lake snapshots ----


def offsets(client: Client, *ends: int) -> dict[TableBucket, int]:
    table_id = client.admin.table_info(PATH).table_id
    return {TableBucket(table_id, None, bucket): end for bucket, end in enumerate(ends)}


def commit(
    client: Client, claim: Claim, snapshot_id: int, ends: dict[TableBucket, int], keep: int = -1
) -> None:
    path = client.tiering.prepare_lake_snapshot(claim.table_id, claim.path, ends)
    times = dict.fromkeys(ends, 1_750_000_000_000)
    client.tiering.commit_lake_snapshot(claim, snapshot_id, path, ends, times, keep)


def test_offsets_are_prepared_committed_and_read_back(lake: Client) -> None:
    write(lake, orders(0, 10), orders(10, 5))
    claim = claimed(lake)
    tiering = lake.tiering
    assert tiering.lake_snapshot(PATH) is None
    latest = tiering.latest_offsets(PATH, claim.table_id, None, [0, 1])
    assert sorted(latest.values()) == [5, 10]
    assert tiering.earliest_offsets(PATH, claim.table_id, None, [0, 1]) == {0: 0, 1: 0}
    first, second = offsets(lake, 10, 0), offsets(lake, 10, 5)
    commit(lake, claim, 901, first)
    found = tiering.lake_snapshot(PATH)
    assert found is not None
    assert (found.table_id, found.snapshot_id, found.offsets) == (claim.table_id, 901, first)
    commit(lake, claim, 902, second, keep=901)
    found = tiering.lake_snapshot(PATH)
    assert found is not None
    assert (found.snapshot_id, found.offsets) == (902, second)
    earlier = lake.admin.lake_snapshot(PATH, 901)
    assert earlier is not None
    assert earlier.offsets == first
    assert lake.admin.lake_snapshot(PATH, 999) is None


def test_offsets_do_not_go_back(lake: Client) -> None:
    claim = claimed(lake)
    commit(lake, claim, 901, offsets(lake, 10, 7))
    with pytest.raises(InvalidUpdateVersion, match="back from 10 to 9"):
        commit(lake, claim, 902, offsets(lake, 9, 7))
    found = lake.tiering.lake_snapshot(PATH)
    assert found is not None
    assert found.snapshot_id == 901


def test_partitions_have_offsets_of_their_own(client: Client) -> None:
    create(client, PLAIN, partition_keys=("region",), properties=LAKE)
    for region in ("eu", "us"):
        client.admin.create_partition(PATH, {"region": region})
    write(client, orders(0, 3, "eu"), orders(3, 4, "us"))
    claim = claimed(client)
    ends = {}
    for partition in client.tiering.partitions(PATH):
        found = client.tiering.latest_offsets(PATH, claim.table_id, partition.partition_id, [0])
        ends[TableBucket(claim.table_id, partition.partition_id, 0)] = found[0]
    assert sorted(ends.values()) == [3, 4]
    commit(client, claim, 901, ends)
    registered = client.tiering.lake_snapshot(PATH)
    assert registered is not None
    assert registered.offsets == ends


def test_a_round_that_is_over_cannot_commit(lake: Client, cluster: Any) -> None:
    claim = claimed(lake)
    cluster.clock.ms += 120_000
    with pytest.raises(FencedTieringEpoch, match="has ended"):
        commit(lake, claim, 900, offsets(lake, 1, 1))
    cluster.clock.ms += 10_000
    newer = claimed(lake)
    assert newer.tiering_epoch == claim.tiering_epoch + 1
    with pytest.raises(FencedTieringEpoch, match="another round has started"):
        commit(lake, claim, 901, offsets(lake, 1, 1))
    assert lake.tiering.lake_snapshot(PATH) is None
    commit(lake, newer, 902, offsets(lake, 1, 1))


def test_offsets_of_a_dropped_table_cannot_be_prepared(lake: Client) -> None:
    claim, ends = claimed(lake), offsets(lake, 1, 1)
    lake.admin.drop_table(PATH)
    with pytest.raises(TableNotExist):
        lake.tiering.prepare_lake_snapshot(claim.table_id, PATH, ends)


def test_a_heartbeat_is_not_repeated_for_a_keeper(lake: Client, cluster: Any) -> None:
    claim = claimed(lake)
    cluster.stop()
    with pytest.raises(NetworkError) as caught:
        lake.tiering.heartbeat([claim], retry=False)
    assert "given up" not in str(caught.value)
    cluster.start()
