"""Which action a repair applies, and what a signal meanwhile is said to have left."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from sluice.driver.repairing import RepairResult, apply_now, choose_action
from sluice.errors import ConfigurationError, LakeRolledBack, LogBeginsAfterLake
from sluice.model import types as t
from sluice.rounds.repair.diagnosis import Diagnosis, RepairAction, TableState
from tests.support.models.memory_lake import MemoryLake
from tests.support.models.tables import table_info

SAFE = RepairAction("restore", "set main back")
SKIP = RepairAction("skip", "leave it out", ("lost for good: 10 rows",))
REBUILD = RepairAction("rebuild", "read the bucket again")
TAG = RepairAction("tag", "set the tag")
RISKY = RepairAction("retier", "copy again", ("lost for good: 3 rows",))


def found(*actions: RepairAction) -> Diagnosis:
    return Diagnosis("db.t", False, "the lake is behind", {}, actions)


def test_the_first_repair_is_chosen_if_it_loses_nothing() -> None:
    assert choose_action(found(SAFE, RISKY), None) is SAFE


def test_every_available_repair_can_be_named() -> None:
    assert choose_action(found(SAFE, RISKY), "retier") is RISKY
    assert choose_action(found(RISKY), "retier") is RISKY


def batch(*actions: RepairAction) -> Diagnosis:
    return replace(found(*actions), batch="1:7")


def test_a_batch_of_a_log_table_is_skipped_without_a_name() -> None:
    assert choose_action(batch(SKIP), None, ("1", 7)) is SKIP
    assert choose_action(batch(SAFE, SKIP), "skip", ("1", 7)) is SKIP


@pytest.mark.parametrize("actions", [(REBUILD, SKIP), (REBUILD,)])
def test_a_batch_with_another_repair_needs_a_name(actions: tuple[RepairAction, ...]) -> None:
    with pytest.raises(ConfigurationError, match="--skip 1:7: choose the repair: .*--by rebuild"):
        choose_action(batch(*actions), None, ("1", 7))


@pytest.mark.parametrize("by", [None, "skip", "rebuild"])
def test_a_batch_without_a_repair_is_not_asked_for(by: str | None) -> None:
    diagnosis = replace(batch(), advice=("its end is unknown. Restore a backup",))
    with pytest.raises(ConfigurationError) as refused:
        choose_action(diagnosis, by)
    assert str(refused.value) == (
        "table db.t: the lake is behind. No repair is possible yet: its end is unknown. Restore a"
        " backup"
    )


@pytest.mark.parametrize("by", [None, "skip", "restore"])
def test_another_problem_of_the_table_comes_before_the_batch(by: str | None) -> None:
    with pytest.raises(ConfigurationError, match="the lake is behind. First run `sluice repair db"):
        choose_action(found(SAFE), by, ("1", 7))


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ((RISKY,), "every available repair loses something.*Choose one: --by retier"),
        ((), "has no repair for this state: the lake is behind"),
    ],
)
def test_without_a_safe_repair_one_must_be_named(
    actions: tuple[RepairAction, ...], message: str
) -> None:
    with pytest.raises(LakeRolledBack, match=message):
        choose_action(found(*actions), None)
    with pytest.raises(LogBeginsAfterLake, match=message):
        choose_action(replace(found(*actions), error=LogBeginsAfterLake), None)


@pytest.mark.parametrize(
    ("actions", "available"),
    [
        ((SAFE, RISKY), "Use --by restore or --by retier"),
        ((), "No repair is; `sluice repair db.t`"),
    ],
)
def test_a_repair_that_is_not_available_is_a_wrong_option(
    actions: tuple[RepairAction, ...], available: str
) -> None:
    message = f"^--by adopt is not available for table db.t: the lake is behind. {available}"
    with pytest.raises(ConfigurationError, match=message):
        choose_action(found(*actions), "adopt")


@pytest.mark.parametrize(
    ("ctrl_c", "is_told", "said"),
    [
        (1, True, "after the repair"),
        (
            2,
            False,
            "during the repair: whether it changed the lake table is unknown. `sluice repair db.t`"
            " with the same --warehouse or --config shows it",
        ),
    ],
)
def test_a_second_ctrl_c_says_that_the_lake_table_may_have_changed(
    monkeypatch: pytest.MonkeyPatch, ctrl_c: int, is_told: bool, said: str
) -> None:
    info = table_info({"id": t.BIGINT})
    table = MemoryLake().create(info)
    table.foreign_commit()
    [ours] = table.snapshots()
    seen = TableState(info.path, info, table, None, ours)
    tag = table.tag
    results: list[RepairResult] = []

    def interrupted(snapshot_id: int) -> None:
        tag(snapshot_id)
        for _ in range(ctrl_c):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(table, "tag", interrupted)
    with pytest.raises(KeyboardInterrupt) as stopped:
        apply_now(found(TAG), TAG, seen, results.append)
    assert stopped.value.__notes__ == [f"stopped by Ctrl-C {said}"]
    assert (table.tagged, bool(results)) == (ours.snapshot_id, is_told)
