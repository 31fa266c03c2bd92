"""Folders of ended runs in a work folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sluice.errors import NetworkError
from sluice.model import Claim, TablePath
from sluice.rounds.records.copy_size import CopySize, size_uri
from sluice.rounds.records.dropped_leases import note_drop, stored_versions
from sluice.rounds.records.finished_runs import RunFolder, remove_run, run_folders
from sluice.rounds.records.json_files import write_json
from sluice.rounds.records.maintenance import MaintenanceFiles, keys_uri_beside, request_uri
from sluice.rounds.records.packs import PackFile, mark_running, pack_uri, write_stops
from sluice.rounds.records.plan_file import PlanFile, plan_uri
from sluice.rounds.records.result import result_uri
from sluice.rounds.records.run_files import keys_uri
from sluice_airflow.claims.claimed_again import mark_ended, mark_started, replace_claim
from sluice_airflow.claims.claims import claimed_table

DAY_MS = 86_400_000
NOW_MS = 100 * DAY_MS
CLAIM = Claim(7, TablePath("db", "t"), 3, 2)


@pytest.fixture
def work(tmp_path: Path) -> str:
    return f"file://{tmp_path}/work"


def folder(work: str) -> Path:
    return Path(work.removeprefix("file://"))


def run_of(work: str, name: str, age_days: float, claim: Claim = CLAIM) -> Path:
    uri = plan_uri(work, name, claim)
    write_json(uri, PlanFile(claim, name, "grpc://x:1").to_json())
    write_json(result_uri(uri, "a"), {"version": 1})
    write_json(size_uri(uri, "a"), CopySize(1, 1).to_json())
    mark_running(uri, "a")
    write_json(f"{keys_uri(uri, 'a')}-db.t.json", {"version": 1}, private=True)
    pack = pack_uri(work, name, "a", 0)
    write_json(pack, PackFile((uri,)).to_json())
    write_stops(pack, [uri])
    mark_started(uri, "a")
    mark_ended(uri)
    replace_claim(uri, claimed_table(PlanFile(claim, name, "grpc://x:1"), uri))
    note_drop(work, name, stored_versions(work, name))
    maintenance = MaintenanceFiles(request_uri(work, name, "a"))
    maintenance.begin("db.t")
    write_json(f"{keys_uri_beside(maintenance.request)}-db.t.json", {"version": 1}, private=True)
    maintenance.end()
    made = folder(work) / name
    for path in made.rglob("*.json"):
        aged(path, age_days)
    return made


def aged(path: Path, age_days: float) -> None:
    seconds = (NOW_MS - age_days * DAY_MS) / 1000
    os.utime(path, (seconds, seconds))


def judged(work: str, held: Callable[[Claim], bool] = lambda _: False) -> dict[str, str]:
    runs = run_folders(work, 7 * DAY_MS, NOW_MS, held)
    return {run.uri.rpartition("/")[2]: run.reason for run in runs}


def test_old_runs_that_nobody_holds_go(work: str) -> None:
    old = run_of(work, "sluice-old", 8)
    young = run_of(work, "sluice-young", 6.9)
    assert judged(work) == {
        "sluice-old": "",
        "sluice-young": "it is younger than --runs-older-than",
    }
    for run in run_folders(work, 7 * DAY_MS, NOW_MS, lambda _: False):
        if not run.reason:
            assert run.size_bytes > 0
            remove_run(run)
    assert not old.exists()
    assert len(list(young.rglob("*.json"))) == 14
    assert judged(f"{work}/") == {"sluice-young": "it is younger than --runs-older-than"}


def test_one_young_file_keeps_a_run(work: str) -> None:
    aged(next(run_of(work, "sluice-a", 30).rglob("result-*.json")), 1)
    assert judged(work) == {"sluice-a": "it is younger than --runs-older-than"}


def test_a_run_whose_claim_is_held_stays_however_old(work: str) -> None:
    run_of(work, "sluice-a", 30)
    other = Claim(8, TablePath("db", "u"), 1, 2)
    run_of(work, "sluice-a", 30, other)
    asked: list[Claim] = []

    def held(claim: Claim) -> bool:
        asked.append(claim)
        return claim == other

    assert judged(work, held) == {"sluice-a": "the coordinator still holds its claim of table db.u"}
    assert sorted(claim.table_id for claim in asked) == [7, 8]


def test_the_coordinator_is_asked_of_old_runs_only(work: str) -> None:
    """To ask renews a claim."""
    run_of(work, "sluice-a", 1)

    def held(claim: Claim) -> bool:
        raise AssertionError(claim)

    assert judged(work, held) == {"sluice-a": "it is younger than --runs-older-than"}


def test_what_cannot_be_judged_stays(work: str) -> None:
    def down(claim: Claim) -> bool:
        raise NetworkError("nobody there")

    run_of(work, "sluice-a", 30)
    assert "NetworkError: nobody there" in judged(work, down)["sluice-a"]
    plan = next((folder(work) / "sluice-a").rglob("plan.json"))
    for content in ("{", "[]", '{"version": 99}', '{"version": 1}'):
        plan.write_text(content)
        aged(plan, 30)
        assert "cannot be checked" in judged(work)["sluice-a"], content


def test_files_and_folders_of_others_are_never_touched(work: str) -> None:
    run_of(work, "sluice-a", 30)
    strange = folder(work) / "sluice-a" / "notes.txt"
    strange.write_text("mine")
    aged(strange, 30)
    other = folder(work) / "reports" / "1-1"
    other.mkdir(parents=True)
    (other / "plan.json").write_text("{}")
    (folder(work) / "sluice-loose").write_text("a file, no folder")
    assert judged(work) == {"sluice-a": "it contains a file that no round writes: notes.txt"}


def test_a_cut_removal_leaves_the_plan_to_judge_by(work: str, arm: Callable[[str], None]) -> None:
    made = run_of(work, "sluice-a", 30)
    [run] = run_folders(work, 0, NOW_MS, lambda _: False)
    arm("clean.run.file.before=raise@14")
    with pytest.raises(RuntimeError):
        remove_run(run)
    arm("")
    assert [path.name for path in made.rglob("*.json")] == ["plan.json"]
    assert (
        judged(work, lambda _: True)["sluice-a"]
        == "the coordinator still holds its claim of table db.t"
    )
    remove_run(run)  # what is gone already is fine
    assert not made.exists()


def test_no_work_folder_holds_no_runs(work: str) -> None:
    assert run_folders(work, 0, NOW_MS, lambda _: False) == []


def test_a_removal_leaves_what_was_written_since_it_was_listed(work: str) -> None:
    made = run_of(work, "sluice-a", 30)
    [run] = run_folders(work, 0, NOW_MS, lambda _: False)
    new = made / "9-1" / "plan.json"
    new.parent.mkdir()
    new.write_text("{}")
    remove_run(RunFolder(run.uri, run.files))
    assert [path.name for path in made.rglob("*") if path.is_file()] == ["plan.json"]
