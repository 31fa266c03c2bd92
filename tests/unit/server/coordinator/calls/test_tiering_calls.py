"""LakeTieringHeartbeat and ListTieringStatuses over gRPC, on a clock that the test owns."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from sluice import failpoints
from sluice.errors import InvalidTable, TableNotExist, UnknownServerError
from sluice.model import TablePath
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Role
from sluice.wire.messages import values
from tests.support.programs.processes import wait_for
from tests.unit.server.support import LOG_TABLE, PATH, Caller, Node, OwnedClock, batch, to_pb

LAKE_TABLE = replace(
    LOG_TABLE,
    properties={"table.datalake.enabled": "true", "table.datalake.freshness": "10s"},
)
OTHER = TablePath("db", "other")


def entry(claim: Any, **more: Any) -> pb.PbHeartbeatReqForTable:
    return pb.PbHeartbeatReqForTable(
        table_id=claim.tiering_table.table_id,
        coordinator_epoch=claim.coordinator_epoch,
        tiering_epoch=claim.tiering_table.tiering_epoch,
        **more,
    )


def beat(caller: Caller, **fields: Any) -> Any:
    return caller.call(apis.LAKE_TIERING_HEARTBEAT, pb.LakeTieringHeartbeatRequest(**fields))


def claim(caller: Caller, wanted: Sequence[TablePath] = ()) -> Any:
    answer = beat(caller, request_table=True, requested_tables=[to_pb(p) for p in wanted])
    return answer if answer.HasField("tiering_table") else None


def status(caller: Caller, path: TablePath | None = PATH) -> Any:
    request = pb.ListTieringStatusesRequest(table_path=None if path is None else to_pb(path))
    found = caller.call(apis.LIST_TIERING_STATUSES, request).tiering_statuses
    return found if path is None else found[0]


@pytest.fixture
def node(start: Callable[..., Node], clock: OwnedClock) -> Node:
    node = start(clock=clock, tiering_check_interval_ms=3_600_000)
    node.caller.create_table(descriptor=LAKE_TABLE)
    return node


def test_a_round_from_claim_to_finish(node: Node, clock: OwnedClock) -> None:
    caller = node.caller
    now = status(caller)
    assert (now.status, now.tiering_epoch, now.next_attempt_time) == ("Pending", 1, clock.ms)
    held = claim(caller)
    assert held.tiering_table.table_path.table_name == "t"
    assert held.tiering_table.tiering_epoch == 1
    assert held.coordinator_epoch == 1
    assert claim(caller) is None
    claimed_ms = clock.ms
    clock.ms += 100_000
    (answer,) = beat(caller, tiering_tables=[entry(held)]).tiering_table_resp
    assert not answer.HasField("error")
    now = status(caller)
    assert (now.status, now.claimed_time) == ("Tiering", claimed_ms)
    clock.ms += 100_000  # more than the time-out since the claim, less since the heartbeat
    stats = pb.PbLakeTieringStats(file_size=10, record_count=5)
    done = beat(caller, finished_tables=[entry(held, lake_tiering_stats=stats)])
    assert not done.finished_table_resp[0].HasField("error")
    now = status(caller)
    assert (now.status, now.tiering_epoch, now.last_tiered_time) == ("Scheduled", 1, clock.ms)
    assert not now.HasField("last_error")
    assert not now.HasField("claimed_time")


def test_every_answer_says_how_long_a_claim_lives(start: Callable[..., Node]) -> None:
    caller = start(tiering_timeout_ms=30_000).caller
    caller.create_table(descriptor=LAKE_TABLE)
    held = claim(caller)
    answers = held, beat(caller, tiering_tables=[entry(held)]), beat(caller)
    assert [answer.claim_timeout_ms for answer in answers] == [30_000] * 3


def test_a_table_waits_for_its_freshness_from_its_first_round_on(
    node: Node, clock: OwnedClock
) -> None:
    held = claim(node.caller)
    beat(node.caller, finished_tables=[entry(held)])
    for _ in range(2):
        assert claim(node.caller) is None
        assert status(node.caller).status == "Scheduled"
        node.restart()
    clock.ms += 10_000
    assert claim(node.caller).tiering_table.tiering_epoch == 2


def test_a_new_table_is_due_after_a_restart_too(node: Node) -> None:
    node.restart()
    assert claim(node.caller) is not None


@pytest.mark.parametrize("partitioned", [False, True])
def test_a_table_is_due_when_its_tiering_is_switched_on(
    node: Node, clock: OwnedClock, partitioned: bool
) -> None:
    properties = {**LAKE_TABLE.properties, "table.datalake.enabled": "false"}
    keys = ("text",) if partitioned else ()
    node.caller.create_table(OTHER, LAKE_TABLE, properties=properties, partition_keys=keys)
    assert claim(node.caller, [OTHER]) is None
    alter(node.caller, "table.datalake.enabled", "true", OTHER)
    assert claim(node.caller, [OTHER]) is not None


def test_a_failure_keeps_its_reason_until_the_next_success(node: Node, clock: OwnedClock) -> None:
    clock.ms += 10_000
    held = claim(node.caller)
    beat(node.caller, failed_tables=[entry(held, error_message="no space left in the lake")])
    failed_at = clock.ms
    for _ in range(2):
        now = status(node.caller)
        assert now.last_error == "no space left in the lake"
        assert now.last_error_time == failed_at
        assert not now.HasField("last_tiered_time")
        clock.ms += 50_000
        node.restart()
    again = claim(node.caller)
    assert again.tiering_table.tiering_epoch > held.tiering_table.tiering_epoch
    beat(node.caller, finished_tables=[entry(again)])
    assert not status(node.caller).HasField("last_error")


def test_an_old_client_gives_no_reason_and_none_is_kept(node: Node, clock: OwnedClock) -> None:
    """Its heartbeat has not the field; the failure counts all the same."""
    clock.ms += 10_000
    held = claim(node.caller)
    old = entry(held)
    assert not old.HasField("error_message")
    answer = beat(node.caller, failed_tables=[old], request_table=True)
    assert not answer.HasField("tiering_table"), "not handed out again by the very same call"
    now = status(node.caller)
    assert (now.status, now.failures) == ("Failed", 1)
    assert not now.HasField("last_error")
    assert now.last_error_time == clock.ms
    assert now.next_attempt_time == clock.ms + 10_000
    clock.ms += 10_000
    assert claim(node.caller).tiering_table.tiering_epoch == 2


def test_a_reason_is_masked_and_cut_by_the_coordinator_too(node: Node, clock: OwnedClock) -> None:
    clock.ms += 10_000
    reason = "password=planted-secret " + "ü" * 10_000
    beat(node.caller, failed_tables=[entry(claim(node.caller), error_message=reason)])
    stored = status(node.caller).last_error
    assert stored == "password=*** " + "ü" * (4096 - 14) + "…"
    content = b"".join(file.read_bytes() for file in node.data_dir.rglob("*") if file.is_file())
    assert b"planted-secret" not in content


def test_failures_wait_longer_and_longer_over_restarts(node: Node, clock: OwnedClock) -> None:
    clock.ms += 10_000
    for failures, wait_s in enumerate((10, 20, 40, 80, 160, 300, 300), 1):
        beat(node.caller, failed_tables=[entry(claim(node.caller), error_message="broken")])
        clock.ms += wait_s * 1000 - 1
        node.restart()
        now = status(node.caller)
        assert (now.status, now.failures, now.last_error) == ("Failed", failures, "broken")
        assert now.next_attempt_time == clock.ms + 1
        assert claim(node.caller) is None
        clock.ms += 1
    again = claim(node.caller)
    beat(node.caller, finished_tables=[entry(again)])
    assert (status(node.caller).failures, status(node.caller).status) == (0, "Scheduled")


def test_a_claim_given_back_is_no_failure(node: Node, clock: OwnedClock) -> None:
    clock.ms += 10_000
    held = claim(node.caller)
    (answer,) = beat(node.caller, released_tables=[entry(held)]).released_table_resp
    assert not answer.HasField("error")
    now = status(node.caller)
    assert (now.status, now.failures, now.HasField("last_error")) == ("Pending", 0, False)
    (late,) = beat(node.caller, released_tables=[entry(held)]).released_table_resp
    assert late.error.error_code == 50
    assert claim(node.caller).tiering_table.tiering_epoch == 2


def control(caller: Caller, action: int, path: TablePath = PATH) -> None:
    request = pb.ControlTieringRequest(table_path=to_pb(path), action=action)
    caller.call(apis.CONTROL_TIERING, request)


def test_a_pause_lasts_over_restarts(node: Node, clock: OwnedClock) -> None:
    control(node.caller, values.TIERING_PAUSE)
    for _ in range(2):
        clock.ms += 10_000
        assert claim(node.caller) is None
        now = status(node.caller)
        assert (now.status, now.paused, now.HasField("next_attempt_time")) == (
            "Pending",
            True,
            False,
        )
        node.restart()
    control(node.caller, values.TIERING_RESUME)
    control(node.caller, values.TIERING_RESUME)
    assert not status(node.caller).paused
    assert claim(node.caller) is not None


def test_retry_and_again_do_not_wait(node: Node, clock: OwnedClock) -> None:
    clock.ms += 10_000
    beat(node.caller, failed_tables=[entry(claim(node.caller), error_message="broken")])
    control(node.caller, values.TIERING_RETRY)
    now = status(node.caller)
    assert (now.status, now.failures, now.last_error) == ("Pending", 0, "broken")
    beat(node.caller, finished_tables=[entry(claim(node.caller))])
    assert not status(node.caller).HasField("last_error")
    control(node.caller, values.TIERING_AGAIN)
    node.restart()
    assert claim(node.caller) is not None


def test_control_of_a_table_that_is_not_tiered_is_refused(node: Node) -> None:
    node.caller.create_table(OTHER)
    with pytest.raises(InvalidTable, match=r"db\.other is not tiered: enable tiering first"):
        control(node.caller, values.TIERING_PAUSE, OTHER)
    with pytest.raises(TableNotExist):
        control(node.caller, values.TIERING_PAUSE, TablePath("db", "nobody"))
    with pytest.raises(UnknownServerError, match="unknown ControlTiering action 7"):
        control(node.caller, 7)


def test_the_lag_is_told_in_offsets_and_time(node: Node, clock: OwnedClock) -> None:
    caller, table_id = node.caller, node.caller.table_info().table_id
    now = status(caller)
    assert (now.lag_rows, now.lag_ms, now.HasField("lake_snapshot_id")) == (0, 0, False)
    caller.produce(table_id, batch("a", "b"))
    clock.ms += 10_000
    caller.produce(table_id, batch("c"))
    clock.ms += 500
    assert (status(caller).lag_rows, status(caller).lag_ms) == (3, 10_500)
    held = claim(caller)
    register(caller, held, 77, {0: 2})
    now = status(caller)
    assert (now.lag_rows, now.lag_ms, now.lake_snapshot_id) == (1, 500, 77)
    register(caller, held, 78, {0: 3})
    clock.ms += 1_000
    beat(caller, finished_tables=[entry(held)])
    node.restart()
    now = status(node.caller)
    assert (now.lag_rows, now.lag_ms, now.lake_snapshot_id) == (0, 0, 78)
    assert now.last_round_ms == 1_000


def register(caller: Caller, held: Any, snapshot_id: int, ends: dict[int, int]) -> None:
    table = held.tiering_table
    offsets = pb.PbTableOffsets(table_id=table.table_id, table_path=table.table_path)
    for bucket, end in ends.items():
        offsets.bucket_offsets.add(bucket_id=bucket, log_end_offset=end)
    prepare = pb.PrepareLakeTableSnapshotRequest(bucket_offsets=[offsets])
    (stored,) = caller.call(apis.PREPARE_LAKE_TABLE_SNAPSHOT, prepare).prepare_lake_table_resp
    commit = pb.CommitLakeTableSnapshotRequest()
    commit.lake_table_snapshot_metadata.add(
        table_id=table.table_id,
        snapshot_id=snapshot_id,
        tiered_bucket_offsets_file_path=stored.lake_table_offsets_path,
        earliest_snapshot_id_to_keep=-1,
    )
    (answer,) = caller.call(apis.COMMIT_LAKE_TABLE_SNAPSHOT, commit).table_resp
    assert not answer.error_code


def test_a_tablet_tells_what_the_coordinator_knows(start: Callable[..., Node]) -> None:
    """Over Fluss's own protocol each role has a port; the tablet keeps no copy of its own."""
    listen = "grpc://127.0.0.1:0,fluss://127.0.0.1:0"
    node = start(listen=listen)
    node.caller.create_table(descriptor=LAKE_TABLE)
    request = pb.ListTieringStatusesRequest()
    for action, paused in ((values.TIERING_PAUSE, True), (values.TIERING_RESUME, False)):
        control(node.caller, action)
        answers = [node.caller.call(apis.LIST_TIERING_STATUSES, request, role) for role in Role]
        for answer in answers:
            (only,) = answer.tiering_statuses
            assert (only.table_path.table_name, only.paused) == ("t", paused)
    missing = pb.ListTieringStatusesRequest(table_path=to_pb(OTHER))
    for role in Role:
        with pytest.raises(TableNotExist):
            node.caller.call(apis.LIST_TIERING_STATUSES, missing, role)


def test_a_forced_finish_is_pending_at_once(node: Node, clock: OwnedClock) -> None:
    clock.ms += 10_000
    held = claim(node.caller)
    forced = [held.tiering_table.table_id]
    beat(node.caller, finished_tables=[entry(held)], force_finished_tables=forced)
    assert claim(node.caller).tiering_table.tiering_epoch == 2


def test_only_requested_tables_are_handed_out(node: Node, clock: OwnedClock) -> None:
    node.caller.create_table(OTHER, LAKE_TABLE)
    clock.ms += 10_000
    assert claim(node.caller, [TablePath("db", "nobody")]) is None
    wanted = claim(node.caller, [OTHER, TablePath("db", "nobody")])
    assert wanted.tiering_table.table_path.table_name == "other"
    assert claim(node.caller).tiering_table.table_path.table_name == "t"


def test_errors_are_per_table_and_in_order(node: Node, clock: OwnedClock) -> None:
    clock.ms += 10_000
    held = claim(node.caller)
    good, coordinator, unknown, epoch = (entry(held) for _ in range(4))
    coordinator.coordinator_epoch += 1
    coordinator.table_id += 100
    unknown.table_id += 100
    unknown.tiering_epoch += 1
    epoch.tiering_epoch += 1
    answer = beat(node.caller, tiering_tables=[coordinator, unknown, epoch, good])
    codes = [r.error.error_code if r.HasField("error") else 0 for r in answer.tiering_table_resp]
    assert codes == [23, 7, 50, 0]
    failed = beat(node.caller, failed_tables=[epoch], finished_tables=[coordinator])
    assert failed.failed_table_resp[0].error.error_code == 50
    assert failed.finished_table_resp[0].error.error_code == 23
    beat(node.caller, finished_tables=[good])
    late = beat(node.caller, tiering_tables=[good], failed_tables=[good], finished_tables=[good])
    assert late.tiering_table_resp[0].error.error_code == -1
    assert not late.failed_table_resp[0].HasField("error")
    assert status(node.caller).status == "Scheduled"
    assert not status(node.caller).HasField("last_error")


def test_a_silent_worker_is_fenced(node: Node, clock: OwnedClock) -> None:
    clock.ms += 10_000
    lost = claim(node.caller)
    clock.ms += 120_000
    now = status(node.caller)
    assert (now.status, now.failures) == ("Failed", 1)
    assert "no heartbeat for 120 s" in now.last_error
    (answer,) = beat(node.caller, finished_tables=[entry(lost)]).finished_table_resp
    assert answer.error.error_code == 50


def test_lost_workers_are_noticed_without_any_call(
    start: Callable[..., Node], clock: OwnedClock
) -> None:
    node = start(clock=clock, tiering_check_interval_ms=1)
    node.caller.create_table(descriptor=LAKE_TABLE)
    clock.ms += 10_000
    claim(node.caller)
    clock.ms += 120_000
    tiering = node.cluster._parts.tiering  # type: ignore[union-attr]
    wait_for("the check", lambda: tiering._statuses.all()[0].failures, 60)


def test_a_restart_fences_rounds_and_keeps_time(node: Node, clock: OwnedClock) -> None:
    clock.ms += 10_000
    first = claim(node.caller)
    beat(node.caller, finished_tables=[entry(first)])
    tiered_at = clock.ms
    clock.ms += 10_000
    held = claim(node.caller)
    node.restart()
    (answer,) = beat(node.caller, tiering_tables=[entry(held)]).tiering_table_resp
    assert answer.error.error_code == 23
    assert status(node.caller).last_tiered_time == tiered_at
    again = claim(node.caller)  # overdue since before the restart, so handed out at once
    assert again.coordinator_epoch == held.coordinator_epoch + 1
    assert again.tiering_table.tiering_epoch == held.tiering_table.tiering_epoch + 1


def alter(caller: Caller, key: str, value: str, path: TablePath = PATH) -> None:
    change = pb.PbAlterConfig(config_key=key, config_value=value, op_type=0)
    caller.call(
        apis.ALTER_TABLE,
        pb.AlterTableRequest(
            table_path=to_pb(path), ignore_if_not_exists=False, config_changes=[change]
        ),
    )


def test_tiering_is_switched_off_and_on(node: Node, clock: OwnedClock) -> None:
    clock.ms += 10_000
    held = claim(node.caller)
    alter(node.caller, "table.datalake.enabled", "false")
    assert list(status(node.caller, None)) == []
    (answer,) = beat(node.caller, tiering_tables=[entry(held)]).tiering_table_resp
    assert answer.error.error_code == 7
    node.restart()
    alter(node.caller, "table.datalake.enabled", "true")
    again = claim(node.caller)  # due at once, as a new one
    assert again.tiering_table.tiering_epoch == held.tiering_table.tiering_epoch + 1


# -- a change of the catalog and what it does to tiering happen together, or not at all


@pytest.fixture
def broken_store(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Arms: the next time that tiering is about to be stored fails."""

    def arm() -> None:
        monkeypatch.setitem(failpoints._armed, "server.tiering.before_commit", ("raise", 1))
        monkeypatch.delitem(failpoints._passages, "server.tiering.before_commit", raising=False)

    return arm


def test_a_table_whose_tiering_cannot_be_stored_is_not_created(
    node: Node, clock: OwnedClock, broken_store: Callable[[], None]
) -> None:
    broken_store()
    with pytest.raises(UnknownServerError, match=r"failpoint server\.tiering"):
        node.caller.create_table(OTHER, LAKE_TABLE)
    with pytest.raises(TableNotExist):
        node.caller.table_info(OTHER)
    node.caller.create_table(OTHER, LAKE_TABLE)  # the same call again is no "exists already"
    clock.ms += 10_000
    assert claim(node.caller, [OTHER]) is not None


def test_an_alter_whose_tiering_cannot_be_stored_changes_nothing(
    node: Node, clock: OwnedClock, broken_store: Callable[[], None]
) -> None:
    properties = {**LAKE_TABLE.properties, "table.datalake.enabled": "false"}
    node.caller.create_table(OTHER, LAKE_TABLE, properties=properties)
    before = node.caller.table_info(OTHER)
    broken_store()
    with pytest.raises(UnknownServerError, match=r"failpoint server\.tiering"):
        alter(node.caller, "table.datalake.enabled", "true", OTHER)
    assert node.caller.table_info(OTHER) == before
    alter(node.caller, "table.datalake.enabled", "true", OTHER)
    clock.ms += 10_000
    assert claim(node.caller, [OTHER]) is not None


def test_alters_at_once_reach_tiering_in_the_order_of_the_catalog(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = node.cluster._parts
    assert parts is not None
    catalog, tiering = parts.catalog, parts.tiering
    real, real_catalog_change = catalog.alter_table, tiering.catalog_change
    first_altered, second_comes, second_done = (threading.Event() for _ in range(3))

    def slow_first(*arguments: Any) -> Any:
        answer = real(*arguments)
        if not first_altered.is_set():
            first_altered.set()
            assert second_comes.wait(60)
            assert not second_done.wait(0.3), "it has overtaken the first"
        return answer

    def catalog_change() -> Any:
        if first_altered.is_set():
            second_comes.set()
        return real_catalog_change()

    monkeypatch.setattr(catalog, "alter_table", slow_first)
    monkeypatch.setattr(tiering, "catalog_change", catalog_change)
    first = threading.Thread(target=alter, args=(node.caller, "table.datalake.enabled", "false"))
    first.start()
    assert first_altered.wait(60)
    alter(node.caller, "table.datalake.enabled", "true")
    second_done.set()
    first.join(60)
    assert not first.is_alive()
    assert status(node.caller).status == "Pending"


def test_a_dropped_table_is_not_handed_out_though_the_store_fails_then(
    node: Node, clock: OwnedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.caller.create_table(OTHER, LAKE_TABLE)
    clock.ms += 10_000  # both are due: the next look at tiering has something to store
    tables = node.cluster._parts.catalog  # type: ignore[union-attr]
    database, real_drop = tables._database, tables.drop_table

    def drop_then_break(path: TablePath, *more: Any) -> Any:
        answer = real_drop(path, *more)
        database.query("PRAGMA query_only = ON")
        return answer

    monkeypatch.setattr(tables, "drop_table", drop_then_break)
    node.caller.drop_table()
    database.query("PRAGMA query_only = OFF")
    assert claim(node.caller, [PATH]) is None
    assert [s.table_path.table_name for s in status(node.caller, None)] == ["other"]


def test_freshness_can_be_changed(node: Node, clock: OwnedClock) -> None:
    alter(node.caller, "table.datalake.freshness", "1s")
    clock.ms += 1_000
    assert claim(node.caller) is not None


def test_a_dropped_table_is_forgotten(node: Node, clock: OwnedClock) -> None:
    clock.ms += 10_000
    held = claim(node.caller)
    node.caller.drop_table()
    (answer,) = beat(node.caller, finished_tables=[entry(held)]).finished_table_resp
    assert answer.error.error_code == 7
    with pytest.raises(TableNotExist):
        status(node.caller)
    node.caller.create_table(descriptor=LAKE_TABLE)
    assert status(node.caller).table_id > held.tiering_table.table_id


def test_statuses_name_only_lake_tables(node: Node) -> None:
    node.caller.create_table(OTHER, LOG_TABLE)
    assert [s.table_path.table_name for s in status(node.caller, None)] == ["t"]
    request = pb.ListTieringStatusesRequest(table_path=to_pb(OTHER))
    assert not node.caller.call(apis.LIST_TIERING_STATUSES, request).tiering_statuses
