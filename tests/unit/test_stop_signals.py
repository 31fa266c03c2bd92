"""A signal ends waiting and work, whatever the process is doing when it arrives."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

import pytest

from sluice.stop_signals import Terminated, signals_deferred, sigterm_raises

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


def test_sigterm_raises_once_when_it_is_sent_twice_at_once() -> None:
    with sigterm_raises():
        with pytest.raises(Terminated):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_deferred_signal_is_handled_at_the_end_of_the_block() -> None:
    done = []
    with pytest.raises(Terminated), sigterm_raises(), signals_deferred():
        signal.raise_signal(signal.SIGTERM)
        done.append("after SIGTERM")
        signal.raise_signal(signal.SIGINT)
        done.append("after Ctrl-C")
    assert done == ["after SIGTERM", "after Ctrl-C"]
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_second_ctrl_c_is_not_deferred() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), signals_deferred():
        signal.raise_signal(signal.SIGINT)
        done.append("after the first")
        signal.raise_signal(signal.SIGINT)
        done.append("after the second")
    assert done == ["after the first"]


def test_a_short_step_is_not_interrupted_by_any_signal() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt) as caught, signals_deferred(also_second=True):
        signal.raise_signal(signal.SIGINT)
        done.append("after the first")
        signal.raise_signal(signal.SIGINT)
        done.append("after the second")
    assert done == ["after the first", "after the second"]
    assert not isinstance(caught.value, Terminated)


def test_other_threads_leave_the_handlers_alone() -> None:
    seen = []

    def work() -> None:
        with sigterm_raises(), signals_deferred():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.SIG_DFL]


class Finalizer:
    """A signal arrives while it is collected: Python drops whatever its finalizer raises."""

    def __init__(self, number: signal.Signals) -> None:
        self._number = number

    def __del__(self) -> None:
        signal.raise_signal(self._number)
        time.sleep(0)


@pytest.mark.parametrize("works_s", [10, 0])
@pytest.mark.parametrize(
    ("number", "said"), [(signal.SIGTERM, "SIGTERM"), (signal.SIGINT, "Ctrl-C")]
)
def test_a_signal_that_a_finalizer_has_dropped_arrives(
    number: signal.Signals, said: str, works_s: float
) -> None:
    """Also if the block ends before it is sent again."""
    hook = sys.unraisablehook
    began_s = time.monotonic()
    with pytest.raises(KeyboardInterrupt) as stop, sigterm_raises():
        Finalizer(number)
        while time.monotonic() < began_s + works_s:
            time.sleep(0.01)
    assert stop.value.__notes__ == [f"stopped by {said}"]
    assert isinstance(stop.value, Terminated) == (number == signal.SIGTERM)
    assert sys.unraisablehook is hook


def test_a_dropped_signal_waits_for_the_end_of_a_call() -> None:
    done = []
    with pytest.raises(Terminated), sigterm_raises():
        with signals_deferred():
            pass
        Finalizer(signal.SIGTERM)
        with signals_deferred():
            time.sleep(0.2)
            done.append("committed")
        time.sleep(10)
    assert done == ["committed"]


def test_two_blocks_inside_each_other_stop_both() -> None:
    with pytest.raises(Terminated), sigterm_raises():
        with pytest.raises(Terminated), sigterm_raises():
            Finalizer(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)


def test_other_errors_of_finalizers_are_reported_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Broken:
        def __del__(self) -> None:
            raise ValueError("broken")

    seen: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: seen.append(dropped.exc_type))
    with sigterm_raises():
        Broken()
    assert seen == [ValueError]


SECOND_SIGNAL = """
import os, signal, sys
from sluice.stop_signals import StopSignals
stop = StopSignals()
os.kill(os.getpid(), signal.{first})
stop.wait()
print("stopping", flush=True)
os.kill(os.getpid(), signal.{second})
print("still there", flush=True)
"""

HANGS_AFTER_A_SIGNAL = """
import os, signal, threading
from sluice.stop_signals import StopSignals
stop = StopSignals({limit_s})
os.kill(os.getpid(), signal.SIGTERM)
stop.wait()
if {is_ended}:
    stop.end()
threading.Event().wait(2 if {is_ended} else None)
print("ended by itself", flush=True)
"""


def run(script: str) -> tuple[int, str]:
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert not done.stderr
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("first", "second"),
    [("SIGTERM", "SIGTERM"), ("SIGINT", "SIGINT"), ("SIGTERM", "SIGINT"), ("SIGINT", "SIGTERM")],
)
def test_a_second_signal_of_either_kind_ends_the_process(first: str, second: str) -> None:
    code, said = run(SECOND_SIGNAL.format(first=first, second=second))
    assert (code, said) == (-getattr(signal, second), "stopping\n")


def test_the_system_ends_a_process_that_hangs_in_its_stop() -> None:
    code, said = run(HANGS_AFTER_A_SIGNAL.format(limit_s=0.2, is_ended=False))
    assert (code, said) == (-signal.SIGALRM, "")


def test_the_limit_of_a_stop_that_has_ended_does_not_count() -> None:
    code, said = run(HANGS_AFTER_A_SIGNAL.format(limit_s=1, is_ended=True))
    assert (code, said) == (0, "ended by itself\n")
