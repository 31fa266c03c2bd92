"""A pool whose hanging calls do not keep the program running."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from sluice.client.connection.daemon_pool import DaemonPool
from tests.support.programs.processes import wait_for


def test_calls_share_few_threads_that_end_when_nothing_waits() -> None:
    pool, goes_on = DaemonPool(2, "few"), threading.Event()

    def alive() -> int:
        return sum(one.name == "few" for one in threading.enumerate())

    results = [pool.submit(lambda: goes_on.wait(60)) for _ in range(6)]
    wait_for("two to begin", lambda: sum(one.running() for one in results) == 2)
    assert alive() == 2
    assert results[-1].cancel()
    goes_on.set()
    assert all(one.result(60) for one in results[:-1])
    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 // 0).result(60)
    wait_for("the threads to end", lambda: alive() == 0)


def test_a_call_that_hangs_does_not_keep_python_running() -> None:
    program = (
        "import threading; from sluice.client.connection.daemon_pool import DaemonPool;"
        "begun = threading.Event();"
        "DaemonPool(1, 'x').submit(lambda: begun.set() or threading.Event().wait());"
        "begun.wait()"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
