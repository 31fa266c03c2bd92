"""`sluice append` into a real Fluss that is killed, and goes on: each row is there once."""

from __future__ import annotations

import signal
import uuid
from pathlib import Path

import pytest

from sluice.testing.real_fluss import RealFluss
from tests.support.appending import ROWS, Appending, told

pytestmark = pytest.mark.real_fluss


@pytest.mark.parametrize("layout", ["round", "parted"])
def test_a_command_killed_and_killed_again(
    real_fluss: RealFluss, tmp_path: Path, layout: str
) -> None:
    """Once before a batch was sent, once before its answer was noted."""
    shop = Appending(tmp_path, lambda: real_fluss.bootstrap, f"db_{uuid.uuid4().hex[:8]}")
    shop.create(layout)
    path = shop.file("orders.csv")
    killed = shop.append(path, "client.write.noted=kill@20")
    assert killed.wait() == -signal.SIGKILL
    first, command = told(shop.append(path).stderr)
    killed = shop.run(*command, failpoints="client.write.answered=kill@30")
    assert killed.wait() == -signal.SIGKILL
    second, command = told(shop.append(path).stderr)
    assert 0 <= first <= second < ROWS
    shop.check_first(second)
    done = shop.run(*command)
    assert done.wait() == 0, done.stderr
    shop.check_whole()
