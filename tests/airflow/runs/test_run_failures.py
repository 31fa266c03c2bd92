"""What fails around a run of the DAG, with a real scheduler: see docs/design/testing.md.

Each row has tables of its own, and most rows have a DAG of their own. They run at the same time.
"""

from __future__ import annotations

import signal
import urllib.error
from datetime import timedelta

import pytest

from tests.airflow.beside import beside
from tests.airflow.failure_dags import INTERVAL_S, MAP_MAX, ROWS
from tests.airflow.failure_dags import live as live
from tests.airflow.failure_dags import together as together
from tests.airflow.live import Live
from tests.airflow.row_dags import Row, kill, pause, served_row
from tests.support.harness.findings import finding
from tests.support.programs.living import lives

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(1200)]

AWAY_S = 5
AWAY_MAX_S = 180.0
"""A task gives up a cluster after two minutes, and ends soon."""
SETTLE = "per_application.settle"


@pytest.mark.long
@beside
def test_one_table_of_several_fails(live: Live) -> None:
    """The others are tiered, every entry of the lease is released, the run fails."""
    row = Row(live, ROWS)
    broken, ok = row.keyed("broken_several_keyed", "ok_several_keyed")
    [other] = row.tables("ok_several", rows=3)
    run_id = row.trigger("shop.*_several*")
    assert row.ended(run_id) == "failed"
    assert row.account(run_id) == {str(broken): "failed", str(ok): "tiered", str(other): "tiered"}
    assert row.states(run_id, "per_application.tier") == ["failed", "success"]
    assert row.states(run_id, SETTLE) == ["success", "success"]
    assert row.states(run_id, "drop_lease") == ["failed"]
    assert row.place.status(broken).last_error == (
        "LakeNotWritable: cannot write s3://lake/broken: Access Denied"
    )
    row.is_tiered(ok, other)
    row.nothing_is_left(run_id, broken, ok, other)


@pytest.mark.long
@beside
def test_a_tier_task_that_is_tried_again(live: Live) -> None:
    """Settle runs once, after the last try."""
    row = Row(live, "retried")
    flaky, ok = row.tables("flaky_again", "ok_again")
    run_id = row.trigger("shop.*_again")
    assert row.ended(run_id) == "success"
    assert row.account(run_id) == {str(flaky): "tiered", str(ok): "tiered"}
    assert row.tries(run_id, "per_application.tier") == [2]
    assert row.tries(run_id, SETTLE) == [1]
    tasks = row.instances(run_id)
    tier, settle = (tasks[f"per_application.{name}[0]"] for name in ("tier", "settle"))
    assert settle["start_date"] >= tier["end_date"]
    assert [row.commands(path) for path in (flaky, ok)] == [2, 1]
    row.is_tiered(flaky, ok)
    row.nothing_is_left(run_id, flaky, ok)


@pytest.mark.long
@beside
def test_acquire_is_killed(live: Live) -> None:
    """Midway, with claims and without plans. It is not tried again, and nothing leaks."""
    row = Row(live, "acquired_once")
    paths = row.tables("ok_acquired", "ok_acquired_2")
    row.arm("airflow.acquire.after_claim")
    run_id = row.trigger("shop.ok_acquired*")
    acquire = row.stopped(run_id, "acquire_lease[-1]")
    assert "Tiering" in [row.place.status(path).status for path in paths]
    kill(acquire)
    assert row.ended(run_id) == "failed"
    assert row.states(run_id, "acquire_lease") == ["failed"]
    assert row.states(run_id, "per_application.tier") == ["upstream_failed"]
    assert "no table was tiered: the task acquire_lease ended as failed" in row.log(
        run_id, "drop_lease"
    )
    row.is_due_again(*paths)
    row.nothing_is_left(run_id, *paths)


@pytest.mark.long
@beside
def test_acquire_is_killed_and_tried_again(live: Live) -> None:
    """The second try claims the tables again."""
    row = Row(live, "acquired_twice")
    paths = row.tables("ok_reacquired", "ok_reacquired_2")
    row.arm("airflow.acquire.after_plan")
    run_id = row.trigger("shop.ok_reacquired*")
    kill(row.stopped(run_id, "acquire_lease[-1]"))
    assert row.ended(run_id) == "success"
    assert row.tries(run_id, "acquire_lease") == [2]
    assert row.account(run_id) == dict.fromkeys(map(str, paths), "tiered")
    row.is_tiered(*paths)
    row.nothing_is_left(run_id, *paths)


@pytest.mark.long
@beside
def test_more_applications_than_airflow_maps(live: Live) -> None:
    """A run has no more of them than that, and all tables are tiered."""
    row = Row(live, "narrow")
    paths = row.tables(*(f"ok_narrow_{n}" for n in range(MAP_MAX + 2)))
    run_id = row.trigger("shop.ok_narrow_*")
    assert row.ended(run_id) == "success"
    assert row.states(run_id, "per_application.tier") == ["success"] * MAP_MAX
    assert row.account(run_id) == dict.fromkeys(map(str, paths), "tiered")
    row.is_tiered(*paths)
    row.nothing_is_left(run_id, *paths)


@pytest.mark.long
@beside
def test_no_table_is_due(live: Live) -> None:
    row = Row(live, ROWS)
    [later] = row.tables("ok_later")
    assert row.ended(row.trigger("shop.ok_late*")) == "success"
    row.is_tiered(later)
    run_id = row.trigger("shop.ok_late*")
    assert row.ended(run_id) == "success"
    assert row.states(run_id, "per_application.tier") == ["skipped"]
    assert row.states(run_id, SETTLE) == ["skipped"]
    assert row.states(run_id, "drop_lease") == ["success"]
    assert row.account(run_id) == {str(later): "not due"}
    row.nothing_is_left(run_id, later)


@pytest.mark.long
@beside
def test_a_run_marked_failed(live: Live) -> None:
    a_run_is_marked(live, "failed")


@pytest.mark.long
@beside
def test_a_run_marked_success(live: Live) -> None:
    """It ends as failed, because a table was not tiered."""
    a_run_is_marked(live, "success")


def a_run_is_marked(live: Live, state: str) -> None:
    """Its teardowns run, its claims are released, its lease and its processes are gone."""
    row = Row(live, ROWS)
    busy, ok = row.keyed(f"busy_{state}_keyed", f"ok_{state}_keyed")
    run_id = row.trigger(f"shop.*_{state}_keyed")
    driver = row.working(busy)
    row.wait(lambda: row.has_result(ok), "the other table to end")
    row.airflow.mark(run_id, state)
    assert row.ended(run_id) == "failed"
    assert row.account(run_id) == {str(busy): "not tiered", str(ok): "tiered"}
    assert row.states(run_id, SETTLE) == ["success"]
    assert row.states(run_id, "drop_lease") == ["failed"]
    why = f"StoppedByUser: a user marked the task tier or its run as {state}"
    assert row.stops_of(busy) == [why]
    row.is_tiered(ok)
    row.nothing_is_left(run_id, busy, ok)
    with finding():
        assert not [process for process in driver if lives(process)]


@pytest.mark.long
@beside
def test_a_run_marked_during_acquire(live: Live) -> None:
    """As failed, and as success: it fails nonetheless, because it has tiered nothing."""
    row = Row(live, "marked_early")
    for state in ("failed", "success"):
        paths = row.tables(f"ok_early_{state}", f"ok_early_{state}_2")
        row.arm("airflow.acquire.after_claim")
        run_id = row.trigger(f"shop.ok_early_{state}*")
        acquire = row.stopped(run_id, "acquire_lease[-1]")
        row.airflow.mark(run_id, state)
        acquire.send_signal(signal.SIGCONT)
        assert row.ended(run_id) == "failed"
        assert row.states(run_id, "acquire_lease") == [state]
        assert row.states(run_id, "drop_lease") == ["failed"]
        row.nothing_is_left(run_id, *paths)
        row.is_due_again(*paths)


@pytest.mark.long
@beside
def test_a_killed_task_whose_supervisor_lives(live: Live) -> None:
    """Airflow sees it at once and tries again. The first driver has ended with its task."""
    row = Row(live, "retried")
    held, ok = row.tables("held_orphan", "ok_orphan")
    run_id = row.trigger("shop.*_orphan")
    driver = row.held(held)
    row.wait(lambda: row.has_result(ok), "the other table to end")
    kill(driver.parents()[0])
    row.wait(lambda: row.commands(held) == 2, "the second try")
    row.wait(lambda: not lives(driver), "the driver of the first try to end")
    row.go(held)
    assert row.ended(run_id) == "success"
    assert row.tries(run_id, "per_application.tier") == [2]
    assert row.account(run_id) == {str(held): "tiered", str(ok): "tiered"}
    assert row.commands(ok) == 1
    row.is_tiered(held, ok)
    row.nothing_is_left(run_id, held, ok)


@pytest.mark.long
@beside
def test_a_running_run_is_not_deleted(live: Live) -> None:
    """Airflow refuses that, and the run goes on."""
    row = Row(live, ROWS)
    [held] = row.tables("held_deleted")
    run_id = row.trigger(str(held))
    row.held(held)
    with pytest.raises(urllib.error.HTTPError, match="409"):
        row.airflow._send("DELETE", row.airflow.run_path(run_id))
    row.go(held)
    assert row.ended(run_id) == "success"
    row.is_tiered(held)
    row.nothing_is_left(run_id, held)


@pytest.mark.slow
@beside
def test_a_dagrun_timeout(live: Live) -> None:
    """Airflow skips the teardowns; the DAG's failure callback releases what the run holds."""
    row = Row(live, "timed_out")
    busy, ok = row.keyed("busy_timed_keyed", "ok_timed_keyed")
    run_id = row.trigger("shop.*_timed_keyed")
    driver = row.working(busy)
    row.wait(lambda: row.has_result(ok), "the other table to end")
    row.began_before(run_id, timedelta(hours=1))
    assert row.ended(run_id) == "failed"
    assert row.states(run_id, SETTLE) == ["skipped"]
    assert row.states(run_id, "drop_lease") == ["skipped"]
    row.wait(lambda: not row.has_lease(run_id), "the failure callback, which drops it last")
    row.is_tiered(ok)
    row.nothing_is_left(run_id, busy, ok)
    assert row.stops_of(busy) == [
        "StoppedByUser: the dagrun_timeout of the run passed, or a user skipped the task tier"
    ]
    with finding():
        assert not [process for process in driver if lives(process)]


@pytest.mark.long
@beside
def test_a_dagrun_timeout_during_acquire(live: Live) -> None:
    """The failure callback releases what the task has claimed, and Airflow ends the task."""
    row = Row(live, "timed_out_early")
    paths = row.tables("ok_timed_early", "ok_timed_early_2")
    row.arm("airflow.acquire.after_claim")
    run_id = row.trigger("shop.ok_timed_early*")
    row.stopped(run_id, "acquire_lease[-1]")
    row.began_before(run_id, timedelta(hours=1))
    assert row.ended(run_id) == "failed"
    assert row.states(run_id, "drop_lease") == ["skipped"]
    row.wait(lambda: not any(map(row.is_claimed, paths)), "the failure callback")
    row.is_due_again(*paths)
    row.nothing_is_left(run_id, *paths)


@pytest.mark.long
@beside
def test_settle_is_killed(live: Live) -> None:
    """Drop_lease reports what settle has not."""
    row = Row(live, "settled_once")
    [path] = row.tables("held_settle")
    row.arm("airflow.settle.before_report")
    run_id = row.trigger(str(path))
    driver = row.held(path)
    kill(driver.parents()[0], driver)  # so that nobody else reports the table
    kill(row.stopped(run_id, f"{SETTLE}[0]"))
    assert row.ended(run_id) == "failed"
    assert row.states(run_id, SETTLE) == ["failed"]
    assert row.states(run_id, "drop_lease") == ["failed"]
    assert row.account(run_id) == {str(path): "failed"}
    row.nothing_is_left(run_id, path)


@pytest.mark.long
@beside
def test_two_groups_of_a_dag(live: Live) -> None:
    """Each has a lease of its own, and drops it."""
    row = Row(live, "grouped")
    first, second = row.tables("ok_grouped", "broken_grouped_too")
    run_id = row.airflow.trigger({})
    assert row.ended(run_id) == "failed"
    assert row.states(run_id, "first.check_tables") == ["success"]
    assert row.states(run_id, "second.check_tables") == ["failed"]
    leases = {row.xcom(run_id, f"{name}.open_job") for name in ("first", "second")}
    assert len(leases) == 2
    row.is_tiered(first)
    assert row.place.status(second).last_error == (
        "LakeNotWritable: cannot write s3://lake/broken: Access Denied"
    )
    for name in ("first", "second"):
        row.nothing_is_left(run_id, first, second, opened=f"{name}.open_job")


@pytest.mark.long
@beside
def test_two_runs_at_once(live: Live) -> None:
    """Each table is tiered by one of them; the other says who has it."""
    row = Row(live, ROWS)
    (held,) = row.tables("held_both")
    first = row.trigger("shop.*_both")
    row.held(held)
    [ok] = row.tables("ok_both")
    second = row.trigger("shop.*_both")
    assert row.ended(second) == "success"
    assert row.account(second) == {str(held): "held", str(ok): "tiered"}
    assert row.state(first) == "running"
    row.nothing_is_left(second, ok)
    row.go(held)
    assert row.ended(first) == "success"
    assert row.account(first) == {str(held): "tiered"}
    assert [row.commands(path) for path in (held, ok)] == [1, 1]
    row.is_tiered(held, ok)
    row.nothing_is_left(first, held, ok)


@pytest.mark.slow
@beside
def test_a_lake_that_is_not_writable(live: Live) -> None:
    """The run fails before it claims a table."""
    row = Row(live, "unwritable")
    [path] = row.tables("ok_unwritable")
    run_id = row.trigger(str(path))
    assert row.ended(run_id) == "failed"
    assert row.states(run_id, "acquire_lease") == ["failed"]
    assert "write to the lake, " in row.log(run_id, "acquire_lease")
    row.is_due_again(path)
    row.nothing_is_left(run_id, path)


@pytest.mark.long
@beside
def test_the_server_is_down_at_acquire(live: Live) -> None:
    """Acquire waits for it, and the run succeeds."""
    with served_row(live, "down") as (row, server):
        [path] = row.tables("ok_down")
        server.kill()
        run_id = row.trigger(str(path))
        row.task(run_id, "acquire_lease", "running")
        pause(AWAY_S)
        assert row.states(run_id, "acquire_lease") == ["running"]
        server.start()
        assert row.ended(run_id) == "success"
        assert row.account(run_id) == {str(path): "tiered"}
        assert row.place.status(path).failures == 0
        row.nothing_is_left(run_id, path)


@pytest.mark.long
@beside
def test_the_server_is_down_for_too_long_at_acquire(live: Live) -> None:
    """The run fails after two minutes, and says which server did not answer."""
    with served_row(live, "down_for_long") as (row, server):
        [path] = row.tables("ok_down_for_long")
        server.kill()
        run_id = row.trigger(str(path))
        row.task(run_id, "acquire_lease", "failed")
        server.start()
        assert row.ended(run_id) == "failed"
        assert server.address.removeprefix("grpc://") in row.log(run_id, "acquire_lease")
        assert row.place.status(path).failures == 0
        row.nothing_is_left(run_id, path)


@pytest.mark.slow
@beside
def test_the_server_is_killed_while_a_table_is_tiered(live: Live) -> None:
    """It comes back; the claim is gone with it, and the table is claimed and tiered again."""
    with served_row(live, "killed") as (row, server):
        [held] = row.tables("held_killed")
        run_id = row.trigger(str(held))
        row.held(held)
        server.kill()
        pause(AWAY_S)
        server.start()
        row.go(held)
        assert row.ended(run_id) == "success"
        assert row.account(run_id) == {str(held): "tiered"}
        row.nothing_is_left(run_id, held)


@pytest.mark.long
@beside
def test_the_server_is_down_at_the_teardowns(live: Live) -> None:
    """Settle and drop_lease wait for it."""
    with served_row(live, "settled") as (row, server):
        [path] = row.tables("flaky_settled")
        row.arm("airflow.settle.before_report")
        run_id = row.trigger("shop.flaky_*")
        settle = row.stopped(run_id, "per_application.settle[0]")
        server.kill()
        settle.send_signal(signal.SIGCONT)
        pause(AWAY_S)
        server.start()
        assert row.ended(run_id) == "failed"
        assert row.account(run_id) == {str(path): "failed"}
        row.nothing_is_left(run_id, path)


@pytest.mark.long
@beside
def test_the_server_is_down_for_too_long_at_settle(live: Live) -> None:
    """It fails after two minutes, and drop_lease does its work."""
    with served_row(live, "gone") as (row, server):
        [path] = row.tables("held_gone")
        run_id = row.trigger(str(path))
        driver = row.held(path)
        server.kill()
        kill(driver)
        row.wait(lambda: row.states(run_id, SETTLE) == ["failed"], "settle to fail")
        assert server.address.removeprefix("grpc://") in row.log(run_id, SETTLE)
        server.start()
        assert row.ended(run_id) == "failed"
        # The restart has ended the claim, so there is nothing to report; the files tell why.
        assert row.account(run_id) == {str(path): "failed"}
        row.nothing_is_left(run_id, path)
        again = row.trigger(str(path))
        row.go(path)
        assert row.ended(again) == "success"
        row.nothing_is_left(again, path)


@pytest.mark.long
@beside
def test_the_server_is_down_for_too_long_at_drop_lease(live: Live) -> None:
    """It fails after two minutes, and nothing is left."""
    with served_row(live, "dropped") as (row, server):
        [path] = row.tables("ok_dropped")
        row.arm("airflow.settle.before_release")
        run_id = row.trigger(str(path))
        settle = row.stopped(run_id, f"{SETTLE}[0]")
        server.kill()
        settle.send_signal(signal.SIGCONT)
        row.wait(lambda: row.states(run_id, "drop_lease") == ["failed"], "drop_lease to fail")
        assert row.instances(run_id)["drop_lease[-1]"]["duration"] < AWAY_MAX_S
        assert server.address.removeprefix("grpc://") in row.log(run_id, "drop_lease")
        assert row.ended(run_id) == "failed"
        server.start()
        row.is_tiered(path)
        row.nothing_is_left(run_id, path)


@pytest.mark.long
@beside
def test_scheduled_runs_that_overlap(live: Live) -> None:
    """A run that is longer than its interval: the next one begins when it has ended."""
    with served_row(live, "scheduled") as (row, _):
        [held] = row.tables("held_scheduled")
        row.airflow.pause(False)
        row.held(held)
        [running] = row.runs("running")
        pause(3 * INTERVAL_S)
        assert row.runs("running") == [running]
        row.go(held)
        assert row.ended(running) == "success"
        row.wait(lambda: len(row.runs("success")) > 1, "the next run")
        row.airflow.pause(True)  # a run that has begun stays where it is
        assert row.runs("failed") == []
        assert row.commands(held) == 1
        row.is_tiered(held)
        row.nothing_is_left(running, held)


@pytest.mark.long
@beside
def test_two_scheduled_runs_overlap(live: Live) -> None:
    """With ``max_active_runs=2``: the table stays with the first one, the others tier nothing."""
    with served_row(live, "scheduled_twice") as (row, _):
        [held] = row.tables("held_scheduled_twice")
        row.airflow.pause(False)
        row.held(held)
        row.wait(lambda: len(row.runs("success")) > 1, "two more runs to end")
        tier = "per_application.tier"
        [first] = [one for one in row.runs("running") if row.states(one, tier) == ["running"]]
        for other in row.runs("success"):
            assert row.states(other, tier) == ["skipped"]
            assert row.account(other) == {}
        row.go(held)
        assert row.ended(first) == "success"
        row.airflow.pause(True)
        assert row.runs("failed") == []
        assert row.commands(held) == 1
        row.is_tiered(held)
        row.nothing_is_left(first, held)


@pytest.mark.long
def test_a_killed_scheduler(live: Live) -> None:
    """With its tasks, as if its container ended. The next one takes the run over."""
    row = Row(live, "retried")
    held, ok = row.tables("held_scheduler", "ok_scheduler")
    run_id = row.trigger("shop.*_scheduler")
    row.held(held)
    row.wait(lambda: row.has_result(ok), "the other table to end")
    row.restart("airflow-scheduler", signal.SIGKILL)
    row.go(held)
    assert row.ended(run_id) == "success"
    assert row.account(run_id) == {str(held): "tiered", str(ok): "tiered"}
    assert row.commands(ok) == 1
    row.is_tiered(held, ok)
    row.nothing_is_left(run_id, held, ok)


@pytest.mark.long
def test_the_api_server_restarts(live: Live) -> None:
    """The tasks go on; one that cannot send its heartbeats for too long is tried again."""
    row = Row(live, "retried")
    held, ok = row.tables("held_api", "ok_api")
    run_id = row.trigger("shop.*_api")
    row.held(held)
    row.restart("airflow-api-server", signal.SIGTERM)
    row.go(held)
    assert row.ended(run_id) == "success"
    assert row.account(run_id) == {str(held): "tiered", str(ok): "tiered"}
    assert row.commands(ok) == 1
    row.is_tiered(held, ok)
    row.nothing_is_left(run_id, held, ok)
