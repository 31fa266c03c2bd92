"""How long scheduled runs wait after starts of Spark that failed for their settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice.errors import SparkSettingsWrong
from sluice_airflow.outcomes.failed_start import RUNS_MAX, WAIT_MAX_MS, WAIT_MS, FailedStarts

AT_MS = 1_800_000_000_000
WRONG = SparkSettingsWrong("Spark cannot start with its settings: [INVALID_DRIVER_MEMORY]")


@pytest.fixture
def starts(tmp_path: Path) -> FailedStarts:
    return FailedStarts(f"file://{tmp_path}/work", "a_dag", "group.tier")


def test_each_further_run_waits_longer_up_to_a_bound(starts: FailedStarts) -> None:
    assert starts.last() is None
    waits = []
    for number in range(20):
        starts.add(f"run-{number}", WRONG, AT_MS)
        last = starts.last()
        assert last is not None
        waits.append(last.next_ms - AT_MS)
    assert waits[:4] == [WAIT_MS, 2 * WAIT_MS, 4 * WAIT_MS, 8 * WAIT_MS]
    assert set(waits[4:]) == {WAIT_MAX_MS}
    starts.clear()
    starts.clear()  # also if there is nothing
    assert starts.last() is None


def test_the_applications_of_a_run_count_once(starts: FailedStarts) -> None:
    """Also those of two runs at a time."""
    for _ in range(3):
        for run in ("run", "another"):
            starts.add(run, WRONG, AT_MS)
    last = starts.last()
    assert last is not None
    assert last.failures == 2
    for number in range(3 * RUNS_MAX):
        starts.add(f"run-{number}", WRONG, AT_MS)
    last = starts.last()
    assert last is not None
    assert (len(last.lease_ids), last.failures) == (RUNS_MAX, 2 + 3 * RUNS_MAX)


def test_a_run_that_is_too_early_says_why_and_until_when(starts: FailedStarts) -> None:
    starts.add("run", WRONG, AT_MS)
    starts.add("next", WRONG, AT_MS)
    last = starts.last()
    assert last is not None
    with pytest.raises(SparkSettingsWrong) as error:
        last.check(last.next_ms - 1)
    assert str(error.value) == (
        "Spark is not started before 2027-01-15 08:02:00 UTC, because the last 2 starts failed, the"
        " last one at 2027-01-15 08:00:00 UTC: Spark cannot start with its settings:"
        " [INVALID_DRIVER_MEMORY]. Correct the settings, then trigger a run or clear this one: it"
        " starts Spark at once"
    )
    last.check(last.next_ms)
    last.check(AT_MS - 1)  # the clock was set back


def test_tier_tasks_do_not_share_their_failures(starts: FailedStarts, tmp_path: Path) -> None:
    starts.add("run", WRONG, AT_MS)
    work_uri = f"file://{tmp_path}/work"
    assert FailedStarts(work_uri, "a_dag", "other.tier").last() is None
    assert FailedStarts(work_uri, "a_dag.group", "tier").last() is None
    assert FailedStarts(f"file://{tmp_path}/work/", "a_dag", "group.tier").last() is not None


@pytest.mark.parametrize("content", ["{", "[]", '{"version": 1}', '{"version": 99}'])
def test_a_damaged_file_keeps_no_run_from_starting(
    starts: FailedStarts, tmp_path: Path, content: str
) -> None:
    starts.add("run", WRONG, AT_MS)
    [file] = (tmp_path / "work/failed-starts").glob("*/*.json")
    file.write_text(content)
    assert starts.last() is None
    starts.add("run", WRONG, AT_MS)
    assert starts.last() is not None
