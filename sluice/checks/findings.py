"""Checks, their findings, and a function that runs several with a deadline."""

from __future__ import annotations

import errno
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sluice.clock import SystemClock
from sluice.errors import ConfigurationError, SluiceError
from sluice.masking import mask, reason_text

_LASTING = (
    FileExistsError,
    FileNotFoundError,
    ImportError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
    TypeError,
    ValueError,
)
# S3 and other storages report permanent failures only as text.
_REFUSED = re.compile(
    r"access.?denied|access.?key.?id|account.?problem|authorization|forbidden|HTTP status 40[0134]"
    r"|no.?such.?bucket|not.?authorized|permission denied|signature.?does.?not.?match|unauthorized",
    re.IGNORECASE,
)


def may_pass(error: BaseException) -> bool:
    """False if something is missing, refused or set wrongly; True for network failures."""
    if isinstance(error, SluiceError):
        return error.retryable
    if isinstance(error, _LASTING) or getattr(error, "errno", None) == errno.EROFS:
        return False
    return _REFUSED.search(str(error)) is None


TIMEOUT_S = 5.0
"""Default deadline in seconds for all checks together."""
THREADS_MAX = 32
"""Maximum number of running checks in a process. If a storage never answers, its thread stays."""

_free = threading.BoundedSemaphore(THREADS_MAX)


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check: its name, whether it passed (None: not checked), and details."""

    what: str
    ok: bool | None
    seen: str
    may_pass: bool = False
    """Whether a failure is transient: the same check may succeed later."""
    result: str = ""
    """A word that says more than ``ok`` does; empty: there is none."""

    def __str__(self) -> str:
        return f"{self.what}: {self.seen}"


@dataclass(frozen=True, slots=True)
class NotChecked:
    """The answer of a check that cannot be made from this machine, with the reason."""

    why: str


class CertainFailure(ConfigurationError):
    """A failure that does not depend on the machine, also of a check that is not certain."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its name and the function that makes it."""

    what: str
    run: Callable[[], str | NotChecked]
    """Returns details of a success; every exception is a failure."""
    remedy: str = ""
    """What to do about a failure, if the exception does not say it."""
    is_certain: bool = True
    """Whether a failure here implies a failing round. If not, it counts as not checked."""


def line_of(error: Exception, secrets: Iterable[str] = ()) -> str:
    """An error as one line of a finding, without secrets."""
    return _line(_text(error), tuple(secrets))


def run_check(check: Check, secrets: Iterable[str] = ()) -> Finding:
    """Runs one check without a deadline; masks secrets in the finding."""
    hidden = tuple(secrets)
    what = mask(check.what, hidden)
    try:
        seen = check.run()
    except Exception as error:  # storage libraries raise errors of their own
        said = _line(_text(error), hidden)
        if not check.is_certain and not isinstance(error, CertainFailure):
            return Finding(
                what, None, f"fails on this machine, but may work where the round runs: {said}"
            )
        told = f"{said}; {check.remedy}" if check.remedy else said
        return Finding(what, False, told, may_pass(error))
    if isinstance(seen, NotChecked):
        return Finding(what, None, _line(seen.why, hidden))
    return Finding(what, True, _line(seen, hidden))


def run_checks(
    checks: Sequence[Check],
    secrets: Iterable[str] = (),
    timeout_s: float = TIMEOUT_S,
) -> list[Finding]:
    """Runs all checks at once, each in a thread; returns their findings in the same order.

    A check without an answer after ``timeout_s`` seconds counts as not checked. Its thread ends
    when the storage answers, or with the process.
    """
    clock, hidden = SystemClock(), tuple(secrets)
    deadline_s = clock.monotonic_s() + timeout_s
    threads = [_start(check, hidden) for check in checks]
    findings = []
    for check, thread in zip(checks, threads, strict=True):
        if thread is None:
            why = f"{THREADS_MAX} earlier checks are still waiting for an answer"
        else:
            thread.join(max(0.0, deadline_s - clock.monotonic_s()))
            if thread.finding is not None:
                findings.append(thread.finding)
                continue
            why = f"no answer in {timeout_s:g} s"
        findings.append(Finding(mask(check.what, hidden), None, why))
    return findings


def first_failure(findings: Iterable[Finding]) -> Finding | None:
    """The first failure; permanent failures take precedence over transient ones.

    Checks are listed so that causes come before their consequences.
    """
    failed = [finding for finding in findings if finding.ok is False]
    return min(failed, key=lambda finding: finding.may_pass, default=None)


class _CheckThread(threading.Thread):
    """A running check; its thread sets ``finding`` once."""

    def __init__(self, check: Check, secrets: Sequence[str]) -> None:
        super().__init__(name="sluice-check", daemon=True)
        self.finding: Finding | None = None
        self._check, self._secrets = check, secrets

    def run(self) -> None:
        try:
            self.finding = run_check(self._check, self._secrets)
        finally:
            _free.release()


def _start(check: Check, secrets: Sequence[str]) -> _CheckThread | None:
    """Starts a check; returns None if too many are running."""
    if not _free.acquire(blocking=False):
        return None
    thread = _CheckThread(check, secrets)
    try:
        thread.start()
    except BaseException:
        _free.release()
        raise
    return thread


def _text(error: Exception) -> str:
    """The text of an error; with its class, unless it is a wrong setting."""
    if isinstance(error, ConfigurationError):
        return str(error)
    return f"{type(error).__name__}: {error}"


def _line(text: str, secrets: Iterable[str]) -> str:
    return " ".join(reason_text(text, secrets).split())
