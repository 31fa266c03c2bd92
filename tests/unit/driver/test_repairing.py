"""Which action a repair applies: the named one, or the best one if that loses nothing."""

from __future__ import annotations

import pytest

from sluice.driver.repairing import choose_action
from sluice.errors import LakeRolledBack
from sluice.rounds.repair import Diagnosis, RepairAction

SAFE = RepairAction("restore", "set main back")
RISKY = RepairAction("retier", "copy again", ("lost for good: 3 rows",))


def found(*ways: RepairAction) -> Diagnosis:
    return Diagnosis("db.t", False, "the lake is behind", {}, ways)


def test_the_best_way_is_taken_if_it_loses_nothing() -> None:
    assert choose_action(found(SAFE, RISKY), None) is SAFE


def test_any_way_that_is_open_can_be_named() -> None:
    assert choose_action(found(SAFE, RISKY), "retier") is RISKY
    assert choose_action(found(RISKY), "retier") is RISKY


@pytest.mark.parametrize(
    ("ways", "by", "told"),
    [
        ((RISKY,), None, "every available repair loses something.*Choose one: --by retier"),
        ((SAFE, RISKY), "adopt", "--by adopt is not available here; available: restore, retier"),
        ((), None, "has no action for this state: the lake is behind"),
        ((), "adopt", "--by adopt is not available here; no action is"),
    ],
)
def test_what_is_not_open_is_refused(
    ways: tuple[RepairAction, ...], by: str | None, told: str
) -> None:
    with pytest.raises(LakeRolledBack, match=told):
        choose_action(found(*ways), by)
