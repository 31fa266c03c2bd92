"""`sluice status` and `retry` on a Fluss whose status table cannot be read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sluice.cli.main import cli
from sluice.client.statuses.status_table import StatusTable
from sluice.errors import RequestTimeOut
from sluice.model import Reason, TablePath
from tests.support.statuses.status_shop import Shop, status_shop


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with status_shop(tmp_path / "data") as shop:
        yield shop


@pytest.fixture
def failing(shop: Shop) -> TablePath:
    path = shop.create("failing")
    shop.client.tiering.failed(shop.claim(path), Reason.from_text("no such bucket"))
    return path


def run(shop: Shop, *arguments: str) -> Result:
    environment = {
        "SLUICE_CLIENT_BOOTSTRAP": shop.address,
        "SLUICE_CLIENT_TIERING_STATUS_TIMEOUT_MS": "60000",
    }
    return CliRunner().invoke(cli, arguments, env=environment)


def once_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next read fails."""
    read, calls = StatusTable.read, []

    def reading(table: StatusTable, ids: Any) -> Any:
        calls.append(ids)
        if len(calls) == 1:
            raise RequestTimeOut("it is away")
        return read(table, ids)

    monkeypatch.setattr(StatusTable, "read", reading)


@pytest.mark.usefixtures("failing")
@pytest.mark.parametrize("form", [[], ["--format", "json"]])
def test_statuses_that_cannot_be_read_are_an_error(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, form: list[str]
) -> None:
    once_away(monkeypatch)
    shown = run(shop, "status", *form)
    assert shown.exit_code == 1
    said = "table sluice.tiering_status cannot be read: RequestTimeOut: it is away\n"
    assert shown.stderr.endswith(said)
    if form:
        (entry,) = json.loads(shown.stdout)
        assert (entry["status"], entry["failures"], entry["paused"]) == ("Unknown", None, None)
    else:
        assert "shop.failing  Unknown" in shown.stdout


def test_retry_does_not_say_that_nothing_had_failed(
    shop: Shop, failing: TablePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    once_away(monkeypatch)
    told = run(shop, "retry", str(failing))
    assert told.exit_code == 0
    assert "table shop.failing: failures cleared" in told.output
    assert shop.status(failing).failures == 0
    told = run(shop, "retry", str(failing))
    assert "table shop.failing: no failures to clear, nothing was changed" in told.output
