"""Every command that needs a cluster, where nothing listens at its address: one line, soon."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from sluice.cli.main import cli
from tests.support.network.ports import kept_port

COMMANDS = [
    ("status",),
    ("tables",),
    ("create-table", "shop.orders", "--schema", "id BIGINT NOT NULL"),
    ("append", "shop.orders", "{rows}"),
    ("delete", "shop.orders", "{rows}"),
    ("lookup", "shop.orders", "id=1"),
    ("snapshots", "shop.orders"),
    ("leases",),
    ("pause", "shop.orders"),
    ("resume", "shop.orders"),
    ("retry", "shop.orders"),
    ("retier", "shop.orders"),
    ("tier", "shop.orders", "--warehouse", "lake"),
    ("clean", "--warehouse", "."),
    ("repair", "shop.orders", "--warehouse", "."),
]


@pytest.mark.parametrize("scheme", ["grpc", "fluss"])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_refused_connection_is_one_line(
    command: tuple[str, ...], scheme: str, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("id\n1\n")
    words = [word.format(rows=rows) for word in command]
    with kept_port() as port:
        done = CliRunner().invoke(
            cli,
            [*words, "--bootstrap", f"{scheme}://127.0.0.1:{port}"],
            env={"SLUICE_CLIENT_CONNECT_TIMEOUT_MS": "50"},
        )
    assert done.exit_code == 1
    assert done.output == (
        f"sluice: NetworkError: nothing listens at 127.0.0.1:{port}: connection refused; start a"
        " server with `sluice serve`, or give the cluster's address by --bootstrap or"
        " SLUICE_CLIENT_BOOTSTRAP\n"
    )


def test_a_host_that_is_not_known_is_one_line() -> None:
    done = CliRunner().invoke(cli, ["status", "--bootstrap", "grpc://no-such-host.invalid:1"])
    assert done.exit_code == 1
    assert done.output.startswith(
        "sluice: NetworkError: the host name 'no-such-host.invalid' cannot be resolved"
    )
    assert done.output.endswith(
        "; give the cluster's address by --bootstrap or SLUICE_CLIENT_BOOTSTRAP\n"
    )
    assert done.output.count("\n") == 1
