"""The level of the log of `sluice serve` on a terminal, and elsewhere."""

from __future__ import annotations

import os
import sys

import pytest

from sluice.cli.logs import default_level


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
