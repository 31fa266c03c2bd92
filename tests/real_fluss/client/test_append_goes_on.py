"""`sluice append` into a real Fluss that breaks off, and the command that it prints."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tests.support.fluss.real_fluss import RealFluss
from tests.support.tables.appending import ROWS, Appending, told

pytestmark = pytest.mark.real_fluss


@pytest.fixture
def shop(real_fluss: RealFluss, tmp_path: Path) -> Appending:
    return Appending(tmp_path, lambda: real_fluss.bootstrap, f"db_{uuid.uuid4().hex[:8]}")


@pytest.mark.parametrize("layout", ["primary", pytest.param("parted", marks=pytest.mark.slow)])
def test_the_printed_command_loses_no_row(shop: Appending, layout: str) -> None:
    shop.create(layout)
    broken = shop.append(shop.file("orders.csv"), "client.write.answered=raise@30")
    assert broken.wait() == 1
    stored, doubtful, command = told(broken.stderr)
    assert 0 <= stored < ROWS
    shop.check_first(stored)
    done = shop.run(*command)
    assert done.wait() == 0, done.stderr
    shop.check_whole(0 if layout == "primary" else doubtful)
