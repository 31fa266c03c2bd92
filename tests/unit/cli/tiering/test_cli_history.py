"""`sluice history` on a cluster that keeps a history, and on one where rounds keep it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from sluice.cli.main import cli
from sluice.cli.tiering.history import print_rounds, print_wide
from sluice.config import ServerConfig
from sluice.model import Reason, TablePath, TieringRound
from sluice.model.record_fields import fields_of
from sluice.server.cluster import EmbeddedCluster
from tests.support.statuses.status_shop import OwnClock, Shop, status_shop

SECRET = "s3://lake: token=planted-secret is refused"
DID = TieringRound(
    outcome="committed",
    rows_written=1_500,
    keys_deleted=0,
    files_written=2,
    bytes_read=9_000,
    bytes_written=12_300,
    lag_rows_before=1_500,
    lag_rows_after=0,
    lake_snapshot_id=7_700_077,
    copy_ms=1_234,
    worker="run-7",
)
NOTED = replace(DID, note="partition mon (id 5) was dropped: no row was tiered")
CUT = replace(DID, keys_deleted=40, lag_rows_after=500, note="ended early after 9 s: 500 rows left")


@pytest.fixture(params=["keeps statuses", "like Apache Fluss"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    """With a table of four rounds: committed, failed twice, committed early."""
    with ExitStack() as stack:
        if request.param == "like Apache Fluss":
            shop = stack.enter_context(status_shop(tmp_path / "data"))
        else:
            clock = OwnClock()
            config = ServerConfig(data_dir=str(tmp_path / "data"), listen="grpc://127.0.0.1:0")
            cluster = stack.enter_context(EmbeddedCluster(config, clock))
            shop = Shop(cluster, clock, stack)
        yield shop


@pytest.fixture
def orders(shop: Shop) -> TablePath:
    path = shop.create("orders")
    tiering = shop.client.tiering
    for details in (NOTED, None, None, CUT):
        claim = shop.claim(path)
        shop.clock.ms += 2_500
        if details is None:
            tiering.failed(claim, Reason.from_text(SECRET))
        else:
            tiering.finished(claim, details=details)
    return path


def run(shop: Shop, *arguments: str) -> Result:
    environment = {
        "SLUICE_CLIENT_BOOTSTRAP": shop.address,
        "SLUICE_CLIENT_TIERING_STATUS_TIMEOUT_MS": "60000",
    }
    return CliRunner().invoke(cli, ["history", *arguments], env=environment)


@pytest.mark.usefixtures("orders")
def test_the_newest_rounds_of_a_table(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice.cli.tiering.history.SystemClock", lambda: shop.clock)
    shown = run(shop, "shop.orders")
    assert shown.exit_code == 0, shown.output
    headings, _, *lines = (" ".join(line.split()) for line in shown.stdout.splitlines())
    assert headings == "ended outcome duration rows deletes files bytes lag"
    assert lines == [
        "0 s ago committed 2.5 s 1,500 40 2 12.3 kB 1,500 → 500",
        "1 min ago failed 2.5 s",
        "2 min ago failed 2.5 s",
        "3 min ago committed 2.5 s 1,500 0 2 12.3 kB 1,500 → 0",
        "2 rounds failed, the last 1 min ago: s3://lake: token=*** is refused",
        "1 round ended early 0 s ago: after 9 s: 500 rows left",
        "1 round noted 3 min ago: partition mon (id 5) was dropped: no row was tiered",
    ]
    limited = run(shop, "shop.orders", "--limit", "1").stdout.splitlines()[2:]
    assert [line.split()[3] for line in limited] == ["committed", "early"]
    assert run(shop, "shop.orders", "--limit", "101").exit_code == 2


@pytest.mark.usefixtures("orders")
def test_wide_and_json_have_every_field(shop: Shop) -> None:
    wide = run(shop, "shop.orders", "--wide").stdout.splitlines()
    for entry in fields_of(TieringRound):
        assert entry.heading in wide[0]
    assert wide[0].split()[-2:] == ["reason", "note"]
    assert "2026-09-21 14:1" in wide[2]
    assert "1.2 s" in wide[2]
    assert "7700077" in wide[2], "an id is no number"
    assert wide[2].endswith("ended early after 9 s: 500 rows left")
    assert wide[3].rstrip().endswith("s3://lake: token=*** is refused")
    newest, failed, _, first = json.loads(run(shop, "shop.orders", "--format", "json").stdout)
    assert list(newest) == sorted(["path", *(entry.name for entry in fields_of(TieringRound))])
    assert (newest["path"], newest["round_number"], first["round_number"]) == ("shop.orders", 4, 1)
    assert newest["ended_ms"] - newest["started_ms"] == 2_500
    assert (newest["copy_ms"], newest["worker"], newest["reason"]) == (1_234, "run-7", None)
    assert (failed["outcome"], failed["reason"]) == ("failed", "s3://lake: token=*** is refused")
    assert failed["rows_written"] is None


def test_a_table_without_rounds(shop: Shop) -> None:
    shop.create("orders")
    shop.create("plain", **{"table.datalake.enabled": "false"})
    shown = run(shop, "shop.orders")
    assert (shown.exit_code, shown.stdout) == (
        0,
        "no round of table shop.orders is recorded yet: `sluice tier` and the DAG record one at its"
        " end\n",
    )
    assert json.loads(run(shop, "shop.orders", "--format", "json").stdout) == []
    assert "table shop.plain is not tiered: " in run(shop, "shop.plain").stdout
    missing = run(shop, "shop.order")
    assert missing.exit_code == 1
    assert "TableNotExist" in missing.stderr
    assert "did you mean 'shop.orders'?" in missing.stderr


def test_what_was_compacted_is_told_if_nothing_else_shows_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Also why a requested compaction was left out."""
    idle = TieringRound(outcome="nothing_new", ended_ms=0, compacted="3 data files of 1 bucket")
    idle = replace(idle, files_compacted=3)
    asked = replace(DID, ended_ms=0, compacted="8 data files of 2 buckets", files_compacted=8)
    asked = replace(asked, compaction_request_ms=7)
    left = replace(DID, ended_ms=0, compacted="1 bucket left out: no disk", files_compacted=0)
    usual = replace(DID, ended_ms=0, compacted="9 data files of 4 buckets", files_compacted=9)
    print_rounds([idle, asked, left, usual], 2_000, "")
    lines = capsys.readouterr().out.splitlines()[6:]
    assert lines == [
        "1 round noted 2 s ago: 3 data files of 1 bucket",
        "1 round noted 2 s ago: 8 data files of 2 buckets",
        "1 round noted 2 s ago: 1 bucket left out: no disk",
    ]


@pytest.mark.parametrize("columns", [80, 60])
def test_a_terminal_gets_its_width(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    for name, value in (("FORCE_COLOR", "1"), ("COLUMNS", str(columns)), ("TERM", "xterm")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    ended = replace(CUT, started_ms=0, ended_ms=2_500)
    failed = replace(ended, outcome="failed", note=None, reason="/lake " * 200)
    unknown = TieringRound(outcome="finished")
    rounds = [ended, failed, replace(ended, outcome="nothing_new"), unknown]
    print_rounds(rounds, 60_000, "")
    coloured = capsys.readouterr().out
    lines = [line.rstrip() for line in click.unstyle(coloured).splitlines()]
    assert max(map(len, lines)) <= columns
    assert "\x1b[31mfailed" in coloured
    assert "".join(lines).count("/lake") == 200, "reasons are complete"
    if columns == 80:
        assert lines[2] == (
            "57 s ago  committed    2.5 s     1,500       40      2  12.3 kB  1,500 → 500"
        )
    print_wide(rounds, "")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + len(rounds), "no cell is folded"
    assert lines[2].endswith(str(CUT.note))
