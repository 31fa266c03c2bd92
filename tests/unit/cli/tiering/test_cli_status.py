"""`sluice status`, and what users request of a table, on tables in every condition."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
import structlog
from click.testing import CliRunner, Result

from sluice.cli.main import cli
from sluice.cli.terminal.output import span
from sluice.cli.tiering.status import refresh
from sluice.client import Client, connect
from sluice.config import ClientConfig, ServerConfig
from sluice.errors import NetworkError
from sluice.formats.types.types import schema_from_arrow
from sluice.model import Reason, TableDescriptor, TablePath
from sluice.server.cluster import EmbeddedCluster
from tests.support.fluss.plain_fluss import plain_fluss

DATA = pa.table({"id": pa.array(range(3), pa.int64())})


class Clock:
    """Time that the test owns."""

    def __init__(self) -> None:
        self.ms = 1_790_000_000_000
        self.slept: list[float] = []

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return self.ms / 1000

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if len(self.slept) == 3:
            raise KeyboardInterrupt


@dataclass
class Shop:
    """A cluster with a healthy, a failing, a paused and a never tiered table, and one besides."""

    client: Client
    address: str
    clock: Clock

    def run(self, *arguments: str, **more: str) -> Result:
        environment = {"SLUICE_CLIENT_BOOTSTRAP": self.address, **more}
        return CliRunner().invoke(cli, arguments, env=environment)

    def create(self, name: str, *, tiered: bool = True, freshness: str = "1min") -> TablePath:
        path = TablePath("shop", name)
        lake = {"table.datalake.enabled": "true", "table.datalake.freshness": freshness}
        schema = schema_from_arrow(DATA.schema)
        properties = lake if tiered else {}
        self.client.admin.create_table(
            path, TableDescriptor(schema, bucket_count=1, properties=properties)
        )
        return path

    def fail(self, path: TablePath, reason: str) -> None:
        claim = self.client.tiering.claim([path])
        assert claim is not None
        self.client.tiering.failed(claim, Reason.from_text(reason))


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    clock = Clock()
    config = ServerConfig(data_dir=str(tmp_path / "data"), listen="grpc://127.0.0.1:0")
    with EmbeddedCluster(config, clock) as cluster, connect(cluster.address) as client:
        client.admin.create_database("shop")
        shop = Shop(client, cluster.address, clock)
        healthy, failing = shop.create("healthy"), shop.create("failing")
        shop.create("never", freshness="1d")
        client.statuses.pause(shop.create("paused"))
        shop.create("plain", tiered=False)
        clock.ms += 60_000
        claim = client.tiering.claim([healthy])
        assert claim is not None
        clock.ms += 2_000
        client.tiering.finished(claim)
        with client.log_writer(failing) as writer:
            writer.write(DATA)
        shop.fail(failing, "s3://lake: token=planted-secret is refused")
        clock.ms += 10_000
        shop.fail(failing, "s3://lake: token=planted-secret is refused")
        yield shop


def test_every_condition_is_seen(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice.cli.tiering.status.SystemClock", lambda: shop.clock)
    shown = shop.run("status")
    assert shown.exit_code == 1, "one of them is failing"
    assert [" ".join(line.split()) for line in shown.output.splitlines()[2:]] == [
        "shop.failing Failed never 3 rows, 10 s in 20 s",
        "shop.healthy Scheduled 10 s ago none in 50 s",
        "shop.never Pending never none now",
        "shop.paused Pending never none paused",
        "shop.failing: 2 failures, last error 0 s ago: s3://lake: token=*** is refused",
    ]


def test_wide_shows_every_condition(shop: Shop) -> None:
    shown = shop.run("status", "--wide")
    assert shown.exit_code == 1, "one of them is failing"
    headings, _, *lines = shown.output.rstrip().splitlines()
    named = (
        "table state epoch last tiered failures next attempt lag rows lag lake snapshot last round"
        " rounds accepted claimed by deletes as compaction requested lake rows lake files"
        " lake bytes requested claimed at last error last error at"
    )
    assert " ".join(headings.split()) == named
    by_table = {line.split()[0].partition(".")[2]: line for line in lines}
    assert list(by_table) == ["failing", "healthy", "never", "paused"]
    assert "Failed" in by_table["failing"]
    assert "never" in by_table["failing"]
    assert re.search(r"\b3 +10 s\b", by_table["failing"])
    assert "s3://lake: token=*** is refused" in by_table["failing"]
    assert "planted" not in shown.output
    assert "Scheduled" in by_table["healthy"]
    assert re.search(r"\b0 +0 s\b", by_table["healthy"])
    assert "Pending" in by_table["never"], "a new table is due at once"
    assert "Pending, paused" in by_table["paused"]


def test_the_same_for_machines(shop: Shop) -> None:
    shown = shop.run("status", "--format", "json")
    assert shown.exit_code == 1
    failing, healthy, never, paused = json.loads(shown.output)
    assert failing | {"table_id": 0} == {
        "path": "shop.failing",
        "table_id": 0,
        "status": "Failed",
        "tiering_epoch": 2,
        "last_tiered_ms": None,
        "last_error": "s3://lake: token=*** is refused",
        "last_error_ms": shop.clock.ms,
        "failures": 2,
        "next_attempt_ms": shop.clock.ms + 20_000,
        "lag_rows": 3,
        "lag_ms": 10_000,
        "lake_snapshot_id": None,
        "paused": False,
        "last_round_ms": None,
        "rounds": 2,
        "stopped": None,
        "accepted": None,
        "claimed_by": None,
        "deletes_as": None,
        "compaction_requested_ms": None,
        "lake_rows": None,
        "lake_files": None,
        "lake_bytes": None,
        "requested_ms": None,
        "claimed_ms": None,
        "note": None,
    }
    assert (healthy["status"], healthy["failures"], healthy["last_round_ms"]) == (
        "Scheduled",
        0,
        2_000,
    )
    assert (healthy["lag_rows"], healthy["lag_ms"]) == (0, 0)
    assert (never["last_tiered_ms"], never["tiering_epoch"]) == (None, 1)
    assert (paused["paused"], paused["next_attempt_ms"]) == (True, None)


@pytest.mark.parametrize(("table", "code"), [("healthy", 0), ("failing", 1), ("paused", 0)])
def test_the_exit_code_tells_of_the_table_asked_for(shop: Shop, table: str, code: int) -> None:
    assert shop.run("status", f"shop.{table}").exit_code == code


def test_the_conditions_that_rounds_wrote_down(tmp_path: Path) -> None:
    """On a cluster without the call, as an Apache Fluss: out of the table that rounds write."""
    patient = {"tiering_status_timeout_ms": 60_000, "tiering_backoff_ms": 3_600_000}
    with (
        plain_fluss(tmp_path / "plain", server_clock := Clock()) as cluster,
        connect(ClientConfig(cluster.address, **patient)) as client,
    ):
        client.admin.create_database("shop")
        shop = Shop(client, cluster.address, server_clock)
        failing, healthy, _ = (shop.create(name) for name in ("failing", "healthy", "never"))
        client.statuses.pause(shop.create("paused"))
        server_clock.ms += 60_000
        shop.fail(failing, "s3://lake: token=planted-secret is refused")
        claim = client.tiering.claim([healthy])
        assert claim is not None
        client.admin.set_options(healthy, {"table.datalake.freshness": "1d"})
        client.tiering.finished(claim)
        shown = shop.run("status", SLUICE_CLIENT_TIERING_STATUS_TIMEOUT_MS="60000")
    assert shown.exit_code == 1, "one of them is failing"
    lines = [line.split() for line in shown.output.splitlines() if line.startswith("shop.")]
    states = {line[0]: line[1].rstrip(",") for line in lines if not line[0].endswith(":")}
    assert states == {
        "shop.failing": "Failed",
        "shop.healthy": "Scheduled",
        "shop.never": "Unknown",
        "shop.paused": "Unknown",
    }
    assert "s3://lake: token=*** is refused" in shown.output
    assert "shop.never: Unknown: no round of Sluice is recorded" in shown.output
    assert "planted" not in shown.output


def test_status_of_a_table_that_is_not_there(shop: Shop) -> None:
    shown = shop.run("status", "shop.nobody")
    assert (shown.exit_code, "TableNotExist" in shown.output) == (1, True)


def test_pause_and_resume(shop: Shop) -> None:
    told = shop.run("pause", "shop.healthy")
    assert told.exit_code == 0
    assert "table shop.healthy: paused until `sluice resume shop.healthy`\n" in told.output
    shop.clock.ms += 3_600_000
    path = TablePath("shop", "healthy")
    assert shop.client.tiering.claim([path]) is None
    assert shop.run("resume", "shop.healthy").exit_code == 0
    assert shop.client.tiering.claim([path]) is not None


def test_retry_makes_a_failing_table_due(shop: Shop) -> None:
    path = TablePath("shop", "failing")
    assert shop.client.tiering.claim([path]) is None
    assert shop.run("retry", "shop.failing").exit_code == 0
    assert shop.run("status", "shop.failing").exit_code == 0, "its failures are forgotten"
    assert shop.client.tiering.claim([path]) is not None


def test_retry_of_a_healthy_table_says_that_nothing_had_failed(shop: Shop) -> None:
    told = shop.run("retry", "shop.failing")
    done = "table shop.failing: failures cleared, the next round may start now\n"
    assert done in told.output
    with structlog.testing.capture_logs() as logged:
        for table in ("shop.failing", "shop.healthy"):
            told = shop.run("retry", table)
            assert told.exit_code == 0
            assert told.output == f"table {table}: no failures to clear, nothing was changed\n"
    assert logged == [], "the server reports no change either"


def test_retier_of_a_paused_table_says_how_to_resume_it(shop: Shop) -> None:
    told = shop.run("retier", "shop.paused")
    assert told.exit_code == 0
    assert (
        "table shop.paused: a round is requested, and starts after `sluice resume shop.paused`\n"
    ) in told.output
    assert shop.client.tiering.claim([TablePath("shop", "paused")]) is None
    assert shop.run("resume", "shop.paused").exit_code == 0
    told = shop.run("retier", "shop.paused")
    assert (
        "table shop.paused: a round is requested; `sluice tier` or a DAG run starts it\n"
        in told.output
    )


def test_retier_does_not_wait_for_the_freshness(shop: Shop) -> None:
    path = TablePath("shop", "healthy")
    assert shop.client.tiering.claim([path]) is None
    assert shop.run("retier", "shop.healthy").exit_code == 0
    assert shop.client.tiering.claim([path]) is not None


def test_compact_requests_a_compaction_once(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice.client.user_requests.SystemClock", lambda: shop.clock)
    path = TablePath("shop", "healthy")
    asked_ms = shop.clock.ms
    for already in ("", " already"):
        told = shop.run("compact", "shop.healthy")
        done = f"a compaction is requested{already}: the table's next round makes it"
        assert (told.exit_code, told.stdout) == (0, f"table shop.healthy: {done}\n"), told.stderr
        [status] = shop.client.statuses.list(path)
        assert status.compaction_requested_ms == asked_ms
        shop.clock.ms += 1_000


@pytest.mark.parametrize("command", ["pause", "resume", "retry", "retier", "compact"])
def test_a_table_that_is_not_tiered_is_refused(shop: Shop, command: str) -> None:
    told = shop.run(command, "shop.plain")
    assert told.exit_code == 1
    assert "InvalidTable: table shop.plain is not tiered" in told.output


def test_watching_goes_on_while_the_server_is_away(capsys: pytest.CaptureFixture[str]) -> None:
    looks: list[int] = []

    def look() -> None:
        looks.append(1)
        if len(looks) == 2:
            raise NetworkError("grpc://127.0.0.1:1: connection refused")

    clock = Clock()
    with pytest.raises(KeyboardInterrupt):
        refresh(look, clock)
    assert (len(looks), clock.slept) == (3, [2.0, 2.0, 2.0])
    assert "connection refused" in capsys.readouterr().err


@pytest.mark.parametrize("output_format", ["json", "table"])
def test_ctrl_c_ends_watching_and_says_nothing(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, output_format: str
) -> None:
    """The clock's third sleep is where the user presses it."""
    monkeypatch.setattr("sluice.cli.tiering.status.SystemClock", Clock)
    shown = shop.run("status", "--watch", "--format", output_format)
    assert (shown.exit_code, "Aborted" in shown.output, shown.stderr) == (0, False, "")
    if output_format == "table":
        assert shown.stdout.count("shop.failing  Failed") == 3
        return
    looks = [json.loads(line) for line in shown.stdout.splitlines()]
    assert len(looks) == 3, "each look is one line"
    assert [entry["path"] for entry in looks[2]] == [
        f"shop.{name}" for name in ("failing", "healthy", "never", "paused")
    ]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (59, "59 s"), (185, "3 min 5 s"), (7_200, "2 h"), (90_061, "1 d 1 h")],
)
def test_spans(seconds: int, words: str) -> None:
    assert span(seconds) == words
