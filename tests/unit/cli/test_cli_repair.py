"""What `sluice repair` prints, and its exit codes; the repairs themselves run on a real lake."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from sluice.cli.main import cli
from sluice.cli.repair import _given_up, _print_done, _print_found, _print_json
from sluice.driver.repairing import RepairResult
from sluice.rounds.diagnosis import Diagnosis, RepairAction
from sluice.rounds.files import RoundResult

SAFE = RepairAction("restore", "set main of the lake table to snapshot 7 again")
RISKY = RepairAction("retier", "run a round", ("lost for good: 3 rows", "and 2 more buckets"))
FACTS = {"Fluss table id": "1"}


def said(capsys: pytest.CaptureFixture[str], found: Diagnosis, by: str | None = None) -> str:
    _print_found(found, by)
    return capsys.readouterr().out


def of(*actions: RepairAction, advice: tuple[str, ...] = ()) -> Diagnosis:
    return Diagnosis("db.t", False, "the lake is behind", FACTS, actions, advice)


@pytest.mark.parametrize(
    ("found", "by", "last"),
    [
        (of(SAFE, RISKY), None, "nothing was changed; --yes runs the repair restore"),
        (
            of(SAFE, RISKY),
            "retier",
            "nothing was changed; --by retier --yes runs the repair retier",
        ),
        (of(SAFE), "adopt", "nothing was changed; --by adopt is not available for this table"),
        (of(RISKY), None, "nothing was changed; name a repair: --by retier --yes"),
        (of(), None, "nothing was changed, and this command has no repair for it"),
    ],
)
def test_the_last_line_says_what_to_type(
    capsys: pytest.CaptureFixture[str], found: Diagnosis, by: str | None, last: str
) -> None:
    lines = said(capsys, found, by).splitlines()
    assert (lines[0], lines[-1]) == ("db.t: the lake is behind", last)


def test_losses_and_advice_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, of(SAFE, RISKY, advice=("look twice",)))
    for part in ("nothing", "lost for good: 3 rows", "and 2 more buckets", "note: look twice"):
        assert part in text


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
