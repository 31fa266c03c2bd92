"""Until when SIGTERM waits for a commit."""

from __future__ import annotations

import signal
from contextlib import ExitStack

import pytest

from sluice.driver.local import CommitObserver
from sluice.model import Claim, TablePath
from sluice.rounds.values.progress import NoProgress
from sluice.stop_signals import Terminated, sigterm_raises

CLAIM = Claim(7, TablePath("shop", "orders"), 1, 1)
RELEASED = ", shop.orders is released and due at once"


def test_sigterm_waits_for_the_commit_of_an_adoption_and_not_for_the_copy_after_it() -> None:
    with sigterm_raises(), ExitStack() as deferred:
        observer = CommitObserver(NoProgress(), deferred)
        for phase in ("recover", "prepare"):
            observer.phase(phase)
        signal.raise_signal(signal.SIGTERM)  # arrives, and waits
        for phase in ("lake_commit", "fluss_commit"):
            observer.phase(phase)
        with pytest.raises(Terminated):
            observer.phase("plan")
    repaired = ": the repair was committed, new rows were not"
    assert observer.effect(CLAIM, released=True) == repaired + RELEASED
    assert observer.effect(CLAIM, released=False) == repaired


def test_sigterm_interrupts_a_copy_and_waits_for_the_commit_after_it() -> None:
    with sigterm_raises(), ExitStack() as deferred:
        observer = CommitObserver(NoProgress(), deferred)
        for phase in ("recover", "prepare", "lake_commit", "fluss_commit", "plan", "copy"):
            observer.phase(phase)
        with pytest.raises(Terminated):
            signal.raise_signal(signal.SIGTERM)
        assert (
            observer.effect(CLAIM, released=False)
            == ": the repair was committed, new rows were not"
        )
    with pytest.raises(Terminated), sigterm_raises(), ExitStack() as deferred:
        observer = CommitObserver(NoProgress(), deferred)
        for phase in ("plan", "copy", "prepare"):
            observer.phase(phase)
        signal.raise_signal(signal.SIGTERM)
        observer.phase("lake_commit")


def test_a_round_without_a_commit_has_committed_nothing() -> None:
    with sigterm_raises(), ExitStack() as deferred:
        observer = CommitObserver(NoProgress(), deferred)
        for phase in ("recover", "plan", "copy"):
            observer.phase(phase)
            assert observer.effect(CLAIM, released=True) == ": nothing was committed" + RELEASED
        observer.phase("prepare")
        unknown = " during the commit: the next round finds out whether the lake has the rows"
        assert observer.effect(CLAIM, released=False) == unknown
