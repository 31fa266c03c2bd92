"""Which action a repair applies: the named one, or the best one if that loses nothing."""

from __future__ import annotations

import pytest

from sluice.driver.repairing import choose_action
from sluice.errors import ConfigurationError, LakeRolledBack
from sluice.rounds.diagnosis import Diagnosis, RepairAction

SAFE = RepairAction("restore", "set main back")
RISKY = RepairAction("retier", "copy again", ("lost for good: 3 rows",))


def found(*actions: RepairAction) -> Diagnosis:
    return Diagnosis("db.t", False, "the lake is behind", {}, actions)


def test_the_first_repair_is_chosen_if_it_loses_nothing() -> None:
    assert choose_action(found(SAFE, RISKY), None) is SAFE


def test_every_available_repair_can_be_named() -> None:
    assert choose_action(found(SAFE, RISKY), "retier") is RISKY
    assert choose_action(found(RISKY), "retier") is RISKY


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
