"""Names of runs that hold leases: read once they are written, and not at each look."""

from __future__ import annotations

from pathlib import Path

from sluice.client.lease_ids import lease_id
from sluice.page.known_runs import AGAIN_S, KnownRuns
from sluice.rounds.run_names import RunName, write_run_name
from tests.support.lease_parts import ManualClock

RUN, NAME = lease_id("west", "lake", "manual__1"), RunName("lake", "manual__1")


def test_a_name_that_comes_later_is_found(tmp_path: Path) -> None:
    clock = ManualClock()
    runs = KnownRuns(str(tmp_path), clock)
    assert runs.of([RUN, "job-7"]) == {}
    write_run_name(str(tmp_path), RUN, NAME)
    assert runs.of([RUN, "job-7"]) == {}, "not read at each look"
    clock.ms += round(AGAIN_S * 1000)
    assert runs.of([RUN, "job-7"]) == {RUN: NAME}
    (tmp_path / RUN / "run.json").unlink()
    assert runs.of([RUN]) == {RUN: NAME}, "a name never changes"


def test_without_a_work_folder_no_name_is_known() -> None:
    assert KnownRuns(None, ManualClock()).of([RUN]) == {}
