"""/metrics of a real server, read over HTTP as Prometheus does."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
import yaml

from sluice.client import connect
from sluice.errors import ConfigurationError
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.messages import values
from tests.support.harness.findings import finding
from tests.support.network.scrapes import Samples, scrape
from tests.unit.server.coordinator.calls.test_tiering_calls import (
    LAKE_TABLE,
    beat,
    claim,
    control,
    entry,
)
from tests.unit.server.kv_support import KvCaller
from tests.unit.server.support import PATH, Node, OwnedClock, batch

DOCS = Path(__file__).parents[3] / "docs"
BOARD = DOCS / "grafana-sluice.json"
ALERTS = DOCS / "prometheus-sluice.yaml"


@pytest.fixture
def node(start: Callable[..., Node], clock: OwnedClock) -> Node:
    node = start(clock=clock, tiering_check_interval_ms=3_600_000, metrics="127.0.0.1:0")
    node.caller.create_table(descriptor=LAKE_TABLE)
    return node


def read(node: Node) -> Samples:
    return scrape(node.cluster.metrics_address)


def test_what_is_told_of_a_table(node: Node, clock: OwnedClock) -> None:
    clock.ms += 10_000
    held = claim(node.caller)
    clock.ms += 3_000
    beat(node.caller, finished_tables=[entry(held)])
    node.caller.produce(node.caller.table_info().table_id, batch("a", "b"))
    clock.ms += 10_000
    beat(node.caller, failed_tables=[entry(claim(node.caller), error_message="no")])
    control(node.caller, values.TIERING_PAUSE)
    found = read(node)
    table = ("db", "t")
    assert found["sluice_table_state", "db", "Failed", "t"] == 1
    assert found["sluice_table_state", "db", "Scheduled", "t"] == 0
    assert found["sluice_table_failures", *table] == 1
    assert found["sluice_table_paused", *table] == 1
    assert found["sluice_table_lag_rows", *table] == 2
    assert found["sluice_table_lag_seconds", *table] == 10
    assert found["sluice_table_tiering_epoch", *table] == 2
    assert found["sluice_table_last_round_seconds", *table] == 3
    assert found["sluice_table_last_tiered_timestamp_seconds", *table] == (clock.ms - 10_000) / 1000
    assert ("sluice_table_next_attempt_timestamp_seconds", *table) not in found
    assert found["sluice_rounds_total", "finished"] == 1
    assert found["sluice_rounds_total", "failed"] == 1
    assert found["sluice_round_seconds_sum", "finished"] == 3
    assert found["sluice_leases",] == 0
    assert found["sluice_up",] == 1


def test_a_lost_worker_counts_as_a_failed_round(node: Node, clock: OwnedClock) -> None:
    clock.ms += 10_000
    claim(node.caller)
    clock.ms += 120_000
    found = read(node)  # its statuses catch up with time before it counts
    assert found["sluice_rounds_total", "failed"] == 1
    assert found["sluice_round_seconds_sum", "failed"] == 120


def test_a_table_that_is_dropped_is_gone(node: Node) -> None:
    assert ("sluice_table_failures", "db", "t") in read(node)
    node.caller.drop_table(PATH)
    assert not [key for key in read(node) if key[0].startswith("sluice_table")]


def test_leases_are_counted(node: Node, clock: OwnedClock) -> None:
    request = pb.ListKvSnapshotLeasesRequest()
    assert not node.caller.call(apis.LIST_KV_SNAPSHOT_LEASES, request).leases
    found = read(node)
    assert (found["sluice_leased_buckets",], found["sluice_lease_age_seconds",]) == (0, 0)
    assert found["sluice_leased_bytes",] == 0
    kv = KvCaller(node.caller)
    kv.put((1, "text", 1))
    node.cluster.take_kv_snapshots(kv.path)
    with connect(node.cluster.address) as client, client.snapshot_lease("job", kv.path):
        [lease] = client.leases.all()
        found = read(node)
    assert (found["sluice_leases",], found["sluice_leased_buckets",]) == (1, 1)
    assert found["sluice_leased_bytes",] == lease.held_bytes
    assert lease.held_bytes


def test_there_is_nothing_else_at_that_address(node: Node) -> None:
    with pytest.raises(HTTPError, match="404"):
        urlopen(node.cluster.metrics_address.replace("/metrics", "/"), timeout=60)


def test_an_address_is_free_again_after_a_stop(node: Node) -> None:
    """Asked of the socket itself: somebody else may have the port by then."""
    parts = node.cluster._parts
    assert parts is not None
    assert parts._metrics is not None
    endpoint = parts._metrics._endpoint
    assert endpoint is not None
    assert endpoint._server.fileno() >= 0
    node.stop()
    with finding():
        assert endpoint._server.fileno() < 0
        assert not endpoint._thread.is_alive()
    node.start()
    assert read(node)


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("0.0.0.0:0", "without encryption or login"),
        ("nonsense", "expected HOST:PORT"),
        ("127.0.0.1:0/x", "expected HOST:PORT"),
        ("127.0.0.1:99999", "out of range"),
    ],
)
def test_an_address_that_cannot_be(start: Callable[..., Node], place: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        start(metrics=place)


def test_an_address_that_is_taken(start: Callable[..., Node]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigurationError, match="server.metrics: 127.0.0.1"):
            start(metrics=f"127.0.0.1:{taken.getsockname()[1]}")


def test_board_and_alerts_use_metrics_that_exist(node: Node, clock: OwnedClock) -> None:
    clock.ms += 10_000
    beat(node.caller, finished_tables=[entry(claim(node.caller))])
    names = {key[0] for key in read(node)}
    board: dict[str, Any] = json.loads(BOARD.read_text())
    queries = [t["expr"] for panel in board["panels"] for t in panel.get("targets", [])]
    [alerts] = yaml.safe_load(ALERTS.read_text())["groups"]
    queries += [rule["expr"] for rule in alerts["rules"]]
    assert len(queries) >= 20
    for query in queries:
        asked = set(re.findall(r"sluice_\w+", query))
        assert asked, query
        assert asked <= names, f"{query}: no {asked - names}"
