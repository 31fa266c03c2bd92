"""What fails around a run of the DAG, with a real scheduler: see docs/design/testing.md.

Each row has tables of its own, and most rows have a DAG of their own. They run at the same time.
"""

from __future__ import annotations

import signal
import urllib.error
from collections.abc import Iterator

import pytest

from demo.airflow import DAG_ID
from tests.airflow.beside import Together, beside, chosen_tests
from tests.airflow.live import DATABASES, Live, running_live
from tests.airflow.place import Place
from tests.airflow.row_dags import (
    Row,
    RowDag,
    connections_of,
    kill,
    pause,
    served_row,
    servers_of,
    wait_for_dags,
    write_dags,
)
from tests.support.findings import finding
from tests.support.living import lives

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(1200)]

AT_ONCE = 4
MAP_MAX = 4
AWAY_S = 5
INTERVAL_S = 10
SERVED = ("down", "down_for_long", "killed", "settled", "gone", "scheduled")
"""DAGs whose clusters are processes of their own."""
SETTLE = "per_application.settle"
TWICE = {"tier_retries": "1"}
ROWS = DAG_ID
DAGS = [
    RowDag(ROWS, arguments="max_active_runs=20"),
    RowDag("retried", TWICE, "max_active_runs=20"),
    RowDag("acquired_once", is_armed=True),
    RowDag(
        "acquired_twice",
        arguments="default_args={'retries': 1, 'retry_delay': timedelta(seconds=1)}",
        is_armed=True,
    ),
    RowDag("marked_early", is_armed=True),
    RowDag("narrow", {"tables_per_application": "1", "pool_slots": "100"}),
    RowDag("timed_out", arguments="dagrun_timeout=timedelta(seconds=45)"),
    RowDag("unwritable", {"connection": "fluss_unwritable"}),
    *(RowDag(name, {"connection": f"fluss_{name}"}) for name in ("down", "down_for_long")),
    *(RowDag(name, {"connection": f"fluss_{name}"}) for name in ("killed", "gone")),
    RowDag("settled", {"connection": "fluss_settled"}, is_armed=True),
    RowDag(
        "scheduled",
        {"connection": "fluss_scheduled", "schedule": f"* * * * * */{INTERVAL_S}"},
        "is_paused_upon_creation=True",
    ),
]


@pytest.fixture(scope="module", params=DATABASES)
def live(
    airflow_environment: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("live")
    servers = servers_of(folder, SERVED)
    with running_live(
        folder,
        airflow_environment,
        triggerer=True,
        database=request.param,
        **write_dags(folder / "dags", DAGS),
        connections=lambda place: connections_of(servers) | unwritable(place),
        AIRFLOW__CORE__PARALLELISM="12",
        AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL="10",
        AIRFLOW__CORE__MAX_MAP_LENGTH=str(MAP_MAX),
        AIRFLOW__SLUICE__POOL="default_pool",
    ) as running:
        running.servers = servers
        wait_for_dags(running, DAGS)
        yield running
    for server in servers.values():
        server.kill()


def unwritable(place: Place) -> dict[str, str]:
    """A connection whose lake is below a file, where nobody can write, root neither."""
    file = place.work.with_name("file")
    file.touch()
    lake = {"iceberg.type": "hadoop", "iceberg.warehouse": str(file / "lake")}
    [value] = place.connection(datalake=lake).values()
    return {"AIRFLOW_CONN_FLUSS_UNWRITABLE": value}


@pytest.fixture(scope="module")
def together(live: Live, request: pytest.FixtureRequest) -> Iterator[Together]:
    found = Together(live, chosen_tests(request), AT_ONCE)
    yield found
    found.close()


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
def test_a_run_marked_failed_during_acquire(live: Live) -> None:
    row = Row(live, "marked_early")
    paths = row.tables("ok_early", "ok_early_2")
    row.arm("airflow.acquire.after_claim")
    run_id = row.trigger("shop.ok_early*")
    acquire = row.stopped(run_id, "acquire_lease[-1]")
    row.airflow.mark(run_id, "failed")
    acquire.send_signal(signal.SIGCONT)
    assert row.ended(run_id) == "failed"
    assert row.states(run_id, "acquire_lease") == ["failed"]
    assert row.states(run_id, "drop_lease") == ["failed"]
    row.nothing_is_left(run_id, *paths)
    row.is_due_again(*paths)


@pytest.mark.long
@beside
def test_a_killed_task_whose_supervisor_lives(live: Live) -> None:
    """Airflow sees it at once and tries again; what the first driver does meanwhile is fenced."""
    row = Row(live, "retried")
    held, ok = row.tables("held_orphan", "ok_orphan")
    run_id = row.trigger("shop.*_orphan")
    driver = row.held(held)
    row.wait(lambda: row.has_result(ok), "the other table to end")
    kill(driver.parents()[0])
    row.wait(lambda: row.commands(held) == 2, "the second try")
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


@pytest.mark.long
@beside
def test_a_dagrun_timeout(live: Live) -> None:
    """Airflow skips the teardowns; the DAG's failure callback releases what the run holds."""
    row = Row(live, "timed_out")
    busy, ok = row.keyed("busy_timed_keyed", "ok_timed_keyed")
    run_id = row.trigger("shop.*_timed_keyed")
    driver = row.working(busy)
    row.wait(lambda: row.has_result(ok), "the other table to end")
    assert row.ended(run_id) == "failed"
    assert row.states(run_id, SETTLE) == ["skipped"]
    assert row.states(run_id, "drop_lease") == ["skipped"]
    row.wait(lambda: row.place.status(busy).status != "Tiering", "the failure callback")
    row.is_tiered(ok)
    row.nothing_is_left(run_id, busy, ok)
    assert row.stops_of(busy) == [
        "StoppedByUser: the dagrun_timeout of the run passed, or a user skipped the task tier"
    ]
    with finding():
        assert not [process for process in driver if lives(process)]


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


@pytest.mark.long
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
def test_a_killed_scheduler(live: Live) -> None:
    """With its tasks, as if its container ended. The next one takes the run over."""
    row = Row(live, "retried")
    held, ok = row.tables("held_scheduler", "ok_scheduler")
    run_id = row.trigger("shop.*_scheduler")
    row.held(held)
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
