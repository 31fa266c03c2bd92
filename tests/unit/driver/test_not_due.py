"""Why a table is not handed out: what `sluice tier` and `sluice status` say of it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sluice.artifacts.iceberg import installed_iceberg
from sluice.cli.main import cli
from sluice.cli.terminal.options import DURATION
from sluice.client import Client, connect
from sluice.client.statuses.recorded import this_process
from sluice.config import ClientConfig, ServerConfig
from sluice.driver.not_due import claim_table, not_due
from sluice.errors import TableNotDue, TableNotExist
from sluice.model import Claim, Reason, TableDescriptor, TablePath
from sluice.model import types as t
from sluice.model.durations import duration_ms
from sluice.server.cluster import EmbeddedCluster
from sluice.server.coordinator.catalog.entries import TableEntry
from sluice.server.metadata import MetadataService
from sluice.statuses import recorded
from tests.support.fluss.plain_fluss import plain_fluss
from tests.support.models.tables import table_info

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
        return time.monotonic() + self.ms / 1000

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


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What `sluice tier` looks for before it claims; enough for rounds that never begin."""
    home = tmp_path / "machine"
    java = home / "bin/java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    java.chmod(0o755)
    (home / installed_iceberg().name).touch()
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("SLUICE_TIERING_JARS", str(home))
    return home


def create(client: Client, name: str = "orders", **properties: str) -> TablePath:
    path = TablePath("shop", name)
    options = {f"table.datalake.{key}": value for key, value in properties.items()}
    schema = table_info({"id": t.BIGINT}).schema
    client.admin.create_table(path, TableDescriptor(schema, bucket_count=1, properties=options))
    return path


def tiered(client: Client, path: TablePath) -> None:
    """Its first round, for which it waits for nothing, has ended now."""
    claim = client.tiering.claim([path])
    assert claim is not None
    client.tiering.finished(claim)


def test_a_table_says_when_it_is_due_and_what_does_not_wait(
    client: Client, clock: WallClock
) -> None:
    path = create(client, enabled="true", freshness="90 min")
    tiered(client, path)
    error = not_due(client, path, START_MS + 10 * MINUTE_MS + 500)
    assert str(error) == (
        "table shop.orders is Scheduled: it is due in 1 h 20 min (table.datalake.freshness is"
        " 90 min). Add --now to tier it now, or --wait 81min to wait"
    )
    assert error.details["waits"]
    assert str(not_due(client, path, START_MS + 90 * MINUTE_MS)) == (
        "table shop.orders is Scheduled: it is due now (table.datalake.freshness is 90 min), but"
        " the coordinator does not assign it yet: run the command again"
    )


@pytest.mark.parametrize(
    ("freshness", "wait"), [("1s", "1min"), ("2 min", "3min"), ("120 min", "3h"), ("1d", "25h")]
)
def test_the_wait_that_is_named_is_long_enough(
    client: Client, clock: WallClock, freshness: str, wait: str
) -> None:
    path = create(client, enabled="true", freshness=freshness)
    tiered(client, path)
    assert f", or --wait {wait} to wait" in str(not_due(client, path, clock.ms))
    assert DURATION.convert(wait, None, None) > duration_ms("freshness", freshness)


def test_during_a_round_and_after_a_change_of_the_freshness(
    client: Client, clock: WallClock
) -> None:
    path = create(client, enabled="true", freshness="1d")
    claim = claim_table(client, path, clock=clock)
    assert str(not_due(client, path, clock.ms)).startswith(
        f"table shop.orders is being tiered by {this_process()} (tiering epoch 1): with"
        " --now --wait 5min, the command tiers it again after that round. A claim without"
        " heartbeats expires after 2 min"
    )
    clock.ms += MINUTE_MS
    client.tiering.finished(claim)
    client.admin.set_options(path, {"table.datalake.freshness": "3 min"})
    error = not_due(client, path, clock.ms + MINUTE_MS)
    assert "it is due in 2 min (table.datalake.freshness is 3 min)" in str(error)


def test_the_time_of_a_claim_is_that_of_this_server(tmp_path: Path) -> None:
    config = ServerConfig(
        data_dir=str(tmp_path / "data"), listen="grpc://127.0.0.1:0", tiering_timeout_ms=45_000
    )
    with EmbeddedCluster(config) as cluster, connect(cluster.address) as client:
        client.admin.create_database("shop")
        path = create(client, enabled="true")
        claim_table(client, path)
        with pytest.raises(TableNotDue) as caught:
            claim_table(client, path)
        assert str(caught.value).endswith(". A claim without heartbeats expires after 45 s")
        with connect(cluster.address) as other:  # it has not asked for a claim
            error = not_due(other, path, START_MS)
        assert str(error).endswith(". A claim without heartbeats expires by itself")


def test_of_no_table_in_particular(client: Client, clock: WallClock) -> None:
    with pytest.raises(TableNotDue) as caught:
        claim_table(client, None, now=True, clock=clock)
    assert str(caught.value) == (
        "no table is due: `sluice status` shows when each table is; `sluice tier DB.TABLE --now`"
        " tiers one now"
    )


def test_a_table_is_claimed_now(client: Client, clock: WallClock) -> None:
    path = create(client, enabled="true", freshness="1d")
    tiered(client, path)
    with pytest.raises(TableNotDue, match="it is due in 24 h"):
        claim_table(client, path, clock=clock)
    claim = claim_table(client, path, now=True, clock=clock)
    assert (claim.path, claim.tiering_epoch) == (path, 2)
    with pytest.raises(TableNotDue, match=r"is being tiered by \S+ \(tiering epoch 2\)"):
        claim_table(client, path, now=True, clock=clock)
    client.tiering.finished(claim)
    assert client.tiering.claim([path]) is None, "asking during a round has left no trace"


def test_a_failing_table_is_claimed_now(client: Client, clock: WallClock) -> None:
    path = create(client, enabled="true", freshness="1d")
    client.tiering.failed(
        claim_table(client, path, clock=clock), Reason.from_text("the lake is full")
    )
    with pytest.raises(TableNotDue, match="has failed once: the next attempt is due in 10 s"):
        claim_table(client, path, clock=clock)
    claim_table(client, path, now=True, clock=clock)
    assert client.statuses.list(path)[0].failures == 0, "as after a retry"


def test_a_pause_holds_against_now(client: Client, clock: WallClock) -> None:
    path = create(client, enabled="true", freshness="1d")
    client.statuses.pause(path)
    with pytest.raises(TableNotDue, match="is paused: `sluice resume`"):
        claim_table(client, path, now=True, clock=clock)
    client.statuses.resume(path)
    assert claim_table(client, path, clock=clock).tiering_epoch == 1


def test_who_was_slower_is_told_what_to_do(client: Client, clock: WallClock) -> None:
    """Another claim comes between making it due and one's own."""
    path = create(client, enabled="true", freshness="1d")
    tiered(client, path)
    with connect(client.config) as other:
        real = other.statuses.request_round

        def and_then_somebody(wanted: TablePath) -> None:
            real(wanted)
            assert client.tiering.claim([wanted]) is not None

        other.statuses.request_round = and_then_somebody  # type: ignore[method-assign]
        with pytest.raises(TableNotDue, match=r"is being tiered by \S+ \(tiering epoch 2\)"):
            claim_table(other, path, now=True, clock=clock)


def test_a_failing_table_says_why_and_when_it_is_tried_again(
    client: Client, clock: WallClock
) -> None:
    path = create(client, enabled="true", freshness="1s")
    clock.ms += MINUTE_MS
    claim = client.tiering.claim([path])
    assert claim is not None
    client.tiering.failed(claim, Reason.from_text("the lake is full"))
    assert str(not_due(client, path, clock.ms)) == (
        "table shop.orders has failed once: the next attempt is due in 10 s. Add --now to tier it"
        " now, or run `sluice retry` to make it due (last error: the lake is full)"
    )
    assert str(not_due(client, path, clock.ms + MINUTE_MS)) == (
        "table shop.orders has failed once: the next attempt is due now, but the coordinator does"
        " not assign it yet: run the command again (last error: the lake is full)"
    )


def test_a_paused_table_says_how_to_resume_it(client: Client, clock: WallClock) -> None:
    path = create(client, enabled="true")
    client.statuses.pause(path)
    error = not_due(client, path, clock.ms)
    assert str(error) == "table shop.orders is paused: `sluice resume` resumes its tiering"


@pytest.mark.usefixtures("machine")
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


@pytest.mark.slow
@pytest.mark.spark
def test_tier_waits_as_long_as_it_is_told(
    client: Client, sluice: Callable[..., Result], clock: WallClock
) -> None:
    tiered(client, create(client, enabled="true", freshness="10 min"))
    refused = sluice("tier", "shop.orders", "--warehouse", "/nowhere", "--wait", "1ms")
    assert refused.exit_code == 1
    assert "TableNotDue: table shop.orders is Scheduled" in refused.output
    timer = threading.Timer(0.7, lambda: setattr(clock, "ms", clock.ms + 10 * MINUTE_MS))
    timer.start()
    # Once it is due the round begins, and fails for a reason of its own.
    begun = sluice("tier", "shop.orders", "--warehouse", "/proc/nowhere", "--wait", "5min")
    timer.join()
    assert begun.exit_code == 1
    assert "TableNotDue" not in begun.output
    assert "/proc/nowhere" in begun.output


@pytest.mark.spark
def test_tier_now_does_not_wait(
    client: Client, sluice: Callable[..., Result], clock: WallClock
) -> None:
    path = create(client, enabled="true", freshness="1d")
    tiered(client, path)
    begun = sluice("tier", "shop.orders", "--warehouse", "/proc/nowhere", "--now")
    assert (begun.exit_code, "TableNotDue" in begun.output) == (1, False)
    assert "/proc/nowhere" in begun.output, "the round was begun"
    assert client.statuses.list(path)[0].failures == 1
    # It waits after that failure, and is tried at once all the same.
    again = sluice("tier", "shop.orders", "--warehouse", "/proc/nowhere", "--now")
    assert ("TableNotDue" in again.output, "/proc/nowhere" in again.output) == (False, True)
    client.statuses.pause(path)
    paused = sluice("tier", "shop.orders", "--warehouse", "/proc/nowhere", "--now")
    assert paused.exit_code == 1
    assert "is paused: `sluice resume` resumes its tiering" in paused.output


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        (installed_iceberg().name, "no iceberg-spark-runtime"),
        ("bin/java", "has no bin/java"),
    ],
)
def test_what_is_missing_here_is_noticed_before_the_claim(
    client: Client, sluice: Callable[..., Result], machine: Path, missing: str, told: str
) -> None:
    path = create(client, enabled="true", freshness="1d")
    (machine / missing).unlink()
    refused = sluice("tier", "shop.orders", "--warehouse", str(machine / "lake"))
    assert (refused.exit_code, told in refused.output) == (2, True), refused.output
    status = client.statuses.list(path)[0]
    assert (status.status, status.failures) == ("Pending", 0)


@pytest.mark.usefixtures("machine")
def test_who_waits_keeps_no_round_alive_by_asking_again(
    tmp_path: Path, clock: WallClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To ask how an unknown round stands counts as its heartbeat: so it is asked once."""
    asked = []
    record = recorded.asked

    def counted(claim: Claim, now_ms: int) -> recorded.Columns:
        asked.append(claim.tiering_epoch)
        return record(claim, now_ms)

    monkeypatch.setattr(recorded, "asked", counted)
    with (
        plain_fluss(tmp_path / "plain", clock) as server,
        connect(ClientConfig(server.address, tiering_status_timeout_ms=60_000)) as client,
    ):
        client.admin.create_database("shop")
        path = create(client, enabled="true", freshness="1d")
        client.statuses.request_round(path)
        assert client.tiering._next_claim(()) is not None, "by somebody who writes nothing down"
        environment = {
            "SLUICE_CLIENT_BOOTSTRAP": server.address,
            "SLUICE_CLIENT_TIERING_STATUS_TIMEOUT_MS": "60000",
        }
        asked.clear()
        command = ["tier", "shop.orders", "--warehouse", "/nowhere", "--now", "--wait", "3s"]
        told = CliRunner().invoke(cli, command, env=environment)
    assert (told.exit_code, asked) == (1, [1])
    assert "TableNotDue: table shop.orders may be tiered by a worker that records" in told.output


def test_where_nothing_is_known_of_a_table(tmp_path: Path, clock: WallClock) -> None:
    with (
        plain_fluss(tmp_path / "plain", clock) as server,
        connect(ClientConfig(server.address, tiering_status_timeout_ms=60_000)) as client,
    ):
        client.admin.create_database("shop")
        path = create(client, enabled="true")
        assert str(not_due(client, path, clock.ms)) == (
            "table shop.orders cannot be claimed now: it is being tiered, or it is not due (no"
            " round of Sluice is recorded). Add --now to tier it now"
        )
        client.statuses.pause(path)
        assert "is paused: `sluice resume`" in str(not_due(client, path, clock.ms))


@pytest.mark.usefixtures("machine")
def test_tier_waits_for_an_election(
    tmp_path: Path, clock: WallClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    elected = threading.Event()
    put_buckets = MetadataService._put_buckets

    def before_an_election(
        service: MetadataService, target: Any, entry: TableEntry, partition_id: int | None = None
    ) -> None:
        put_buckets(service, target, entry, partition_id)
        for bucket in target:
            if not elected.is_set():
                bucket.ClearField("leader_id")

    monkeypatch.setattr(MetadataService, "_put_buckets", before_an_election)
    with (
        plain_fluss(tmp_path / "plain", clock) as server,
        connect(ClientConfig(server.address, tiering_status_timeout_ms=60_000)) as client,
    ):
        client.admin.create_database("shop")
        create(client, enabled="true", freshness="1d")
        environment = {"SLUICE_CLIENT_BOOTSTRAP": server.address}

        def tier(wait: str) -> str:
            command = ["tier", "shop.orders", "--warehouse", "/nowhere", "--wait", wait]
            told = CliRunner().invoke(cli, command, env=environment)
            assert told.exit_code == 1
            return " ".join(told.output.split())

        assert "restart the coordinator. It has had no leader for the last" in tier("1ms")
        began_s = time.monotonic()
        timer = threading.Timer(0.7, elected.set)
        timer.start()
        assert "no leader" not in tier("2s"), "it waited, and there was one at the end"
        timer.join()
        assert time.monotonic() - began_s > 2
