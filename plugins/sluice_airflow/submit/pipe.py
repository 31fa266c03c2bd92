"""Owns the processes of spark-submit: reads what they print, and ends them all.

Does not import Airflow.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import psutil

from sluice.masking import without_torn_end

GRACE_S = 3.0
"""Airflow kills a task five seconds after SIGTERM."""
LINE_MAX = 16 << 10
"""Bytes of a line that are kept. The others are counted."""
CHUNK_BYTES = 64 << 10
LINGER_S = 5.0
"""How long what spark-submit has started may print on after its end."""
LOOK_MS = 500
"""Milliseconds between two looks for the end of spark-submit while it prints nothing."""

_GUARD = (
    f"trap '' TERM INT HUP; session=$1; read -r _; kill -s TERM 0; sleep {GRACE_S:.0f};"
    " for file in /proc/[0-9]*/stat; do pid=${file#/proc/}; pid=${pid%/stat};"
    ' read -r line <"$file" && set -- ${line##*) } &&'
    ' [ "$4" = "$session" ] && [ "$pid" != $$ ] && kill -s KILL "$pid"; done; kill -s KILL 0'
)
"""Waits for the end of the task, and ends its session then: Python's workers have process groups of
their own. Its argument is the session: that of its parent may be another, once that has ended. The
fourth word behind the name of a program in ``/proc`` is its session."""
_START = (
    "exec 3<&0; guard=$1; shift;"
    ' (exec /bin/sh -c "$guard" sluice-guard $$ <&3 3<&-) >/dev/null 2>&1 &'
    ' exec "$@" 3<&- </dev/null'
)
NOT_STARTED = "sluice starts spark-submit"
"""How the only line of output begins if the program cannot be run: the shell's name."""


class Leash:
    """Ties the processes of a command to this one, which may end in any way, also by SIGKILL.

    A shell in their process group waits for the end of a pipe that only this process holds. It
    costs a megabyte. :meth:`close` has the same effect, some seconds later at most.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe()

    def __enter__(self) -> Leash:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets go: what is left of the processes is ended."""
        read, write, self._read, self._write = self._read, self._write, -1, -1
        for end in (write, read):
            if end >= 0:
                os.close(end)

    @property
    def words(self) -> dict[str, Any]:
        """Arguments of ``subprocess.Popen`` for :meth:`command`."""
        return {"stdin": self._read, "start_new_session": True}

    def command(self, command: Sequence[str]) -> list[str]:
        """The command line that becomes this command, with the guard beside it."""
        return ["/bin/sh", "-c", _START, NOT_STARTED, _GUARD, *command]


def output_lines(process: subprocess.Popen[Any]) -> Iterator[str]:
    """The lines that a process and its children print, until all of them have closed the pipe.

    They end some seconds after the process, also if a child of it holds the pipe for longer. Bytes
    that are no UTF-8 are replaced, and long lines are cut: no output needs much memory.
    """
    assert process.stdout is not None
    pipe = process.stdout.fileno()  # not through its text, which has no bound and may not decode
    poll = select.poll()
    poll.register(pipe, select.POLLIN | select.POLLHUP)
    lines, until = _Lines(), 0.0
    while True:
        if poll.poll(LOOK_MS):
            chunk = os.read(pipe, CHUNK_BYTES)
            if not chunk:
                break
            yield from lines.add(chunk)
        if process.poll() is not None:
            until = until or time.monotonic() + LINGER_S
            if time.monotonic() >= until:
                break
    yield from lines.end()


class _Lines:
    """Cuts chunks of bytes into lines of text."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._dropped = 0

    def add(self, chunk: bytes) -> Iterator[str]:
        *ended, left = chunk.replace(b"\r", b"\n").split(b"\n")
        for part in ended:
            self._hold(part)
            yield self._take()
        self._hold(left)

    def end(self) -> Iterator[str]:
        if self._held:
            yield self._take()

    def _hold(self, part: bytes) -> None:
        room = LINE_MAX - len(self._held)
        self._held += part[:room]
        self._dropped += max(0, len(part) - room)

    def _take(self) -> str:
        text = self._held.decode("utf-8", errors="replace")
        if self._dropped:
            kept = without_torn_end(text)
            dropped = self._dropped + len(text.encode()) - len(kept.encode())
            text = f"{kept}... ({dropped:,} more bytes)"
        self._held.clear()
        self._dropped = 0
        return text


def end_processes(process: subprocess.Popen[Any]) -> None:
    """Ends a process that leads its session, and all that it has started: politely, then for sure.

    It may be called again, and also after the end of the process, for what is left of its session.
    """
    left = _started_by(process)
    for sent, wait_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, 1.0)):
        if process.poll() is not None:
            break
        _send(process.pid, sent)
        with suppress(subprocess.TimeoutExpired):
            process.wait(wait_s)
    _send(process.pid, signal.SIGKILL)  # those of its group that survived SIGTERM, and the guard
    for one in {*left, *_in_session(process.pid)}:
        with suppress(psutil.Error):
            one.kill()  # unless its number is another process's by now


def _send(group: int, sent: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, sent)


def _started_by(process: subprocess.Popen[Any]) -> list[psutil.Process]:
    """The descendants of a process, also those in sessions of their own."""
    try:
        found: list[psutil.Process] = psutil.Process(process.pid).children(recursive=True)
    except psutil.Error:
        return []
    return found if process.poll() is None else []


def _in_session(leader: int) -> list[psutil.Process]:
    """The processes of a session: Python's workers are in groups of their own."""
    found = []
    for pid in psutil.pids():
        with suppress(OSError, psutil.Error):
            if os.getsid(pid) == leader:
                found.append(psutil.Process(pid))
    return found
