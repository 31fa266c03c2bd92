"""Which way a repair takes: the one that was named, or the best one if that loses nothing."""

from __future__ import annotations

import pytest

from sluice.driver.repairing import choose
from sluice.errors import LakeRolledBack
from sluice.rounds.repair import Diagnosis, Way

SAFE = Way("restore", "set main back")
RISKY = Way("retier", "copy again", ("lost for good: 3 rows",))


def found(*ways: Way) -> Diagnosis:
    return Diagnosis("db.t", False, "the lake is behind", {}, ways)


def test_the_best_way_is_taken_if_it_loses_nothing() -> None:
    assert choose(found(SAFE, RISKY), None) is SAFE


def test_any_way_that_is_open_can_be_named() -> None:
    assert choose(found(SAFE, RISKY), "retier") is RISKY
    assert choose(found(RISKY), "retier") is RISKY


@pytest.mark.parametrize(
    ("ways", "by", "told"),
    [
        ((RISKY,), None, "no way out is without loss.*--by retier"),
        ((SAFE, RISKY), "adopt", "adopt is not open; these are: restore, retier"),
        ((), None, "nothing can be done by this command.*the lake is behind"),
        ((), "adopt", "adopt is not open; there is none"),
    ],
)
def test_what_is_not_open_is_refused(ways: tuple[Way, ...], by: str | None, told: str) -> None:
    with pytest.raises(LakeRolledBack, match=told):
        choose(found(*ways), by)
