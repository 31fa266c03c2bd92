"""How often the kernel has ended a process because memory was full. Does not import Airflow."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path


class OomKills:
    """Counts the kills since it was made. Only Linux tells it."""

    def __init__(self, root: Path = Path("/")) -> None:
        """:param root: where ``proc`` and ``sys`` are."""
        self._root = root
        self._before = self._counters()

    def full(self) -> str | None:
        """Which memory was full when a process was killed. Empty: none was. None: not known."""
        found = self._counters()
        for where, number in found.items():
            if number > self._before.get(where, number):
                return where
        return "" if found else None

    def _counters(self) -> dict[str, int]:
        found = {}
        for file in self._cgroup_files():
            if (number := _oom_kill(file)) is not None:
                found["the memory limit of its control group"] = number
                break
        if (number := _oom_kill(self._root / "proc/vmstat")) is not None:
            found["the memory of the machine"] = number
        return found

    def _cgroup_files(self) -> list[Path]:
        """The files with the counter of this process's control group, of both versions."""
        found = []
        with suppress(OSError):
            for line in (self._root / "proc/self/cgroup").read_text().splitlines():
                number, controllers, path = line.split(":", 2)
                base = self._root / "sys/fs/cgroup"
                if "memory" in controllers.split(","):
                    base, name = base / "memory", "memory.oom_control"
                elif number == "0":
                    name = "memory.events"
                else:
                    continue
                # In a container, the path may be that of the machine: its own group is the root.
                found += [base / path.lstrip("/") / name, base / name]
        return found


def _oom_kill(file: Path) -> int | None:
    with suppress(OSError):
        if found := re.search(r"^oom_kill (\d+)$", file.read_text(), re.MULTILINE):
            return int(found[1])
    return None
