"""Servers that are programs: started with a log, waited for, and ended with all their children."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

START_S = 180.0
STOP_S = 20.0
# Ends with the pipe from the tests, however they died, and takes the server along.
_WATCHDOG = """import os, signal, sys
sys.stdin.read()
try:
    os.killpg(int(sys.argv[1]), signal.SIGKILL)
except ProcessLookupError:
    pass
"""


@contextmanager
def running(
    command: Sequence[str],
    log: Path,
    answers: Callable[[], bool],
    *,
    env: Mapping[str, str] | None = None,
    **arguments: Any,
) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a program, waits until ``answers()``, and ends it and its children with the block.

    :param log: receives the output.
    :param env: added to this process's environment.
    :raises AssertionError: it ended, or did not answer in time; with the end of the log.
    """
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **(env or {})},
            process_group=0,
            **arguments,
        )
    watchdog = subprocess.Popen(
        [sys.executable, "-S", "-c", _WATCHDOG, str(process.pid)],
        stdin=subprocess.PIPE,
        process_group=0,  # Ctrl-C is for the tests
    )
    try:
        _wait(process, log, answers)
        yield process
    finally:
        _end(process)
        watchdog.kill()  # before the number of the group can be another one's
        watchdog.communicate()


def _wait(process: subprocess.Popen[bytes], log: Path, answers: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_S
    while not answers():
        said = log.read_text(errors="replace")[-3000:]
        assert process.poll() is None, f"{process.args!r} ended with {process.returncode}:\n{said}"
        assert time.monotonic() < deadline, f"{process.args!r} does not answer:\n{said}"
        time.sleep(0.1)


def _end(process: subprocess.Popen[bytes]) -> None:
    for how in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):  # the group may live on without its leader
            os.killpg(process.pid, how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
    assert process.returncode is not None, f"{process.args!r} cannot be ended"


def http_answers(url: str) -> bool:
    """Whether a server answers at all, with whatever status."""
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True
