"""The CPU time of one thing that a test does, beside whatever else its process does."""

from __future__ import annotations

import time
from collections.abc import Callable

TIMES = 5


def least_cpu_s(do: Callable[[], object]) -> float:
    """CPU seconds of this thread for ``do``, the least of five times.

    A garbage collection of all that earlier tests of the worker have left takes up to a second, in
    whichever thread it begins. It does not begin in each of five times.
    """
    found = []
    for _ in range(TIMES):
        began_s = time.thread_time()
        do()
        found.append(time.thread_time() - began_s)
    return min(found)
