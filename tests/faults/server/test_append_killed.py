"""`sluice append` that breaks off, and the command that it prints: no row is lost.

The server dies at places that failpoints choose. A table with a primary key then has exactly the
rows of the file. A log may have rows twice, but no more than the command said.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.client import connect
from tests.support.programs.forked_server import ForkedServer
from tests.support.programs.processes import wait_for
from tests.support.tables.appending import ROWS, Appending, told


class Shop(Appending):
    """With a server of its own."""

    def __init__(self, home: Path) -> None:
        self.server = ForkedServer(home / "fluss")
        self.server.start()
        super().__init__(home, lambda: self.server.address)

    def restart(self, failpoints: str = "") -> None:
        self.server.kill()
        self.server.start(failpoints)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    yield made
    made.server.kill()


@pytest.mark.parametrize(
    ("layout", "name", "step"),
    [
        ("plain", "a.jsonl", "server.append.before_write"),
        ("round", "a.csv", "server.append.after_write"),
        ("keyed", "a.parquet", "server.append.before_write"),
        ("parted", "a.csv", "server.append.after_write"),
        ("primary", "a.csv", "server.append.after_write"),
        pytest.param("primary", "a.parquet", "server.append.before_write", marks=pytest.mark.slow),
    ],
)
def test_a_server_killed_while_rows_are_sent(shop: Shop, layout: str, name: str, step: str) -> None:
    """Whether the last batch was stored or not."""
    shop.create(layout)
    path = shop.file(name)
    shop.restart(f"{step}=kill@40")
    broken = shop.append(path)
    assert broken.wait() == 1
    assert broken.stderr.startswith("sluice: NetworkError: ")
    is_keyed = layout == "primary"
    again = "upserting them again changes nothing" if is_keyed else "appending them again"
    assert again in broken.stderr
    stored, doubtful, command = told(broken.stderr)
    assert 0 < stored < ROWS
    shop.restart()
    shop.check_first(stored)
    went_on = shop.run(*command)
    assert went_on.wait() == 0, went_on.stderr
    assert f"{ROWS - stored:,} rows {'upserted' if is_keyed else 'appended'} in" in went_on.stdout
    assert f" s, after the first {stored:,}\n" in went_on.stdout
    shop.check_whole(0 if is_keyed else doubtful)


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_a_command_that_is_stopped_says_how_to_continue(shop: Shop, number: signal.Signals) -> None:
    """A batch is on its way to a server that stands still, and the user has enough."""
    shop.create("round")
    path = shop.file("orders.csv")
    shop.restart("server.append.after_write=stop@20")
    command = shop.begin(*shop.words(path))
    wait_for("the server to stand still", lambda: shop.server.is_stopped)
    command.signal(number)
    assert command.wait() == 128 + number
    _, doubtful, words = told(command.stderr)
    shop.restart()
    done = shop.run(*words)
    assert done.wait() == 0, done.stderr
    shop.check_whole(doubtful)


def test_a_table_that_is_dropped_meanwhile_has_no_command_to_continue(shop: Shop) -> None:
    shop.create("plain")
    words = shop.words(shop.file("orders.csv"))
    command = shop.begin(*words, failpoints="client.write.sending=stop@20")
    wait_for("the command to stand still", lambda: command.is_stopped)
    with connect(shop.address()) as client:
        client.admin.drop_table(shop.table)
    command.signal(signal.SIGCONT)
    assert command.wait() == 1
    assert command.stderr.startswith("sluice: TableNotExist: ")
    assert " of 60,000 rows of orders.csv are acknowledged" in command.stderr
    assert command.stderr.endswith("; `sluice tables` lists all tables\n")
