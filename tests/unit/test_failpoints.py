"""Failpoints do nothing unless asked, and then exactly what was asked."""

import signal
import subprocess
import sys

import pytest

from sluice.failpoints import parse

PASS_TWICE = """
from sluice.failpoints import failpoint
for i in (1, 2):
    failpoint("a"); failpoint("b"); print(i, flush=True)
"""


def run(armed: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PASS_TWICE],
        env={"SLUICE_FAILPOINTS": armed},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("armed", "printed", "code"),
    [
        ("", "1\n2\n", 0),
        ("other=kill", "1\n2\n", 0),
        ("a=kill", "", -signal.SIGKILL),
        ("b=kill@2", "1\n", -signal.SIGKILL),
        ("a=raise@2, other=stop", "1\n", 1),
    ],
)
def test_actions(armed: str, printed: str, code: int) -> None:
    done = run(armed)
    assert (done.stdout, done.returncode) == (printed, code), done.stderr


@pytest.mark.parametrize("text", ["a", "a=explode", "a=kill@x"])
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a|x"):
        parse(text)
