"""A status says how the last round that deleted keys did so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluice.model import KeptStatus, TieringRound
from sluice.statuses.outcomes import ERROR_CHARS_MAX, after_failure, after_success

WHY = "equality deletes (tiering.position_lookup_bytes is 0)"
BEFORE = KeptStatus(rounds=3, deletes_as="positions")


def ended(details: TieringRound | None, *, failed: bool = False) -> KeptStatus:
    """The status after a round that had these details."""
    if not failed:
        return replace(BEFORE, **after_success(BEFORE, 9_000, 1_000, details))
    waits = {"freshness_ms": 60_000, "backoff_ms": 10_000}
    return replace(BEFORE, **after_failure(BEFORE, 9_000, "no", details=details, **waits))


@pytest.mark.parametrize("failed", [False, True], ids=["finished", "failed after its commit"])
def test_a_round_that_deleted_keys_says_how(failed: bool) -> None:
    details = TieringRound(keys_deleted=5, deletes_as=WHY)
    assert ended(details, failed=failed).deletes_as == WHY


@pytest.mark.parametrize(
    "details", [None, TieringRound(), TieringRound(rows_written=7, keys_deleted=0)]
)
def test_a_round_that_deleted_none_changes_nothing(details: TieringRound | None) -> None:
    assert ended(details).deletes_as == "positions"
    assert ended(details, failed=True).deletes_as == "positions"


def test_a_worker_of_an_older_version_does_not_say_how() -> None:
    assert ended(TieringRound(keys_deleted=5)).deletes_as is None


def test_a_long_reason_is_cut() -> None:
    long = f"equality deletes ({'x' * 10_000})"
    assert ended(TieringRound(deletes_as=long)).deletes_as == long[:ERROR_CHARS_MAX]
