"""A status keeps how large the lake table was at the last round that told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluice.model import KeptStatus, TieringRound
from sluice.statuses.outcomes import after_failure, after_success

BEFORE = KeptStatus(lake_rows=5, lake_files=2, lake_bytes=700)


def size(status: KeptStatus) -> tuple[int | None, ...]:
    return status.lake_rows, status.lake_files, status.lake_bytes


def after(details: TieringRound | None, *, failed: bool) -> KeptStatus:
    if not failed:
        return replace(BEFORE, **after_success(BEFORE, 9_000, 1_000, details))
    waits = {"freshness_ms": 60_000, "backoff_ms": 10_000}
    return replace(BEFORE, **after_failure(BEFORE, 9_000, "no", details=details, **waits))


@pytest.mark.parametrize("failed", [False, True], ids=["finished", "failed after its commit"])
def test_a_round_tells_the_size(failed: bool) -> None:
    told = TieringRound(lake_rows=0, lake_files=0, lake_bytes=0)
    assert size(after(told, failed=failed)) == (0, 0, 0)
    assert size(after(TieringRound(lake_rows=9), failed=failed)) == (9, 2, 700)


@pytest.mark.parametrize("details", [None, TieringRound(rows_written=3)])
@pytest.mark.parametrize("failed", [False, True])
def test_a_worker_that_does_not_tell_changes_nothing(
    details: TieringRound | None, failed: bool
) -> None:
    assert size(after(details, failed=failed)) == (5, 2, 700)
