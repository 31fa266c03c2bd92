"""Whether a compaction is requested, on a cluster where rounds keep the statuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.client.statuses.status_table import PATH
from sluice.driver.maintaining import _Requests
from sluice.errors import StatusUnreadable
from sluice.model import types as t
from sluice.rounds.upkeep.requested import REQUEST_MS_MAX
from tests.support.statuses.status_shop import Shop, foreign, status_shop


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with status_shop(tmp_path / "data") as shop:
        yield shop


def requests_of(shop: Shop) -> _Requests:
    info = shop.client.admin.table_info(shop.create("orders"))
    return _Requests(shop.client, info, shop.clock.now_ms())


def test_a_request_is_open_until_it_is_too_old(shop: Shop) -> None:
    """The round that finds it too old ends it, so it is made again before."""
    requests = requests_of(shop)
    assert not requests.is_open()
    requests.make()
    assert requests.is_open()
    for late_ms, is_open in ((-60_000, True), (60_000, False)):
        now_ms = shop.clock.now_ms() + REQUEST_MS_MAX + late_ms
        assert _Requests(requests.client, requests.info, now_ms).is_open() == is_open


def test_a_status_that_cannot_be_read_is_not_one_without_a_request(shop: Shop) -> None:
    requests = requests_of(shop)
    shop.client.admin.create_database("sluice")
    shop.client.admin.create_table(PATH, foreign(ended_time=t.timestamp_ltz(6)))
    with pytest.raises(StatusUnreadable, match=r"the status of table shop\.orders: "):
        requests.is_open()
