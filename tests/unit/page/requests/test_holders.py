"""Names of runs that hold leases: read once they are written, and not at each look."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path

import pytest

from sluice.client.leases.ids import lease_id
from sluice.page.requests import holders
from sluice.page.requests.holders import AGAIN_S, KnownRuns
from sluice.rounds.records.run_names import RunName, read_run_name, write_run_name
from tests.support.programs.processes import wait_for
from tests.support.statuses.lease_parts import ManualClock

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


def test_a_storage_that_hangs_costs_one_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holders, "READ_S", 0.2)
    write_run_name(str(tmp_path), RUN, NAME)
    late = lease_id("west", "lake", "manual__2")
    pipe = tmp_path / late / "run.json"
    pipe.parent.mkdir()
    os.mkfifo(pipe)  # who opens it waits for somebody who writes
    before = {thread.name for thread in threading.enumerate()}
    clock = ManualClock()
    runs = KnownRuns(str(tmp_path), clock)
    assert runs.of([RUN, late]) == {RUN: NAME}
    began_s = time.monotonic()
    monkeypatch.setattr(holders, "READ_S", 60.0)
    for _ in range(3):
        assert runs.of([RUN, late]) == {RUN: NAME}
    assert time.monotonic() - began_s < 30, "nobody waits for it again"
    names = {thread.name for thread in threading.enumerate()} - before
    assert len([name for name in names if name.startswith("sluice-run-name")]) <= 2
    os.close(os.open(pipe, os.O_WRONLY))  # the read fails now
    pipe.unlink()
    write_run_name(str(tmp_path), late, NAME)

    def is_known() -> bool:
        clock.ms += round(AGAIN_S * 1000)
        return late in runs.of([RUN, late])

    wait_for("the late name", is_known)


def test_who_may_wait_longer_waits_for_the_read_of_who_may_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of tables waits shortly; a list of leases that is asked then has the name."""
    goes_on = threading.Event()

    def read_late(work_uri: str, lease: str) -> RunName | None:
        goes_on.wait(60)
        return read_run_name(work_uri, lease)

    monkeypatch.setattr(holders, "read_run_name", read_late)
    write_run_name(str(tmp_path), RUN, NAME)
    runs = KnownRuns(str(tmp_path), ManualClock())
    assert runs.of([RUN], 0.0) == {}
    timer = threading.Timer(0.1, goes_on.set)
    timer.start()
    assert runs.of([RUN]) == {RUN: NAME}
    timer.join()


def test_two_answers_do_not_forget_each_others_names(tmp_path: Path) -> None:
    runs, other = KnownRuns(str(tmp_path), ManualClock()), lease_id("west", "lake", "manual__3")
    for one in (RUN, other):
        write_run_name(str(tmp_path), one, NAME)
        assert runs.of([one]) == {one: NAME}
    shutil.rmtree(tmp_path / RUN)
    assert runs.of([RUN]) == {RUN: NAME}
