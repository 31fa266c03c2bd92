"""Which runs of the maintenance were the newest, as a small folder says it."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fsspec.implementations.local import LocalFileSystem

from sluice.model import Reason
from sluice.rounds.records import maintenance as maintenance_runs
from sluice.rounds.records.dropped_leases import forget_drop
from sluice.rounds.records.finished_runs import remove_run, run_folders
from sluice.rounds.records.maintenance import (
    FILE_BYTES_MAX,
    FILES_MAX,
    RUNS_KEPT,
    MaintenanceRun,
    RecordedMaintenance,
    newest_runs,
    note_run,
    read_outcome,
    request_uri,
)
from sluice.rounds.records.run_names import RunName, read_run_name, write_run_name
from sluice.rounds.upkeep.maintenance import MaintenanceReport, table_report

RUN = f"sluice-west-{uuid.uuid5(uuid.NAMESPACE_URL, 'run')}"
WRITER = """
import itertools, sys
from sluice.rounds.records.maintenance import MaintenanceRun, note_run

for at in itertools.count():
    run = MaintenanceRun(folder=f"sluice-{at}", attempt="a", began_ms=at, by="x" * 2_000)
    note_run(sys.argv[1], "task", run)
    print(at, flush=True)
"""


@pytest.fixture
def work(tmp_path: Path) -> str:
    return f"file://{tmp_path}/work"


def run_at(ms: int, **changes: object) -> MaintenanceRun:
    return MaintenanceRun(folder=f"sluice-{ms}", attempt="a", began_ms=ms, **changes)  # type: ignore[arg-type]


def test_the_newest_runs_of_each_task(work: str) -> None:
    assert newest_runs(work) == []
    for ms in range(8):
        note_run(work, "west", run_at(ms))
    note_run(work, "east", run_at(3, dag_id="dag", run_id="r", task_id="t", url="http://x"))
    found = {one.name: one.runs for one in newest_runs(work)}
    assert [one.began_ms for one in found["west"]] == [7, 6, 5, 4, 3]
    assert len(found["west"]) == RUNS_KEPT
    [only] = found["east"]
    assert (only.is_of_airflow, only.url, only.ended_ms) == (True, "http://x", None)


def test_the_end_and_a_later_try_replace_the_run(work: str) -> None:
    note_run(work, "west", run_at(1))
    note_run(work, "west", run_at(2))
    again = MaintenanceRun(folder="sluice-1", attempt="b", began_ms=5, ended_ms=6)
    note_run(work, "west", again)
    [task] = newest_runs(work)
    assert task.runs == (again, run_at(2))


def test_a_killed_writer_leaves_a_whole_file(work: str) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, work], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    try:
        for _ in range(5):
            seen = int(writer.stdout.readline())
            [task] = newest_runs(work)
            assert task.problem == ""
    finally:
        writer.kill()
        writer.wait()
    [task] = newest_runs(work)
    assert task.problem == ""
    assert task.runs[0].began_ms >= seen
    note_run(work, "task", run_at(10**9))
    [task] = newest_runs(work)
    assert task.runs[0] == run_at(10**9)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ('{"version": 1, "runs": [{"folder": "sluice-1", "atte', "JSONDecodeError"),
        ("", "JSONDecodeError"),
        ('{"version": 0, "runs": []}', "its version is 0, but this Sluice reads version 1"),
        ('{"version": 1}', "it has no list of runs"),
        ('{"version": 1, "runs": [{"folder": "x"}]}', "lacks attempt, began_ms"),
        (
            '{"version": 1, "runs": [{"folder": "x", "attempt": "a", "began_ms": "1"}]}',
            "began_ms of a run of the maintenance is '1'",
        ),
        ('{"version": 1, "runs": [{"url": 7}]}', "url of a run of the maintenance is '7'"),
        (" " * (FILE_BYTES_MAX + 1), f"more than {FILE_BYTES_MAX}"),
    ],
)
def test_a_damaged_file_hides_no_other_and_is_replaced(work: str, content: str, why: str) -> None:
    note_run(work, "good", run_at(1))
    bad = Path(work.removeprefix("file://")) / "maintenance/bad.json"
    bad.write_text(content)
    found = {one.name: one for one in newest_runs(work)}
    assert found["good"].runs == (run_at(1),)
    assert found["bad"].runs == ()
    assert why in found["bad"].problem
    note_run(work, "bad", run_at(2))
    found = {one.name: one for one in newest_runs(work)}
    assert (found["bad"].runs, found["bad"].problem) == ((run_at(2),), "")


def test_only_the_newest_files_are_read(work: str) -> None:
    folder = Path(work.removeprefix("file://")) / "maintenance"
    folder.mkdir(parents=True)
    for at in range(FILES_MAX + 5):
        path = folder / f"task-{at:03d}.json"
        path.write_text(json.dumps({"version": 1, "runs": []}))
        os.utime(path, (1_700_000_000 + at, 1_700_000_000 + at))
    found = newest_runs(work)
    assert [one.name for one in found] == [f"task-{at:03d}" for at in reversed(range(5, 105))]


def gone(work: str, count: int, suffix: str = ".json") -> list[Path]:
    """Files of hosts that wrote last long ago."""
    folder = Path(work.removeprefix("file://")) / "maintenance"
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"gone-{at:03d}{suffix}" for at in range(count)]
    for at, path in enumerate(paths):
        path.write_text(json.dumps({"version": 1, "runs": []}))
        os.utime(path, (1_700_000_000 + at, 1_700_000_000 + at))
    return paths


def test_files_of_hosts_that_are_gone_are_bounded(work: str) -> None:
    left_by_kills = gone(work, 3, f".json.{'a' * 32}.tmp")
    paths = gone(work, FILES_MAX + 5)
    note_run(work, "west", run_at(1))
    assert [path for path in paths if path.exists()] == paths[6:], (
        "with the new one as many as read"
    )
    assert [path for path in left_by_kills if path.exists()] == []
    note_run(work, "west", run_at(1, ended_ms=2))
    assert len(newest_runs(work)) == FILES_MAX


def test_a_mapped_task_of_many_instances_hides_and_deletes_no_other(work: str) -> None:
    for name in ("daily", "sluice-maintain-host"):
        note_run(work, name, run_at(1))
    for index in range(FILES_MAX + 20):
        note_run(work, "mapped", run_at(2, map_index=index))
        if index % 2:
            note_run(work, f"sluice-maintain-pod{index}", run_at(2))
    folder = Path(work.removeprefix("file://")) / "maintenance"
    for at, path in enumerate(sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)):
        os.utime(path, (1_700_000_000 + at, 1_700_000_000 + at))
    read = [one.name for one in newest_runs(work)]
    hosts = [name for name in read if name.startswith("sluice-maintain-")]
    mapped = [name for name in read if name.startswith("mapped.")]
    assert sorted([len(hosts), len(mapped), len(read)]) == [49, 50, FILES_MAX]
    assert (read[-1], mapped[0], hosts[0]) == ("daily", "mapped.119", "sluice-maintain-pod119")
    for _ in range(2):
        note_run(work, "daily", run_at(2))
    assert {path.stem for path in folder.iterdir()} == set(read)


def test_files_that_are_written_now_stay(work: str) -> None:
    """Many hosts begin at once: each deletes what is old, and no file of another."""
    gone(work, 50)
    hosts = [f"host-{at}" for at in range(FILES_MAX + 20)]
    with ThreadPoolExecutor(16) as pool:
        assert [*pool.map(lambda host: note_run(work, host, run_at(1)), hosts)]
    folder = Path(work.removeprefix("file://")) / "maintenance"
    assert {path.name for path in folder.iterdir()} == {f"{host}.json" for host in hosts}


def test_a_run_does_not_fail_because_it_cannot_be_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "maintenance").write_text("a file where the folder belongs")
    with caplog.at_level(logging.WARNING):
        note_run(f"file://{tmp_path}", "west", run_at(1))
    assert "cannot name this run of the maintenance in file://" in caplog.text


class Refused(Exception):
    """Of a file system that has errors of its own."""


def test_a_run_does_not_fail_by_an_error_of_any_kind(
    work: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise Refused("not now")

    note_run(work, "west", run_at(1))
    for call in ("pipe_file", "open", "glob", "rm_file"):
        monkeypatch.setattr(LocalFileSystem, call, refuse)
    caplog.clear()
    note_run(work, "west", run_at(2))
    maintenance_runs._delete_gone(work)
    write_run_name(work, RUN, RunName("dag", "run"))
    assert read_run_name(work, RUN) is None
    forget_drop(work, RUN)
    assert [one.message.rpartition(": ")[2] for one in caplog.records] == ["not now"] * 5


def test_a_run_of_the_command_is_recorded_as_one_of_airflow(work: str) -> None:
    record = RecordedMaintenance(work, "grpc://x:1", ["*"], applied=True)
    [task] = newest_runs(work)
    [run] = task.runs
    assert task.name.startswith("sluice-maintain-")
    assert (run.is_of_airflow, run.applied, run.ended_ms) == (False, True, None)
    assert run.by.startswith("`sluice maintain` on ")
    record.add(
        table_report(
            MaintenanceReport("shop.a", notes=["could not merge manifests: refused"]), applied=True
        )
    )
    record.end()
    [task] = newest_runs(work)
    [ended] = task.runs
    assert ended.ended_ms is not None
    outcome = read_outcome(request_uri(work, run.folder, run.attempt))
    assert outcome.has_ended
    assert [(one.table, len(one.problems)) for one in outcome.reports] == [("shop.a", 1)]
    other = RecordedMaintenance(work, "grpc://x:1", ["*"], applied=False)
    other.end(Reason("NetworkError", "no coordinator"))
    [task] = newest_runs(work)
    assert [one.applied for one in task.runs] == [False, True]


def test_clean_takes_the_folders_of_runs_and_leaves_their_names(work: str) -> None:
    RecordedMaintenance(work, "grpc://x:1", ["*"], applied=True).end()
    [found] = run_folders(work, 0, 1 << 62, lambda _: False)
    assert found.reason == ""
    remove_run(found)
    assert run_folders(work, 0, 1 << 62, lambda _: False) == []
    assert len(newest_runs(work)) == 1


def test_a_file_of_a_newer_sluice_is_left_as_it_is(
    work: str, caplog: pytest.LogCaptureFixture
) -> None:
    note_run(work, "task", run_at(1))
    file = Path(work.removeprefix("file://")) / "maintenance/task.json"
    newer = json.dumps({"version": 2, "runs": [], "more": 1})
    file.write_text(newer)
    with caplog.at_level(logging.WARNING):
        note_run(work, "task", run_at(2))
    assert file.read_text() == newer
    assert "version 2 of a newer Sluice" in caplog.text
