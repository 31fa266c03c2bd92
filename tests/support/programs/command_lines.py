"""Notes the command lines of all processes of this machine while a block runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

_LOOK_S = 0.2
_END_S = 30


@contextmanager
def command_lines() -> Iterator[set[str]]:
    """The command lines that were seen so far, each once."""
    seen: set[str] = set()
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(_LOOK_S):
            for process in psutil.process_iter(["cmdline"]):
                words = process.info["cmdline"]  # type: ignore[attr-defined]
                seen.add(" ".join(words or ()))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join(_END_S)
