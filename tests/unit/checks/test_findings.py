"""Several checks at once: order, deadline, secrets, and what a failure does not mean."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from sluice.checks import findings
from sluice.checks.findings import (
    THREADS_MAX,
    Check,
    Finding,
    NotChecked,
    first_failure,
    run_check,
    run_checks,
)
from sluice.checks.folders import work_folder_check
from sluice.errors import ConfigurationError, NetworkError


def fails(error: Exception, **more: object) -> Check:
    def look() -> str:
        raise error

    return Check("it", look, **more)


def test_what_was_seen() -> None:
    assert run_check(Check("it", lambda: "there")) == Finding("it", True, "there")
    assert run_check(Check("it", lambda: NotChecked("far away"))) == Finding("it", None, "far away")
    assert str(Finding("it", False, "gone")) == "it: gone"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConfigurationError("x = 1: use 2"), "x = 1: use 2"),
        (NetworkError("away"), "NetworkError: away"),
        (OSError("several\n  lines"), "OSError: several lines"),
        (KeyError("unforeseen"), "KeyError: 'unforeseen'"),
    ],
)
def test_a_failure_is_one_line(error: Exception, said: str) -> None:
    found = run_check(fails(error))
    assert (found.what, found.ok, found.seen) == ("it", False, said)
    assert found.may_pass != isinstance(error, ConfigurationError)
    assert run_check(fails(error, remedy="buy one")).seen == f"{said}; buy one"


def test_a_failure_that_proves_nothing_is_not_checked() -> None:
    found = run_check(fails(OSError("away"), remedy="buy one", is_certain=False))
    assert found.ok is None
    assert found.seen == "fails on this machine, but may work where the round runs: OSError: away"


@pytest.mark.parametrize("seen", ["as geheim-1", NotChecked("as geheim-1"), OSError("as geheim-1")])
def test_secrets_are_masked(seen: str | NotChecked | Exception) -> None:
    def look() -> str | NotChecked:
        if isinstance(seen, Exception):
            raise seen
        return seen

    found = run_check(Check("s3://key:pw@bucket geheim-1", look), ["geheim-1"])
    assert found.what == "s3://***@bucket ***"
    assert found.seen.endswith("as ***")


def test_they_run_at_the_same_time_and_keep_their_order() -> None:
    both = threading.Barrier(2)

    def look() -> str:
        both.wait(30)
        return "met"

    found = run_checks([Check("a", look), Check("b", look)], timeout_s=30)
    assert found == [Finding("a", True, "met"), Finding("b", True, "met")]


def test_the_first_failure_is_the_one_that_is_told() -> None:
    found = [Finding("a", True, ""), Finding("b", None, ""), Finding("c", False, "")]
    assert first_failure([*found, Finding("d", False, "")]) == found[2]
    assert first_failure(found[:2]) is None


@pytest.fixture
def silent() -> Iterator[str]:
    """A storage that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_storage_that_hangs_keeps_nobody(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", silent)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tester")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted-secret")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    uri = "s3://bucket/work"
    started = time.monotonic()
    found = run_checks([work_folder_check(uri), Check("b", lambda: "quick")], timeout_s=0.5)
    assert time.monotonic() - started < 20
    assert found == [
        Finding(f"work folder {uri}", None, "no answer in 0.5 s"),
        Finding("b", True, "quick"),
    ]


def test_checks_without_an_answer_take_a_bounded_number_of_threads() -> None:
    answered = threading.Event()
    try:
        stuck = [Check("stuck", lambda: str(answered.wait(60)))] * (THREADS_MAX + 1)
        found = run_checks(stuck, timeout_s=0.2)
        assert {finding.ok for finding in found} == {None}
        assert found[-1].seen == f"{THREADS_MAX} earlier checks are still waiting for an answer"
        alive = [t for t in threading.enumerate() if isinstance(t, findings._CheckThread)]
        assert len(alive) <= THREADS_MAX
        assert all(thread.daemon for thread in alive), "a process ends without them"
    finally:
        answered.set()
    for thread in alive:
        thread.join(30)
    assert run_checks([Check("b", lambda: "again")]) == [Finding("b", True, "again")]
