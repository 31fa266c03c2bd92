"""Makes the reasons of failed rounds from errors: with the deepest cause, without secrets.

Java exceptions are recognised by the attribute ``java_exception`` of an error: py4j's own, or the
lake's. This module does not import py4j.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from sluice.errors import SluiceError
from sluice.model import Reason
from sluice.rounds.records.result import RoundFailure
from sluice.rounds.values.phases import seconds_of

_CAUSES_MAX = 50
_TRACE_LINE = re.compile(
    r"^\s+at [\w.$<>/]+\(|^\s*\.\.\. \d+ (?:more|common frames)|^\s*File \".*\", line \d+"
    r"|^Driver stacktrace:|^JVM stacktrace:|^Caused by: |^Traceback \(most recent call last\):"
)


def failure_of(error: BaseException, secrets: Iterable[str] = ()) -> RoundFailure:
    """Everything that is known of a failed round, from the error that it raised."""
    committed = error.details.get("committed") if isinstance(error, SluiceError) else None
    return RoundFailure(reason_of(error, secrets), seconds_of(error), committed)


def reason_of(error: BaseException, secrets: Iterable[str] = ()) -> Reason:
    """Class, short text and deepest useful cause of an error, safe to show and to store.

    The failure of a split carries its reason, which an executor made.

    :param secrets: values to mask wherever they occur: ``Config.secrets()``.
    """
    if isinstance(error, SluiceError) and isinstance(error.details.get("reason"), Reason):
        made: Reason = error.details["reason"]
        return made
    chain = _causes(error)
    kind, message = chain[0]
    useful = [(k, m) for k, m in chain if m] or chain
    deep_kind, deep_message = useful[-1]
    deepest = f"{deep_kind}: {deep_message}" if deep_message else deep_kind
    if not isinstance(error, SluiceError):
        text = deepest
    elif deep_message and deep_message not in message:
        text = f"{message}; caused by {deepest}"
    else:
        text = message or kind
    retryable = isinstance(error, SluiceError) and error.retryable
    return Reason.from_text(text, secrets, kind=kind, deepest_cause=deepest, retryable=retryable)


def without_trace(text: str) -> str:
    """The message of an exception without a stack trace that it may contain."""
    kept = []
    for line in text.splitlines():
        if _TRACE_LINE.match(line):
            break
        kept.append(line.strip())
    words = " ".join(line for line in kept if line)
    if not words and text.strip():  # a Python traceback: its last line is the exception
        return text.strip().splitlines()[-1].strip()
    return words


def _causes(error: BaseException) -> list[tuple[str, str]]:
    """(class, message) from the error down to its deepest cause, Java's causes included."""
    found: list[tuple[str, str]] = []
    current: BaseException | None = error
    while current is not None and len(found) < _CAUSES_MAX:
        java = getattr(current, "java_exception", None)
        if java is not None:  # Java's causes are the deepest
            return [*found, *(_java_causes(java) or [(type(current).__name__, "")])]
        found.append((type(current).__name__, without_trace(str(current))))
        following = current.__cause__
        if following is None and not current.__suppress_context__:
            following = current.__context__
        current = following
    return found


def _java_causes(throwable: Any) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    try:
        while throwable is not None and len(found) < _CAUSES_MAX:
            name = str(throwable.getClass().getName()).rpartition(".")[2]
            found.append((name, without_trace(throwable.getMessage() or "")))
            throwable = throwable.getCause()
    except Exception:  # the JVM may have died: return what was found so far
        return found
    return found
