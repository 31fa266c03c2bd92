"""The first access to the statuses by a new process, on a cluster that answers slowly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.client import Client
from sluice.client.statuses.accesses import CLAIM_PATIENCE_S
from sluice.config import ClientConfig
from sluice.errors import StatusUnreadable
from sluice.wire import apis
from tests.support.network.proxy import hang
from tests.support.statuses.status_shop import Shop, behind_proxy, status_shop

DEADLINE_MS = 500
LATE_S = 0.2  # in time for each request, but not for all of them
CONNECTING = (apis.API_VERSIONS, apis.GET_METADATA)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with status_shop(tmp_path / "data") as shop:
        yield shop


def new_process(shop: Shop, address: str) -> Client:
    config = ClientConfig(address, tiering_status_timeout_ms=DEADLINE_MS)
    return shop.closing.enter_context(Client(config, shop.clock))


def reached(client: Client) -> Client:
    """The claim itself is not what is slow here."""
    assert client.tiering._recorder() is not None
    return client


def test_to_connect_does_not_count_as_reading(shop: Shop) -> None:
    path = shop.create("orders")
    shop.client.tiering.finished(shop.claim(path))
    with behind_proxy(shop) as (proxy, address):
        client = reached(new_process(shop, address))
        for api in CONNECTING:
            proxy.delay(api, LATE_S)
        shop.clock.ms += 60_000
        began_ms = shop.clock.ms
        assert client.tiering.claim([path]) is not None
        assert shop.clock.ms == began_ms, "no second attempt was needed"


def test_a_claim_reads_again_while_its_time_allows(shop: Shop) -> None:
    path = shop.create("orders")
    shop.client.tiering.finished(shop.claim(path))
    with behind_proxy(shop) as (proxy, address):
        client = reached(new_process(shop, address))
        proxy.plan(apis.GET_TABLE_INFO, hang, hang, hang)
        shop.clock.ms += 60_000
        assert client.tiering.claim([path]) is not None
        assert proxy.planned == 0


def test_a_claim_of_a_table_that_stays_silent_is_given_up(shop: Shop) -> None:
    path = shop.create("orders")
    shop.client.tiering.finished(shop.claim(path))
    with behind_proxy(shop) as (proxy, address):
        client = reached(new_process(shop, address))
        proxy.plan_always(apis.LOOKUP, hang)
        shop.clock.step_ms = 20_000
        began_ms = shop.clock.ms
        with pytest.raises(StatusUnreadable, match=r"RequestTimeOut: table sluice\.tiering_status"):
            client.tiering.claim([path])
        waited_s = (shop.clock.ms - began_ms) / 1000
        assert CLAIM_PATIENCE_S <= waited_s < CLAIM_PATIENCE_S + 40
        proxy.mend()
        shop.clock.ms += 60_000
        assert client.tiering.claim([path]) is not None
