"""The log of `sluice serve`: its level on a terminal and elsewhere, and what errors show."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sluice.cli.terminal.logs import default_level


def test_a_terminal_shows_no_events_between_the_commands_of_its_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    controller, device = os.openpty()
    with os.fdopen(device, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        assert default_level("console") == "warning"
        assert default_level("json") == "info", "a program reads the log"
    os.close(controller)


def test_a_file_gets_all_events() -> None:
    assert default_level("console") == "info"


PROGRAM = """
import sys
import structlog
from sluice.cli.terminal.logs import configure

configure(sys.argv[1])
try:
    rows = ["a row of a user"]
    password = "hunter2" * 3
    raise ValueError("jdbc:x://u:topsecret@host/db?password=topsecret " + str(len(rows)))
except ValueError:
    structlog.get_logger("sluice.test").exception("call failed", api="PutKv", by=chr(0x7F))
"""


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_an_error_is_logged_without_variables_and_without_secrets(log_format: str) -> None:
    """Variables hold rows and tokens. A traceback says where, and what the error says."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, log_format], capture_output=True, text=True, check=True
    )
    assert "call failed" in ran.stderr
    assert "PutKv" in ran.stderr
    assert "\x7f" not in ran.stderr
    assert "Traceback (most recent call last)" in ran.stderr
    assert "ValueError: jdbc:x://" in ran.stderr
    for secret in ("a row of a user", "hunter2", "topsecret"):
        assert secret not in ran.stderr
