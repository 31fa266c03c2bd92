"""A signal ends the waiting whatever the process is doing when it arrives."""

from __future__ import annotations

import subprocess
import sys

import pytest

SIGNAL_AT_EACH_LINE = """
import signal, sys
from sluice.stop_signals import StopSignals

def wait(signal_at):
    lines = 0
    def trace(frame, event, argument):
        nonlocal lines
        lines += event == "line"
        if event == "line" and lines == signal_at:
            signal.raise_signal(signal.SIGTERM)
        return trace
    stop = StopSignals()
    if signal_at == 0:
        signal.raise_signal(signal.SIGINT)
    sys.settrace(trace)
    stop.wait()
    sys.settrace(None)
    return lines

for line in range(1, wait(0) + 1):
    wait(line)
print("heard")
"""

SIGNAL_AT_ANY_TIME = """
import os, random, signal, threading, time
from sluice.stop_signals import StopSignals

go = threading.Semaphore(0)

def send():
    for _ in range(1_000):
        go.acquire()
        time.sleep(random.random() / 20_000)
        os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=send, daemon=True).start()
for _ in range(1_000):
    stop = StopSignals()
    go.release()
    stop.wait()
    os.close(stop._read)
    os.close(signal.set_wakeup_fd(-1))
print("heard")
"""


@pytest.mark.parametrize("script", [SIGNAL_AT_EACH_LINE, SIGNAL_AT_ANY_TIME])
def test_it_is_heard(script: str) -> None:
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert (done.stdout, done.stderr) == ("heard\n", "")
