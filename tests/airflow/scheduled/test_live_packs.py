"""Packs in a real Airflow that tries twice, and the usual two minutes in which a claim lives.

Its OpenLineage provider reports all tasks, also those that are killed.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator

import pytest

from sluice.model import TablePath
from tests.airflow.live import SLOTS, Live, running_live
from tests.airflow.place import ROOT
from tests.support.harness.findings import finding
from tests.support.programs.living import lives

pytestmark = [pytest.mark.airflow, pytest.mark.long, pytest.mark.timeout(1800)]
FULL_S = 600.0
EVENTS = "events.json"


@pytest.fixture(scope="module")
def live(
    airflow_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("live")
    transport = {"type": "file", "log_file_path": str(folder / EVENTS), "append": True}
    imports = tmp_path_factory.mktemp("imports")  # with the checkout, Airflow finds Sluice twice
    (imports / "tests").symlink_to(ROOT / "tests")
    with running_live(
        folder,
        airflow_environment,
        tiering_timeout_ms=120_000,
        triggerer=True,
        AIRFLOW__SLUICE__TIER_RETRIES="1",
        AIRFLOW__OPENLINEAGE__TRANSPORT=json.dumps(transport),
        PYTHONPATH=str(imports),
    ) as running:
        yield running


def are_tiered(live: Live, run_id: str, *paths: TablePath) -> None:
    """By one round each, which is no failure, and nothing is held."""
    assert live.ended(run_id) == "success", live.account(run_id)
    assert live.account(run_id) == dict.fromkeys(map(str, paths), "tiered")
    for path in paths:
        [round_] = live.place.client.statuses.history(path)
        assert (round_.outcome, live.place.status(path).failures) == ("committed", 0)
    assert len(live.tiers(run_id)) == 1, "they share an application"
    live.place.nothing_is_held()


def test_the_provider_reports_a_pack(live: Live) -> None:
    """From the process of the task, which has used gRPC and is forked by the provider."""
    paths = live.pack("ok_seen_1", "ok_seen_2")
    run_id = live.trigger("shop.ok_seen_*")
    are_tiered(live, run_id, *paths)
    events = (live.place.work.parent / EVENTS).read_text().splitlines()
    found = [json.loads(line) for line in events]
    [told] = [event for event in found if event["outputs"]]
    assert told["eventType"] == "COMPLETE"
    assert sorted(one["name"] for one in told["inputs"]) == ["shop.ok_seen_1", "shop.ok_seen_2"]
    assert [one["outputFacets"]["outputStatistics"]["rowCount"] for one in told["outputs"]] == [
        1,
        1,
    ]
    assert all("columnLineage" in one["facets"] for one in told["outputs"])
    assert "OpenLineage on_success process failed" not in live.logs("per_application.tier")


def test_a_killed_task_is_tried_again(live: Live) -> None:
    """Its claims outlive it by two minutes, its driver does not.

    The retry leaves alone what the driver has tiered.
    """
    once, ok = live.pack("once_again", "ok_again")
    run_id = live.trigger("shop.*_again")
    driver = live.driver("shop.once_again-slept")
    live.wait(lambda: live.has_result(ok), "the pack's other table to end")
    task = driver.parents()[0]
    for process in (task.parents()[0], task):
        os.kill(process.pid, signal.SIGKILL)
    are_tiered(live, run_id, once, ok)
    assert [live.commands(path) for path in (once, ok)] == [2, 1]
    live.wait(lambda: not lives(driver), "the driver of the killed task to end")


def test_a_dag_paused_between_two_tries(live: Live) -> None:
    """The driver is lost meanwhile. The claims are kept until the retry may begin."""
    once, pair, ok = live.pack("once_paused", "pair_paused", "ok_paused")
    run_id = live.trigger("shop.*_paused")
    driver = live.driver("shop.once_paused-slept")
    live.wait(lambda: live.place.status(ok).status == "Scheduled", "the report of one table")
    live.airflow.pause(True)
    driver.kill()
    with finding():
        live.wait(lambda: not lives(driver), "the driver to end")
    live.wait(lambda: live.tiers(run_id) == ["up_for_retry"], "the end of the first try")
    live.stay_claimed(once, pair)
    live.airflow.pause(False)
    are_tiered(live, run_id, once, pair, ok)
    assert [live.commands(path) for path in (once, pair, ok)] == [2, 2, 1]


def test_a_pool_that_is_full_for_ten_minutes(live: Live) -> None:
    """By the machine's own clock."""
    paths = live.pack("ok_1", "ok_2")
    live.pool(0)
    run_id = live.trigger("shop.ok_1", "shop.ok_2")
    live.task(run_id, "acquire_lease", "success")
    # The scheduler makes the tier task a moment later.
    live.wait(lambda: live.tiers(run_id) == ["scheduled"], "the tier task to wait for a slot")
    until = time.monotonic() + FULL_S
    while time.monotonic() < until:
        live.are_claimed(*paths)
        assert live.tiers(run_id) == ["scheduled"]
        time.sleep(10)
    live.pool(SLOTS)
    are_tiered(live, run_id, *paths)
