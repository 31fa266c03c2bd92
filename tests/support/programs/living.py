"""The system's processes by what they were told.

A process may end between being listed and being asked, so all of it is read in one look.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class Living:
    """What a process was when it was looked at; it need not live any more."""

    pid: int
    name: str
    command: tuple[str, ...]


def living(of: Callable[[Mapping[str, str]], bool]) -> list[Living]:
    """Processes with variables that ``of`` accepts; zombies and those of other users have none."""
    found = []
    for process in psutil.process_iter(["environ", "name", "cmdline"]):
        seen = process.info  # type: ignore[attr-defined]
        if seen["environ"] and of(seen["environ"]):
            found.append(Living(process.pid, seen["name"] or "", tuple(seen["cmdline"] or ())))
    return found


def lives(process: psutil.Process | int) -> bool:
    """Whether it, or the one of that number, still runs; a zombie does not."""
    try:
        process = psutil.Process(process) if isinstance(process, int) else process
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
