"""Why something failed, as a person wants to read it: short, the deepest cause, no secrets.

A Java exception that came through py4j is recognised by its ``java_exception``; nothing of py4j is
needed here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from sluice.errors import SluiceError
from sluice.masking import reason_text
from sluice.rounds.files import RoundFailure

_CAUSES_MAX = 50
_TRACE_LINE = re.compile(
    r"^\s+at [\w.$<>/]+\(|^\s*\.\.\. \d+ (?:more|common frames)|^\s*File \".*\", line \d+"
    r"|^Driver stacktrace:|^Caused by: |^Traceback \(most recent call last\):"
)


def failure_of(error: BaseException, secrets: Iterable[str] = ()) -> RoundFailure:
    """Class, short reason and deepest useful cause of an error, fit to be shown and stored.

    :param secrets: values that must not be seen whatever they look like: ``Config.secrets()``.
    """
    chain = _causes(error)
    kind, message = chain[0]
    useful = [(k, m) for k, m in chain if m] or chain
    deep_kind, deep_message = useful[-1]
    deepest = f"{deep_kind}: {deep_message}" if deep_message else deep_kind
    if not isinstance(error, SluiceError):
        reason = deepest
    elif deep_message and deep_message not in message:
        reason = f"{message}; caused by {deepest}"
    else:
        reason = message or kind
    retryable = False
    if isinstance(error, SluiceError):
        # A split's failure has come as text; it says itself what lay below it.
        retryable = bool(error.details.get("retryable", error.retryable))
        deepest = str(error.details.get("deepest_cause", deepest))
    return RoundFailure(
        kind, reason_text(reason, secrets), reason_text(deepest, secrets), retryable
    )


def without_trace(text: str) -> str:
    """The message of an exception without the stack trace that some put into it."""
    kept = []
    for line in text.splitlines():
        if _TRACE_LINE.match(line):
            break
        kept.append(line.strip())
    words = " ".join(line for line in kept if line)
    if not words and text.strip():  # a Python traceback: what was raised is its last line
        return text.strip().splitlines()[-1].strip()
    return words


def _causes(error: BaseException) -> list[tuple[str, str]]:
    """(class, message) from the error down to its deepest cause, Java's causes included."""
    found: list[tuple[str, str]] = []
    current: BaseException | None = error
    while current is not None and len(found) < _CAUSES_MAX:
        java = getattr(current, "java_exception", None)
        if java is None:
            found.append((type(current).__name__, without_trace(str(current))))
        else:
            found.extend(_java_causes(java) or [(type(current).__name__, "")])
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
    except Exception:  # the JVM may be gone: what was found so far must do
        return found
    return found
