"""A check, what it found, and a way to run several with a deadline."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sluice.checks.transient import may_pass
from sluice.clock import Clock, SystemClock
from sluice.errors import ConfigurationError
from sluice.masking import mask, reason_text

TIMEOUT_S = 5.0
"""A user, or a run, waits this long for all checks together."""
THREADS_MAX = 32
"""Most checks under way in one process. A storage that never answers keeps its thread."""

_free = threading.BoundedSemaphore(THREADS_MAX)


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, whether all is well (None: it was not checked), and what was seen."""

    what: str
    ok: bool | None
    seen: str
    may_pass: bool = False
    """Of a failure: the same check may succeed later, as a network fails for a moment."""

    def __str__(self) -> str:
        return f"{self.what}: {self.seen}"


@dataclass(frozen=True, slots=True)
class NotChecked:
    """The answer of a check that cannot tell from this machine, and why."""

    why: str


@dataclass(frozen=True, slots=True)
class Check:
    """One thing to look at."""

    what: str
    look: Callable[[], str | NotChecked]
    """Answers what it saw. Whatever it raises is a failure."""
    remedy: str = ""
    """What to do about a failure, for messages that do not say it themselves."""
    is_certain: bool = True
    """Whether a failure here fails the round, too. If not, a failure counts as not checked."""


def run_check(check: Check, secrets: Iterable[str] = ()) -> Finding:
    """Runs one check, however long it takes; secrets are masked in the finding."""
    hidden = tuple(secrets)
    what = mask(check.what, hidden)
    try:
        seen = check.look()
    except Exception as error:  # storage libraries raise errors of their own
        said = _line(_text(error), hidden)
        if not check.is_certain:
            return Finding(
                what, None, f"fails on this machine, may work where it is needed: {said}"
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
    clock: Clock | None = None,
) -> list[Finding]:
    """Runs all checks at once, each in a thread; answers their findings in the same order.

    A check without an answer after ``timeout_s`` seconds is not checked. Its thread is left behind:
    it ends with the process, or when the storage answers.
    """
    clock, hidden = clock or SystemClock(), tuple(secrets)
    deadline_s = clock.monotonic_s() + timeout_s
    looks = [_begin(check, hidden) for check in checks]
    findings = []
    for check, look in zip(checks, looks, strict=True):
        if look is None:
            why = f"{THREADS_MAX} earlier checks have had no answer yet"
        else:
            look.join(max(0.0, deadline_s - clock.monotonic_s()))
            if look.finding is not None:
                findings.append(look.finding)
                continue
            why = f"no answer in {timeout_s:g} s"
        findings.append(Finding(mask(check.what, hidden), None, why))
    return findings


def first_failure(findings: Iterable[Finding]) -> Finding | None:
    """The first that is not well; one that lasts goes before one that may pass.

    Checks are listed with causes before what follows from them.
    """
    failed = [finding for finding in findings if finding.ok is False]
    return min(failed, key=lambda finding: finding.may_pass, default=None)


class _Look(threading.Thread):
    """One check under way; ``finding`` is set by its thread, once."""

    def __init__(self, check: Check, secrets: Sequence[str]) -> None:
        super().__init__(name="sluice-check", daemon=True)
        self.finding: Finding | None = None
        self._check, self._secrets = check, secrets

    def run(self) -> None:
        try:
            self.finding = run_check(self._check, self._secrets)
        finally:
            _free.release()


def _begin(check: Check, secrets: Sequence[str]) -> _Look | None:
    """None if too many are under way."""
    if not _free.acquire(blocking=False):
        return None
    look = _Look(check, secrets)
    try:
        look.start()
    except BaseException:
        _free.release()
        raise
    return look


def _text(error: Exception) -> str:
    """A wrong setting says what to do; of other errors the class tells something, too."""
    if isinstance(error, ConfigurationError):
        return str(error)
    return f"{type(error).__name__}: {error}"


def _line(text: str, secrets: Iterable[str]) -> str:
    return " ".join(reason_text(text, secrets).split())
