"""What `sluice repair` prints, and its exit codes; the repairs themselves run on a real lake."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from sluice.cli.main import cli
from sluice.cli.terminal.options import DURATION
from sluice.cli.tiering.repair import _given_up, _print_done, _print_found, _print_json, repair
from sluice.config import ServerConfig
from sluice.driver.repairing import RepairResult
from sluice.rounds.records.result import RoundResult
from sluice.rounds.repair.diagnosis import Diagnosis, RepairAction

SAFE = RepairAction("restore", "set main of the lake table to snapshot 7 again")
RISKY = RepairAction("retier", "run a round", ("lost for good: 3 rows", "and 2 more buckets"))
SKIP = RepairAction("skip", "leave it out", ("lost for good: 10 rows",))
REBUILD = RepairAction("rebuild", "read the bucket again")
GAP = RepairAction("accept-gap", "move on", ("lost for good: 3 rows",))
TAG = RepairAction("tag", "set the tag")
LAKE = "with the same --warehouse or --config"
REPEAT = "If a later round fails at the batch, repeat this command"
FIRST = f"first run `sluice repair db.t --yes` {LAKE}. {REPEAT}"
FACTS = {"Fluss table id": "1"}


def said(
    capsys: pytest.CaptureFixture[str],
    found: Diagnosis,
    by: str | None = None,
    skip: tuple[str, int] | None = None,
) -> str:
    _print_found(found, by, skip)
    return capsys.readouterr().out


def of(*actions: RepairAction, advice: tuple[str, ...] = ()) -> Diagnosis:
    return Diagnosis("db.t", False, "the lake is behind", FACTS, actions, advice)


def batch(*actions: RepairAction) -> Diagnosis:
    """The diagnosis of the batch that ``--skip 1:7`` names."""
    return replace(of(*actions), batch="1:7")


@pytest.mark.parametrize(
    ("found", "by", "last"),
    [
        (of(SAFE, RISKY), None, "nothing was changed; --yes runs the repair restore"),
        (
            of(SAFE, RISKY),
            "retier",
            "nothing was changed; --by retier --yes runs the repair retier",
        ),
        (
            of(SAFE),
            "adopt",
            "nothing was changed; --by adopt is not available for this table; run"
            f" `sluice repair db.t --yes` {LAKE}",
        ),
        (of(RISKY), None, "nothing was changed; name a repair: --by retier --yes"),
        (of(), None, "nothing was changed; this command has no repair for it"),
        (of(), "adopt", "nothing was changed; --by adopt is not available for this table"),
    ],
)
def test_the_last_line_says_what_to_type(
    capsys: pytest.CaptureFixture[str], found: Diagnosis, by: str | None, last: str
) -> None:
    lines = said(capsys, found, by).splitlines()
    assert (lines[0], lines[-1]) == ("db.t: the lake is behind", last)


@pytest.mark.parametrize(
    ("found", "by", "last"),
    [
        (batch(SKIP), None, f"run `sluice repair db.t --skip 1:7 --yes` {LAKE}"),
        (
            batch(REBUILD, SKIP),
            None,
            "run `sluice repair db.t --skip 1:7 --by rebuild --yes` or `sluice repair db.t --skip"
            f" 1:7 --by skip --yes` {LAKE}",
        ),
        (batch(REBUILD, SKIP), "skip", "--by skip --yes runs the repair skip"),
        (batch(REBUILD), None, f"run `sluice repair db.t --skip 1:7 --by rebuild --yes` {LAKE}"),
        (batch(), None, "no repair is possible yet; the note says what to do"),
        (
            of(GAP),
            None,
            f"first run `sluice repair db.t --by accept-gap --yes` {LAKE}. {REPEAT}",
        ),
        (of(TAG), None, FIRST),
        (of(TAG), "skip", FIRST),
    ],
)
def test_the_last_line_of_a_batch_names_the_next_command(
    capsys: pytest.CaptureFixture[str], found: Diagnosis, by: str | None, last: str
) -> None:
    lines = said(capsys, found, by, ("1", 7)).splitlines()
    assert lines[-1] == f"nothing was changed; {last}"


@pytest.mark.parametrize("by", [None, "skip", "rebuild"])
def test_a_batch_that_the_last_round_named_is_repaired_with_skip(
    capsys: pytest.CaptureFixture[str], by: str | None
) -> None:
    lines = said(capsys, batch(SKIP), by).splitlines()
    assert lines[-1] == f"nothing was changed; run `sluice repair db.t --skip 1:7 --yes` {LAKE}"


def test_the_failure_of_the_last_round_is_in_the_first_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    failure = "the last round failed: LakeNotWritable: no space left"
    healthy = Diagnosis("db.t", True, "as it should be", FACTS, last_failure=failure)
    expected = [f"db.t: the lake needs no repair, but {failure}", "note: as it should be"]
    assert said(capsys, healthy).splitlines()[:2] == expected
    _print_done(RepairResult(healthy))
    assert capsys.readouterr().out.splitlines() == expected
    _print_json(healthy, None)
    printed = json.loads(capsys.readouterr().out)
    assert (printed["healthy"], printed["last_failure"]) == (True, failure)


@pytest.mark.parametrize(
    ("found", "recommended"),
    [
        (of(SAFE, RISKY), "restore"),
        (of(RISKY), None),
        (batch(REBUILD, SKIP), None),
        (batch(REBUILD), None),
        (batch(SKIP), None),
    ],
)
def test_json_recommends_only_what_yes_alone_runs(
    capsys: pytest.CaptureFixture[str], found: Diagnosis, recommended: str | None
) -> None:
    _print_json(found, None)
    assert json.loads(capsys.readouterr().out)["recommended"] == recommended


def test_losses_and_advice_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, of(SAFE, RISKY, advice=("look twice",)))
    for part in ("nothing", "lost for good: 3 rows", "and 2 more buckets", "note: look twice"):
        assert part in text


def test_a_repair_waits_longer_than_the_claim_of_a_killed_round_lasts() -> None:
    [wait] = [one for one in repair.params if one.name == "wait_ms"]
    claim_ms = ServerConfig("data").tiering_timeout_ms
    assert DURATION.convert(wait.default, wait, None) >= claim_ms + 30_000


def test_a_table_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    healthy = Diagnosis(
        "db.t", True, "Fluss has registered the newest tiering snapshot of the lake", FACTS
    )
    assert "db.t: nothing to repair: Fluss has registered" in said(capsys, healthy)
    _print_done(RepairResult(healthy))
    assert "nothing to repair" in capsys.readouterr().out
    _print_json(healthy, RepairResult(healthy))
    assert '"done": null' in capsys.readouterr().out


DUE = "The table is due at once, and the next round copies the other rows"
FORCED = "repaired only what was requested: the next round copies the other rows"
SKIPPED = "bucket 1: offsets 7 to 16 were skipped"
LOST = f"lake snapshot 9 was committed. Missing in the lake, as accepted: {SKIPPED}"


def result(outcome: str = "committed", **facts: Any) -> RoundResult:
    return RoundResult("db.t", 1, 2, 3, outcome, **facts)


@pytest.mark.parametrize(
    ("done", "lines"),
    [
        (RepairResult(of(SAFE), SAFE), ["done: set main to the registered snapshot again"]),
        (
            RepairResult(
                of(RISKY), RISKY, ("3 offsets were copied",), result(rows=5, lake_snapshot_id=9)
            ),
            [
                "done: copied the missing offsets from the logs again",
                "the round: committed to the lake, 5 rows, lake snapshot id 9",
                "accepted risk: lost for good: 3 rows",
                "accepted risk: and 2 more buckets",
                "note: 3 offsets were copied",
            ],
        ),
        (
            RepairResult(
                batch(SKIP),
                SKIP,
                (SKIPPED,),
                result(accepted=SKIPPED, forced=FORCED, lake_snapshot_id=9, repaired_buckets=1),
            ),
            [
                "done: copied the bucket up to the batch and left the batch out. Missing in the"
                f" lake, as accepted: {SKIPPED}. {DUE}",
                "the round: committed to the lake, 0 rows, lake snapshot id 9",
                "accepted risk: lost for good: 10 rows",
            ],
        ),
        (
            RepairResult(batch(REBUILD), REBUILD, (), result("nothing_new", forced=FORCED)),
            [f"nothing was left to repair by rebuild. {DUE}", "the round: no new rows, 0 rows"],
        ),
        (
            RepairResult(of(RISKY), RISKY, (), result("claim_lost")),
            [
                "not repaired: nothing was committed, because the claim was lost. Run the command"
                " again"
            ],
        ),
        (
            RepairResult(of(RISKY), RISKY, (), result("claim_lost", lake_snapshot_id=9)),
            [
                "done: copied the missing offsets from the logs again",
                "the round: committed to the lake; the claim was lost before the registration with"
                " Fluss, which the next round repeats, 0 rows, lake snapshot id 9",
                "accepted risk: lost for good: 3 rows",
                "accepted risk: and 2 more buckets",
            ],
        ),
        (
            RepairResult(
                batch(SKIP),
                SKIP,
                (LOST,),
                result("claim_lost", lake_snapshot_id=9, repaired_buckets=1),
            ),
            [
                "done: copied the bucket up to the batch and left the batch out",
                "the round: committed to the lake; the claim was lost before the registration with"
                " Fluss, which the next round repeats, 0 rows, lake snapshot id 9",
                "accepted risk: lost for good: 10 rows",
                f"note: {LOST}",
            ],
        ),
        (
            RepairResult(
                of(GAP), GAP, ("table db.t was dropped",), result("claim_lost", table_dropped=True)
            ),
            [
                "not repaired: nothing was committed: the table was dropped during the round",
                "note: table db.t was dropped",
            ],
        ),
    ],
)
def test_a_repair_prints_what_was_done_what_is_missing_and_the_next_step(
    capsys: pytest.CaptureFixture[str], done: RepairResult, lines: list[str]
) -> None:
    _print_done(done)
    assert capsys.readouterr().out.splitlines() == [f"db.t: {lines[0]}", *lines[1:]]
    assert _given_up(done) == lines[0].startswith("not repaired")
    _print_json(done.diagnosis, done)
    assert done.action is not None
    printed = json.loads(capsys.readouterr().out)["done"]
    assert printed["repair"] == done.action.name
    assert printed["accepted_risks"] == list(done.action.risks)


LATE = "bucket 2: offsets 0 to 9 were no longer in the log when the bucket was first tiered"


@pytest.mark.parametrize(
    ("action", "repaired_buckets", "is_done"),
    [(GAP, 1, True), (GAP, 0, False), (REBUILD, 2, True), (REBUILD, 0, False), (RISKY, 0, True)],
)
def test_a_round_that_repaired_nothing_is_not_said_to_be_done(
    capsys: pytest.CaptureFixture[str], action: RepairAction, repaired_buckets: int, is_done: bool
) -> None:
    before = "bucket 1: offsets 0 to 4 were skipped"  # accepted by an earlier round
    found = result("nothing_new", accepted=before, repaired_buckets=repaired_buckets)
    _print_done(RepairResult(of(action), action, (LATE,), found))
    line = capsys.readouterr().out.splitlines()[0]
    nothing = f"db.t: nothing was left to repair by {action.name}"
    assert line.startswith("db.t: done: ") if is_done else line == nothing


@pytest.mark.parametrize(
    "arguments", [["db.t"], ["no-table", "--warehouse", "x"], ["db.t", "--by", "magic"], []]
)
def test_wrong_arguments_are_exit_code_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(cli, ["repair", *arguments]).exit_code == 2
