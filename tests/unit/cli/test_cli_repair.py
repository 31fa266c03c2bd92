"""What `sluice repair` prints, and its exit codes; the repairs themselves run on a real lake."""

from __future__ import annotations

from dataclasses import replace

import pytest
from click.testing import CliRunner

from sluice.cli.main import cli
from sluice.cli.options import DURATION
from sluice.cli.repair import _given_up, _print_done, _print_found, _print_json, repair
from sluice.config import ServerConfig
from sluice.driver.repairing import RepairResult
from sluice.rounds.diagnosis import Diagnosis, RepairAction
from sluice.rounds.files import RoundResult

SAFE = RepairAction("restore", "set main of the lake table to snapshot 7 again")
RISKY = RepairAction("retier", "run a round", ("lost for good: 3 rows", "and 2 more buckets"))
SKIP = RepairAction("skip", "leave it out", ("lost for good: 10 rows",))
REBUILD = RepairAction("rebuild", "read the bucket again")
GAP = RepairAction("accept-gap", "move on", ("lost for good: 3 rows",))
TAG = RepairAction("tag", "set the tag")
LAKE = "with the same --warehouse or --config"
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
            f"first run `sluice repair db.t --by accept-gap --yes` {LAKE}, then repeat this"
            " command",
        ),
        (of(TAG), None, f"first run `sluice repair db.t --yes` {LAKE}, then repeat this command"),
        (of(TAG), "skip", f"first run `sluice repair db.t --yes` {LAKE}, then repeat this command"),
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


def test_the_failure_of_the_last_round_is_a_note_of_a_healthy_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    note = "the last round failed: LakeNotWritable: no space left"
    healthy = Diagnosis("db.t", True, "as it should be", FACTS, advice=(note,))
    expected = ["db.t: nothing to repair: as it should be", f"note: {note}"]
    assert said(capsys, healthy).splitlines()[:2] == expected
    _print_done(RepairResult(healthy))
    assert capsys.readouterr().out.splitlines() == expected


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


def test_what_was_done_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    result = RoundResult("db.t", 1, 2, 3, "committed", rows=5, lake_snapshot_id=9)
    done = RepairResult(of(RISKY), RISKY, ("lost for good: 3 rows",), result)
    _print_done(done)
    text = capsys.readouterr().out
    for part in ("done: run a round", "committed, 5 rows, lake snapshot 9", "note: lost for good"):
        assert part in text
    _print_json(done.diagnosis, done)
    assert '"repair": "retier"' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("action", "notes", "outcome"),
    [
        (GAP, ("bucket 0: offsets 3 to 4 were no longer in the log",), "done: move on"),
        (GAP, ("partition 7 was dropped",), "nothing was left to repair by accept-gap"),
        (REBUILD, ("bucket 0 was rebuilt: its files",), "done: read the bucket again"),
        (REBUILD, (), "nothing was left to repair by rebuild"),
        (RISKY, (), "done: run a round"),
    ],
)
def test_a_round_that_repaired_nothing_is_not_said_to_be_done(
    capsys: pytest.CaptureFixture[str], action: RepairAction, notes: tuple[str, ...], outcome: str
) -> None:
    before = "bucket 1: offsets 0 to 4 were skipped"  # accepted by an earlier round
    result = RoundResult("db.t", 1, 2, 3, "nothing_new", accepted=before)
    _print_done(RepairResult(of(action), action, notes, result))
    assert capsys.readouterr().out.splitlines()[0] == f"db.t: {outcome}"


@pytest.mark.parametrize(("snapshot_id", "given_up"), [(None, True), (9, False)])
def test_a_round_that_lost_its_claim_is_not_said_to_be_done(
    capsys: pytest.CaptureFixture[str], snapshot_id: int | None, given_up: bool
) -> None:
    result = RoundResult("db.t", 1, 2, 3, "claim_lost", lake_snapshot_id=snapshot_id)
    done = RepairResult(of(SAFE), SAFE, result=result)
    _print_done(done)
    told = capsys.readouterr().out.splitlines()[0]
    lost = "not done, because the claim was lost; run the command again"
    assert told == f"db.t: {lost if given_up else 'done'}: {SAFE.effect}"
    assert _given_up(done) is given_up
    assert not _given_up(RepairResult(of(SAFE), SAFE)), "a move of main has no claim"


@pytest.mark.parametrize(
    "arguments", [["db.t"], ["no-table", "--warehouse", "x"], ["db.t", "--by", "magic"], []]
)
def test_wrong_arguments_are_exit_code_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(cli, ["repair", *arguments]).exit_code == 2
