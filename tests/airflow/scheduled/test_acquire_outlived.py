"""Acquire that works on after its run has ended: Airflow kills a marked task seconds later."""

from __future__ import annotations

import pytest

from sluice.errors import StoppedByUser
from sluice.model import TablePath
from sluice_airflow.acquire.acquire import acquire
from sluice_airflow.outcomes.settle import drop
from tests.airflow.claims.test_claims import JOB, Run, waiting
from tests.airflow.claims.test_claims import run as run


def test_what_acquire_claims_after_drop_lease_is_released(run: Run) -> None:
    """Both tables are claimed, drop_lease releases them, and they are due again at once."""
    paths = waiting(run, "orders", "customers")
    work_uri = f"file://{run.work}"

    def drop_meanwhile(path: TablePath) -> bool:
        drop(run.client, work_uri, JOB, acquired=False)
        return False

    with pytest.raises(StoppedByUser, match=f"the run of {JOB} has ended") as error:
        acquire(run.client, run.connection_, JOB, ["*"], 10, is_wanted=drop_meanwhile)
    assert not error.value.retryable
    run.nothing_is_held()
    for path in paths:
        assert (run.status(path).status, run.status(path).failures) == ("Pending", 0)


def test_a_cleared_run_claims_again(run: Run) -> None:
    """The end of its run before says nothing about this one."""
    [path] = waiting(run, "orders")
    drop(run.client, f"file://{run.work}", JOB, acquired=False)
    assert [entry["table"] for entry in run.acquire()] == [str(path)]
    assert run.drop() == [
        (str(path), "released", "the run ended before the tiering of the table began")
    ]
