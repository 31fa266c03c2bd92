"""Failpoints: named places in the code where a test can kill, stop or fail the process.

``SLUICE_FAILPOINTS=name=action,...`` arms them.

Actions: ``kill`` (SIGKILL), ``stop`` (SIGSTOP), ``raise`` (RuntimeError), each optionally with
``@N`` for the Nth passage (``server.append.before_write=kill@3``). The environment is read once.
If nothing is set, a failpoint costs one lookup in an empty dictionary.
"""

from __future__ import annotations

import os
import signal
import threading

ENVIRONMENT_KEY = "SLUICE_FAILPOINTS"

_lock = threading.Lock()  # guards _passages
_passages: dict[str, int] = {}


def parse(text: str) -> dict[str, tuple[str, int]]:
    """Parses ``name=action@N,...`` to name -> (action, N).

    :raises ValueError: an entry does not have that form, or its action is unknown.
    """
    armed: dict[str, tuple[str, int]] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, equals, action = entry.partition("=")
        action, _, passage = action.partition("@")
        if not equals or action not in ("kill", "stop", "raise"):
            raise ValueError(
                f"{ENVIRONMENT_KEY}: {entry!r} does not have the form NAME=kill|stop|raise[@N]"
            )
        armed[name] = (action, int(passage or 1))
    return armed


_armed = parse(os.environ.get(ENVIRONMENT_KEY, ""))


def failpoint(name: str) -> None:
    """Runs the action that the environment sets for this failpoint, usually none."""
    if name not in _armed:
        return
    action, wanted = _armed[name]
    with _lock:
        _passages[name] = passage = _passages.get(name, 0) + 1
    if passage != wanted:
        return
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        raise RuntimeError(f"failpoint {name}")
