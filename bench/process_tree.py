"""`python -m bench.process_tree FILE COMMAND ...`: writes the CPU seconds of the command to FILE.

Includes its child processes, and those that outlive their parent, such as PySpark's daemon: this
process becomes the parent of every orphan below it (Linux), and waits for all of them. That is not
enough: PySpark's daemon ignores the signal of ended children, so Linux forgets what its workers
spent, which is all of the copy. Their CPU seconds are read every few milliseconds, and the last
reading counts: of a worker that lives for a tenth of a second, a tenth may be missed.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_LOOK_S = 0.02
_TICKS = os.sysconf("SC_CLK_TCK")


class Forgotten:
    """What processes spent whose parents ignore their end, by process id."""

    def __init__(self) -> None:
        self.cpu_s: dict[int, float] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stopped.wait(_LOOK_S):
            parents = [os.getpid()]
            while parents:
                parent = parents.pop()
                with suppress(OSError):  # it has ended
                    children = _children(parent)
                    parents += children
                    if children and _ignores_children(parent):
                        for child in children:
                            self._read(child)

    def _read(self, pid: int) -> None:
        with suppress(OSError):
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            self.cpu_s[pid] = sum(map(int, words[11:15])) / _TICKS  # with its own children


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def _ignores_children(pid: int) -> bool:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigIgn:"):
            return bool(int(line.split()[1], 16) >> (signal.SIGCHLD - 1) & 1)
    return False


def main(target: str, command: list[str]) -> int:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "cannot become the parent of orphaned processes")
    forgotten = Forgotten()
    started = time.monotonic()
    process = subprocess.Popen(command)
    forgotten.start()
    reaped: dict[int, float] = {}
    wall_s, code = 0.0, 0
    while True:
        try:
            pid, status, used = os.wait4(-1, 0)
        except ChildProcessError:
            break
        reaped[pid] = used.ru_utime + used.ru_stime  # with the children that it waited for
        if pid == process.pid:
            wall_s = time.monotonic() - started
            code = process.returncode = os.waitstatus_to_exitcode(status)
    forgotten.stop()
    cpu_s = sum({**forgotten.cpu_s, **reaped}.values())  # some outlived a parent that ignores them
    found = {"cpu_s": cpu_s, "wall_s": wall_s}
    Path(target).write_text(json.dumps(found), encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
