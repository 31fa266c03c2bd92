"""Why a table is not handed out: what `sluice tier` and `sluice status` say of it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sluice.cli.main import cli
from sluice.client import Client, connect
from sluice.config import ClientConfig, ServerConfig
from sluice.driver.not_due import not_due
from sluice.errors import TableNotExist
from sluice.model import TableDescriptor, TablePath
from sluice.model import types as t
from sluice.server.cluster import EmbeddedCluster
from sluice.testing.tables import table_info
from tests.support.plain_fluss import plain_fluss

MINUTE_MS = 60_000
START_MS = 1_750_000_000_000
ORDERS = TablePath("shop", "orders")


class WallClock:
    """The cluster's clock: stands until the test moves it."""

    def __init__(self) -> None:
        self.ms = START_MS

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@pytest.fixture
def clock() -> WallClock:
    return WallClock()


@pytest.fixture
def address(tmp_path: Path, clock: WallClock) -> Iterator[str]:
    config = ServerConfig(
        data_dir=str(tmp_path / "data"),
        listen="grpc://127.0.0.1:0",
        tiering_check_interval_ms=20,
    )
    with EmbeddedCluster(config, clock) as cluster:
        yield cluster.address


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with connect(address) as client:
        client.admin.create_database("shop")
        yield client


@pytest.fixture
def sluice(address: str, tmp_path: Path) -> Callable[..., Result]:
    def run(*arguments: str) -> Result:
        environment = {"SLUICE_CLIENT_BOOTSTRAP": address}
        return CliRunner().invoke(cli, arguments, env=environment)

    return run


def create(client: Client, name: str = "orders", **properties: str) -> TablePath:
    path = TablePath("shop", name)
    options = {f"table.datalake.{key}": value for key, value in properties.items()}
    schema = table_info({"id": t.BIGINT}).schema
    client.admin.create_table(path, TableDescriptor(schema, bucket_count=1, properties=options))
    return path


def test_a_table_says_when_it_is_due(client: Client) -> None:
    path = create(client, enabled="true", freshness="90 min")
    error = not_due(client, path, START_MS + 10 * MINUTE_MS + 500)
    assert str(error) == (
        "table shop.orders is Scheduled: it is due in 1 h 20 min, 90 min after it was created"
        " (table.datalake.freshness)"
    )
    assert error.details["waits"]
    assert "due any moment" in str(not_due(client, path, START_MS + 90 * MINUTE_MS))


def test_after_a_round_it_is_due_one_freshness_later(client: Client, clock: WallClock) -> None:
    path = create(client, enabled="true", freshness="0s")
    while (claim := client.tiering.claim([path])) is None:
        time.sleep(0.01)
    assert "is being tiered (tiering epoch 1)" in str(not_due(client, path, clock.ms))
    clock.ms += MINUTE_MS
    client.admin.set_options(path, {"table.datalake.freshness": "3 min"})
    client.tiering.finished(claim)
    error = not_due(client, path, clock.ms + MINUTE_MS)
    assert "it is due in 2 min, 3 min after its last round" in str(error)


def test_a_failing_table_says_why_and_when_it_is_tried_again(
    client: Client, clock: WallClock
) -> None:
    path = create(client, enabled="true", freshness="1s")
    clock.ms += MINUTE_MS
    claim = client.tiering.claim([path])
    assert claim is not None
    client.tiering.failed(claim, "the lake is full")
    assert str(not_due(client, path, clock.ms)) == (
        "table shop.orders has failed once: it is tried again in 10 s, and at once by"
        " `sluice retry shop.orders` (the last reason: the lake is full)"
    )


def test_a_paused_table_says_how_to_resume_it(client: Client, clock: WallClock) -> None:
    path = create(client, enabled="true")
    client.admin.pause_tiering(path)
    error = not_due(client, path, clock.ms)
    assert str(error) == (
        "table shop.orders is paused: `sluice resume shop.orders` has it tiered again"
    )


def test_a_table_that_is_not_tiered_says_how_to_change_that(
    client: Client, sluice: Callable[..., Result]
) -> None:
    path = create(client, "plain")
    error = not_due(client, path, START_MS)
    assert str(error).startswith("table shop.plain is not tiered: in Flink SQL, ALTER TABLE")
    assert not error.details["waits"]
    shown = sluice("status", "shop.plain")
    assert (shown.exit_code, shown.output.strip()) == (0, str(error))
    assert json.loads(sluice("status", "shop.plain", "--format", "json").output) == []
    assert sluice("status").output == "no table is tiered\n"
    started = time.monotonic()
    refused = sluice("tier", "shop.plain", "--warehouse", "/nowhere", "--wait", "1h")
    assert time.monotonic() - started < 60
    assert (refused.exit_code, "is not tiered" in refused.output) == (1, True)
    code = str(error).partition("in Python, ")[2]
    scope = {"client": client, "TablePath": TablePath}
    eval(code, scope)  # what a reader is told to type works
    assert client.admin.table_info(path).datalake_enabled


def test_a_table_that_is_not_there(client: Client) -> None:
    with pytest.raises(TableNotExist):
        not_due(client, ORDERS, START_MS)


@pytest.mark.spark
def test_tier_waits_as_long_as_it_is_told(
    client: Client, sluice: Callable[..., Result], clock: WallClock
) -> None:
    create(client, enabled="true", freshness="10 min")
    refused = sluice("tier", "shop.orders", "--warehouse", "/nowhere", "--wait", "1ms")
    assert refused.exit_code == 1
    assert "TableNotDue: table shop.orders is Scheduled: it is due" in refused.output
    timer = threading.Timer(0.7, lambda: setattr(clock, "ms", clock.ms + 10 * MINUTE_MS))
    timer.start()
    # Once it is due the round begins, and fails for a reason of its own.
    begun = sluice("tier", "shop.orders", "--warehouse", "/proc/nowhere", "--wait", "5min")
    timer.join()
    assert begun.exit_code == 1
    assert "TableNotDue" not in begun.output
    assert "/proc/nowhere" in begun.output


def test_where_nothing_is_known_of_a_table(tmp_path: Path, clock: WallClock) -> None:
    with (
        plain_fluss(tmp_path / "plain", clock) as server,
        connect(ClientConfig(server.address, tiering_status_timeout_ms=60_000)) as client,
    ):
        client.admin.create_database("shop")
        path = create(client, enabled="true")
        assert str(not_due(client, path, clock.ms)) == (
            "table shop.orders is not handed out now: it is being tiered, or not due yet"
            " (no round of Sluice is written down)"
        )
        client.admin.pause_tiering(path)
        assert "is paused: `sluice resume shop.orders`" in str(not_due(client, path, clock.ms))
