"""Statuses that rounds write down while calls fail, come late or show only a part."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.client.admin import Admin
from tests.support.status_shop import Shop, status_shop


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with status_shop(tmp_path / "data") as shop:
        yield shop


def test_rows_of_tables_that_one_may_not_see_are_kept(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fluss lists no more than a user may describe."""
    mine, theirs = shop.create("mine"), shop.create("theirs")
    shop.client.admin.pause_tiering(theirs)
    listed = Admin.list_tables
    with monkeypatch.context() as patch:
        patch.setattr(
            Admin, "list_tables", lambda self, name: [t for t in listed(self, name) if t == "mine"]
        )
        me = shop.another().tiering
        me.finished(shop.claim(mine))
    assert shop.status(theirs).paused
