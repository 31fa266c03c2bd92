"""What ``dag.test()`` cannot show: scheduler, API server, triggerer, tasks that are killed.

A real Airflow with the LocalExecutor, as the demo starts it; driver.py stands for spark-submit.
Its triggerer starts for the last tests: without one, runs end some seconds earlier.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.model import TablePath
from tests.airflow.live import DATABASES, POOL, SETTLE, SLOTS, TIMEOUT_S, Live, running_live
from tests.docs.blocks import claimed_blocks, commands
from tests.support.harness.findings import finding
from tests.support.programs.living import lives

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(1200)]
DEFAULT_SLOTS = 128
KEEPING = "keeping the claims of the run"
NO_TRIGGERER = "no triggerer runs; the claims of this run are kept only while"


@pytest.fixture(scope="module", params=DATABASES)
def live(
    airflow_environment: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("live")
    with running_live(folder, airflow_environment, database=request.param) as running:
        yield running


@pytest.fixture(scope="module")
def triggerer(live: Live) -> subprocess.Popen[bytes]:
    """The process of a triggerer that is alive, which a test may end."""
    command = [sys.executable, "-m", "airflow", "triggerer", "--skip-serve-logs"]
    process = live.processes.start("airflow-triggerer", command, live.airflow.environment)
    live.wait(live.triggerer_is_alive, "the triggerer")
    return process


def test_the_script_that_tiers_tables_by_rest(live: Live, tmp_path: Path) -> None:
    script, shown = claimed_blocks("docs/airflow-rest.md", __file__)
    (tmp_path / "tier_now.py").write_text(script.content)
    live.pack("rest_orders", "broken_rest")
    [_, call] = commands(shown)
    done = subprocess.run(
        call.text.replace("python", sys.executable, 1).split(),
        cwd=tmp_path,
        env={
            **os.environ,
            "AIRFLOW_URL": live.airflow.url,
            "AIRFLOW_USER": live.airflow.user,
            "AIRFLOW_PASSWORD": live.airflow.password,
        },
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    found, expected = done.stdout.splitlines(), list(call.output)
    assert sorted(found[:-3]) == sorted(expected[:-3]), "the states of the tasks"
    assert found[-3:] == expected[-3:], "the account"


@pytest.mark.long
def test_a_killed_task_and_its_supervisor(live: Live) -> None:
    """Nobody is left to say why: settle does, and the next run tiers the table.

    The pack's other table had ended: its success counts.
    """
    once, ok = live.pack("once", "ok_beside_once")
    run_id = live.trigger("shop.once", "shop.ok_beside_once")
    driver = live.driver("shop.once-slept")
    live.wait(lambda: live.has_result(ok), "the pack's other table to end")
    task = driver.parents()[0]
    supervisor = task.parents()[0]
    for process in (supervisor, task):
        os.kill(process.pid, signal.SIGKILL)
    assert live.ended(run_id) == "failed"
    assert live.account(run_id) == {str(once): "failed", str(ok): "tiered"}
    label, tables = live.shown(run_id, 0)
    assert label == tables == f"{ok}, {once}", "of a task that was killed"
    error = live.place.status(once).last_error
    assert error is not None
    assert error.startswith("the task that ran the Spark driver was lost")
    assert live.place.status(once).status == "Pending"
    assert (live.place.status(ok).status, live.place.status(ok).failures) == ("Scheduled", 0)
    live.place.nothing_is_held()
    live.wait(lambda: not lives(driver), "the driver of the killed task to end")
    again = live.trigger("shop.once")
    assert live.ended(again) == "success"
    assert live.place.client.admin.lake_snapshot(once) is not None
    assert live.commands(ok) == 1


def test_a_pack_whose_task_a_user_marks_failed(live: Live) -> None:
    marked(live, "failed")


@pytest.mark.long
def test_a_pack_whose_task_a_user_marks_success(live: Live) -> None:
    marked(live, "success")


def marked(live: Live, state: str) -> None:
    """The tables that have ended count; the others were stopped by the user, which is no failure.

    The driver tiers them at the same time.
    """
    once, pair, ok = live.pack(f"once_{state}", f"pair_{state}", f"ok_{state}")
    run_id = live.trigger("shop.*_" + state)
    driver = live.driver(f"shop.once_{state}-slept")
    live.wait(lambda: live.has_result(ok), "the first table to end")
    live.mark_tier(run_id, state)
    with finding():
        live.wait(lambda: not lives(driver), "the driver to end")
    assert live.ended(run_id) == "failed", "two tables were not tiered"
    became = {str(once): "not tiered", str(pair): "not tiered", str(ok): "tiered"}
    assert live.account(run_id) == became
    for path in (once, pair):
        status = live.place.status(path)
        assert status.stopped == f"StoppedByUser: a user marked the task tier or its run as {state}"
        found = (status.status, status.failures, status.last_error)
        assert found == ("Pending", 0, None), "due at once"
    assert (live.place.status(ok).status, live.place.status(ok).stopped) == ("Scheduled", None)
    live.place.nothing_is_held()


@pytest.mark.long
def test_a_pack_whose_task_a_user_clears(live: Live) -> None:
    """While it runs, and after its end: only what has no result is tiered again.

    Airflow clears acquire_lease with it, to which the others are not due.
    """
    _, ok, _ = paths = live.pack("once_cleared", "ok_cleared", "flaky_cleared")
    run_id = live.trigger("shop.*_cleared")
    driver = live.driver("shop.once_cleared-slept")
    live.wait(lambda: live.place.status(ok).status == "Scheduled", "the report of one table")
    assert "acquire_lease[-1]" in live.clear_tier(run_id)
    with finding():
        live.wait(lambda: not lives(driver), "the driver to end")
    assert live.ended(run_id) == "success", live.account(run_id)
    assert live.account(run_id) == dict.fromkeys(map(str, paths), "tiered")
    are_tiered_in_drivers(live, paths, [2, 1, 2])

    live.clear_tier(run_id)
    live.wait(lambda: live.state(run_id) != "success", "the run to begin again")
    assert live.ended(run_id) == "success", live.account(run_id)
    assert live.account(run_id) == dict.fromkeys(map(str, paths), "tiered"), "by this run"
    are_tiered_in_drivers(live, paths, [2, 1, 2])


@pytest.mark.long
def test_a_user_clears_one_of_two_packs(live: Live) -> None:
    """Airflow clears acquire_lease with it, but not the tier task of the other pack."""
    ok, once = (live.place.table(name) for name in ("ok_two", "once_two"))
    live.place.wait(ok, once)
    run_id = live.trigger("*_two")
    driver = live.driver("shop.once_two-slept")
    live.wait(lambda: live.place.status(ok).status == "Scheduled", "the report of one table")
    driver.kill()
    assert live.ended(run_id) == "failed"
    assert live.account(run_id) == {str(ok): "tiered", str(once): "failed"}
    assert live.tiers(run_id) == ["success", "failed"]
    assert [live.shown(run_id, n) for n in (0, 1)] == [(str(ok),) * 2, (str(once),) * 2]
    settles = [live.shown(run_id, n, SETTLE) for n in (0, 1)]
    assert settles == [(str(ok),) * 2, (f"{once} (failed)", str(once))]

    assert "acquire_lease[-1]" in live.clear_tier(run_id, 1)
    live.wait(lambda: live.state(run_id) != "failed", "the run to begin again")
    assert live.ended(run_id) == "success", live.account(run_id)
    assert live.account(run_id) == {str(ok): "tiered", str(once): "tiered"}
    assert live.tiers(run_id) == ["success", "success"]
    are_tiered_in_drivers(live, [ok, once], [1, 2])


def are_tiered_in_drivers(live: Live, paths: list[TablePath], drivers: list[int]) -> None:
    """Each table is tiered, by so many drivers, and nothing is held or counted as a failure."""
    assert [live.commands(path) for path in paths] == drivers
    for path in paths:
        status = live.place.status(path)
        assert (status.status, status.failures, status.stopped) == ("Scheduled", 0, None), path
        assert live.place.client.admin.lake_snapshot(path) is not None
    live.place.nothing_is_held()


@pytest.mark.long
@pytest.mark.usefixtures("triggerer")
def test_a_full_pool_and_a_paused_dag(live: Live) -> None:
    """Both in front of the tier task of a pack, each for longer than a claim lives by itself."""
    paths = live.pack("ok_1", "ok_1b")
    live.pool(0)
    run_id = live.trigger("shop.ok_1", "shop.ok_1b")
    live.task(run_id, "keep_claims", "deferred")
    live.task(run_id, "acquire_lease", "success")
    live.wait(lambda: KEEPING in live.logs("keep_claims"), "the keeper's first heartbeat")
    live.stay_claimed(*paths)
    live.airflow.pause(True)
    live.pool(SLOTS)
    live.stay_claimed(*paths)
    live.airflow.pause(False)
    assert live.ended(run_id) == "success"
    assert live.tasks(run_id)["keep_claims[-1]"] == "success"
    assert len(live.tiers(run_id)) == 1, "both tables are in one pack"
    for path in paths:
        assert live.place.client.admin.lake_snapshot(path) is not None
        [round_] = live.place.client.statuses.history(path)
        assert (round_.outcome, live.place.status(path).failures) == ("committed", 0)
    live.place.nothing_is_held()
    # A busy triggerer may close the log of the task before it takes the last line of the trigger:
    # it writes that line into its own log then.
    kept = "2 claims kept, 0 lost before their tier task"

    def said() -> str:
        return live.logs("keep_claims") + live.program_log("airflow-triggerer")

    live.wait(lambda: kept in said(), "the keeper's summary")
    assert (said().count(KEEPING), said().count(kept)) == (1, 1)


@pytest.mark.usefixtures("triggerer")
def test_one_slot_in_pools_that_count_deferred_tasks(live: Live) -> None:
    """keep_claims is deferred from before acquire_lease until after the last tier task."""
    paths = live.pack("ok_slot", "ok_slot_b")
    for name in ("default_pool", POOL):
        live.pool(1, name, include_deferred=True)
    run_id = live.trigger("shop.ok_slot*")
    try:
        live.task(run_id, "keep_claims", "deferred")
        live.wait(lambda: KEEPING in live.logs("keep_claims"), "the keeper's first heartbeat")
        assert live.ended(run_id) == "success"
    finally:
        live.pool(DEFAULT_SLOTS, "default_pool")
        live.pool(SLOTS)
    assert live.tasks(run_id)["keep_claims[-1]"] == "success"
    assert live.account(run_id) == dict.fromkeys(map(str, paths), "tiered")
    live.place.nothing_is_held()


@pytest.mark.long
def test_a_triggerer_that_stops_holds_no_run_up(
    live: Live, triggerer: subprocess.Popen[bytes]
) -> None:
    """Neither the run that it kept, nor the next one."""
    paths = [live.place.table(name) for name in ("ok_2", "ok_3")]
    live.place.wait(*paths)
    live.pool(0)
    run_id = live.trigger("shop.ok_2")
    live.task(run_id, "acquire_lease", "success")
    live.task(run_id, "keep_claims", "deferred")
    triggerer.terminate()
    live.pool(SLOTS)
    assert live.ended(run_id) == "success"
    assert live.tasks(run_id)["keep_claims[-1]"] == "skipped"
    assert "the triggerer did not end keep_claims; it is skipped" in live.logs("drop_lease")

    live.wait(lambda: not live.triggerer_is_alive(), "the triggerer to end")
    seen = live.logs("keep_claims").count(NO_TRIGGERER)
    run_id = live.trigger("shop.ok_3")
    assert live.ended(run_id) == "success"
    assert live.tasks(run_id)["keep_claims[-1]"] == "success"
    assert live.logs("keep_claims").count(NO_TRIGGERER) == seen + 1
