"""`sluice exporter` on real servers in this process, scraped over HTTP."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sluice.cli.main import cli
from sluice.cli.servers.exporter import served
from sluice.config import ClientConfig
from sluice.errors import ConfigurationError
from sluice.metrics.tables import gauge_name
from sluice.model import Reason, TieringStatus
from sluice.model.record_fields import fields_of
from sluice.server.coordinator.calls.lease_calls import LeaseService
from sluice.wire import apis
from sluice.wire.messages import values
from tests.support.network.ports import kept_port
from tests.support.network.scrapes import Samples, scrape
from tests.support.statuses.status_shop import MINUTE_MS, status_shop
from tests.unit.server.coordinator.calls.test_tiering_calls import (
    LAKE_TABLE,
    beat,
    claim,
    control,
    entry,
)
from tests.unit.server.support import Node, OwnedClock, batch

SLOW_MS = 60_000
TABLE = ("db", "t")


def exported(address: str, **settings: Any) -> AbstractContextManager[str]:
    given = {"insecure": False, "cache_ms": 0, "timeout_ms": SLOW_MS, **settings}
    return served(ClientConfig(address), "127.0.0.1:0", **given)


def tables_of(found: Samples) -> set[str]:
    return {key[0] for key in found if key[0].startswith("sluice_table")}


@pytest.fixture
def clock() -> OwnedClock:
    return OwnedClock()


@pytest.fixture
def node(tmp_path: Path, clock: OwnedClock) -> Iterator[Node]:
    with kept_port() as port:
        node = Node(
            tmp_path / "data",
            clock,
            listen=f"grpc://127.0.0.1:{port}",
            metrics="127.0.0.1:0",
            tiering_check_interval_ms=3_600_000,
        )
        node.caller.create_table(descriptor=LAKE_TABLE)
        yield node
        node.stop()


def test_it_has_all_that_the_server_has(node: Node, clock: OwnedClock) -> None:
    with exported(node.cluster.address) as url:
        scrape(url)
        clock.ms += 10_000
        held = claim(node.caller)
        clock.ms += 3_000
        beat(node.caller, finished_tables=[entry(held)])
        node.caller.produce(node.caller.table_info().table_id, batch("a", "b"))
        assert scrape(url)["sluice_rounds_total", "finished"] == 1
        clock.ms += 10_000
        beat(node.caller, failed_tables=[entry(claim(node.caller), error_message="no")])
        control(node.caller, values.TIERING_PAUSE)
        found, own = scrape(url), scrape(node.cluster.metrics_address)
    assert found["sluice_table_lag_rows", *TABLE] == 2
    assert found["sluice_rounds_total", "failed"] == 1
    assert found["sluice_round_seconds_sum", "finished"] == 3
    differs = (
        "sluice_rounds_created",
        "sluice_round_seconds_created",
        "sluice_read_seconds",
        "sluice_exporter_info",
        "sluice_server_info",
    )
    assert comparable(found, differs) == comparable(own, differs)
    gauges = {gauge_name(field) for field in fields_of(TieringStatus) if field.gauge}
    missing = {"sluice_table_next_attempt_timestamp_seconds"}  # a paused table has none
    missing |= {f"sluice_table_lake_{what}" for what in ("rows", "files", "bytes")}  # nor a lake
    assert tables_of(found) == gauges - missing | {"sluice_table_state"}


def comparable(found: Samples, differs: tuple[str, ...]) -> Samples:
    return {key: value for key, value in found.items() if not key[0].startswith(differs)}


def test_a_cluster_like_fluss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It records no statuses itself, and lists no leases."""
    handlers = LeaseService.handlers

    def without_list(self: LeaseService) -> Any:
        return {k: v for k, v in handlers(self).items() if k is not apis.LIST_KV_SNAPSHOT_LEASES}

    monkeypatch.setattr(LeaseService, "handlers", without_list)
    with status_shop(tmp_path / "data") as shop, exported(shop.address) as url:
        orders, stock = shop.create("orders"), shop.create("stock")
        found = scrape(url)
        assert found["sluice_table_state", "shop", "Unknown", "stock"] == 1
        broken = shop.claim(orders)
        shop.clock.ms += 20_000
        shop.client.tiering.failed(broken, Reason.from_text("no answer"))
        held = shop.claim(orders)
        shop.clock.ms += MINUTE_MS
        shop.client.tiering.finished(held)
        shop.client.tiering.failed(shop.claim(stock), Reason.from_text("no space"))
        shop.client.statuses.pause(stock)
        found = scrape(url)
    assert found["sluice_up",] == 1
    assert found["sluice_rounds_total", "finished"] == 1
    assert found["sluice_rounds_total", "failed"] == 2
    assert found["sluice_round_seconds_sum", "finished"] == 60
    assert found["sluice_round_seconds_sum", "failed"] == 20
    assert found["sluice_table_rounds", "shop", "orders"] == 2
    assert found["sluice_table_last_round_seconds", "shop", "orders"] == 60
    assert found["sluice_table_failures", "shop", "stock"] == 1
    assert found["sluice_table_paused", "shop", "stock"] == 1
    assert found["sluice_table_paused", "shop", "orders"] == 0
    assert not [key for key in found if key[0].startswith("sluice_lease")]


def test_a_cluster_that_goes_away_and_comes_back(node: Node) -> None:
    with exported(node.cluster.address, timeout_ms=500) as url:
        assert scrape(url)["sluice_up",] == 1
        node.stop()
        away = scrape(url)
        assert (away["sluice_up",], tables_of(away)) == (0, set())
        assert not [key for key in away if key[0].startswith("sluice_lease")]
        assert away["sluice_rounds_total", "finished"] == 0, "counters stay"
        node.start()
        deadline = time.monotonic() + 60
        while scrape(url)["sluice_up",] == 0:  # the last try may still be under way
            assert time.monotonic() < deadline
        assert scrape(url)["sluice_table_failures", *TABLE] == 0


def test_scrapes_within_the_cache_read_nothing(node: Node) -> None:
    with exported(node.cluster.address, cache_ms=SLOW_MS) as url:
        assert scrape(url)["sluice_table_paused", *TABLE] == 0
        control(node.caller, values.TIERING_PAUSE)
        assert scrape(url)["sluice_table_paused", *TABLE] == 0
    with exported(node.cluster.address) as url:
        assert scrape(url)["sluice_table_paused", *TABLE] == 1


def test_a_cluster_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"fluss://127.0.0.1:{silent.getsockname()[1]}"
        with exported(address, timeout_ms=50) as url:
            found = scrape(url)
    assert found["sluice_up",] == 0
    assert found["sluice_read_seconds",] >= 0.05


@pytest.mark.parametrize(
    ("address", "listen", "why"),
    [
        ("grpc://127.0.0.1:1", "nonsense", "--listen: 'nonsense': expected HOST:PORT"),
        ("grpc://127.0.0.1:1", "0.0.0.0:0", "or accept the risk with --insecure$"),
        ("nonsense", "127.0.0.1:0", "address 'nonsense': the scheme is missing"),
    ],
)
def test_what_it_refuses(address: str, listen: str, why: str) -> None:
    with (
        pytest.raises(ConfigurationError, match=why),
        served(ClientConfig(address), listen, insecure=False, cache_ms=0, timeout_ms=SLOW_MS),
    ):
        pass


def test_a_duration_without_a_unit_is_refused() -> None:
    result = CliRunner().invoke(cli, ["exporter", "--cache", "10"])
    assert result.exit_code == 2
    assert "--cache: '10' has no unit" in result.stderr
