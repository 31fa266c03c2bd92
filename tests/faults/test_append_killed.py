"""`sluice append` that breaks off, and the command that it prints: each row is there once.

Server and client die at places that failpoints choose. What is in the log afterwards must be the
file: as many rows, each once.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.client import connect
from tests.support.programs.forked_server import ForkedServer
from tests.support.programs.processes import wait_for
from tests.support.tables.appending import LAYOUTS, ROWS, Appending, told

SERVER, CLIENT = ("before_write", "after_write"), ("noted", "answered")


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
    ("layout", "step"),
    [
        ("plain", "server.append.before_write"),
        ("round", "server.append.after_write"),
        ("keyed", "server.append.before_write"),
        ("parted", "server.append.after_write"),
    ],
)
def test_a_server_killed_while_rows_are_sent(shop: Shop, layout: str, step: str) -> None:
    """Whether the last batch was stored or not: the printed command brings each row once."""
    shop.create(layout)
    path = shop.file("orders.csv")
    shop.restart(f"{step}=kill@40")
    broken = shop.append(path)
    assert broken.wait() == 1
    assert broken.stderr.startswith("sluice: NetworkError: ")
    stored, command = told(broken.stderr)
    assert 0 < stored < ROWS
    shop.restart()
    shop.check_first(stored)
    refused = shop.append(path)
    assert refused.wait() == 2, "nobody said what to do about the run that broke off"
    assert told(refused.stderr) == (stored, command)
    went_on = shop.run(*command)
    assert went_on.wait() == 0, went_on.stderr
    assert f"{ROWS - stored:,} rows appended in " in went_on.stdout
    assert f" s, after the first {stored:,}\n" in went_on.stdout
    shop.check_whole()


@pytest.mark.parametrize(
    ("layout", "name", "step"),
    [
        ("round", "a.csv", "client.write.noted"),
        pytest.param("parted", "a.parquet", "client.write.answered", marks=pytest.mark.slow),
    ],
)
def test_a_command_killed_again_and_again(shop: Shop, layout: str, name: str, step: str) -> None:
    """kill -9 leaves no time for a word: the next run of the same file says it."""
    shop.create(layout)
    path = shop.file(name)
    assert shop.append(path, f"{step}=kill@7").wait() == -signal.SIGKILL
    last = 0
    for _ in range(2):
        stored, command = told(shop.append(path).stderr)
        assert stored >= last
        shop.check_first(stored)
        last = stored
        assert shop.run(*command, failpoints=f"{step}=kill@11").wait() == -signal.SIGKILL
    _, command = told(shop.append(path).stderr)
    done = shop.run(*command)
    assert done.wait() == 0, done.stderr
    shop.check_whole()


def test_a_command_killed_while_it_checks_leaves_what_was_noted(shop: Shop) -> None:
    """With --again, too: the earlier run's record goes when rows are sent, not before."""
    shop.create("plain")
    path = shop.file("a.parquet")
    assert shop.append(path, "client.write.noted=kill@7").wait() == -signal.SIGKILL
    again = (*shop.words(path), "--again")
    assert shop.run(*again, failpoints="client.append.checked=kill").wait() == -signal.SIGKILL
    _, command = told(shop.append(path).stderr)
    done = shop.run(*command)
    assert done.wait() == 0, done.stderr
    shop.check_whole()


@pytest.mark.parametrize("step", ["made", "replaced"])
def test_a_command_killed_while_it_replaces_a_record(shop: Shop, step: str) -> None:
    """Either the earlier run's record is there, or the new one; nothing was sent yet."""
    shop.create("plain")
    path = shop.file("a.parquet")
    assert shop.append(path, "client.write.noted=kill@7").wait() == -signal.SIGKILL
    stored, _ = told(shop.append(path).stderr)
    before = len(shop.ids())
    killed = shop.run(*shop.words(path), "--again", failpoints=f"client.append.record_{step}=kill")
    assert killed.wait() == -signal.SIGKILL
    assert len(shop.ids()) == before
    left, command = told(shop.append(path).stderr)
    assert left == (stored if step == "made" else 0)
    done = shop.run(*command)
    assert done.wait() == 0, done.stderr
    assert len(shop.ids()) == ROWS + (0 if step == "made" else before)
    assert not list((shop.home / "state").rglob("*.*"))


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_a_command_that_is_stopped_says_how_to_go_on(shop: Shop, number: signal.Signals) -> None:
    """A batch is on its way to a server that stands still, and the user has enough."""
    shop.create("round")
    path = shop.file("orders.csv")
    shop.restart("server.append.after_write=stop@20")
    command = shop.begin(*shop.words(path))
    wait_for("the server to stand still", lambda: shop.server.is_stopped)
    command.signal(number)
    assert command.wait() == 128 + number
    _, words = told(command.stderr)
    shop.restart()
    done = shop.run(*words)
    assert done.wait() == 0, done.stderr
    shop.check_whole()


def test_a_table_that_is_dropped_meanwhile_has_no_command_to_go_on(shop: Shop) -> None:
    shop.create("plain")
    words = shop.words(shop.file("orders.csv"))
    command = shop.begin(*words, failpoints="client.write.noted=stop@20")
    wait_for("the command to stand still", lambda: command.is_stopped)
    with connect(shop.address()) as client:
        client.admin.drop_table(shop.table)
    command.signal(signal.SIGCONT)
    assert command.wait() == 1
    assert command.stderr.startswith("sluice: TableNotExist: ")
    hint = "; `sluice tables` lists all tables\n"
    assert command.stderr.endswith(f" of 60,000 rows of orders.csv are stored{hint}")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
def test_both_killed_at_some_time(shop: Shop, seed: int) -> None:
    """Whoever dies, and when: each row is there once in the end."""
    chance = random.Random(os.environ.get("APPEND_SEED", seed))
    shop.create(chance.choice(sorted(LAYOUTS)))
    path = shop.file(chance.choice(["a.csv", "a.parquet"]))
    words = shop.words(path)
    for _ in range(4):
        at, is_server = chance.randrange(1, 60), chance.random() < 0.5
        role, steps = ("server.append", SERVER) if is_server else ("client.write", CLIENT)
        dies = f"{role}.{chance.choice(steps)}=kill@{at}"
        if is_server:
            shop.restart(dies)
        broken = shop.run(*words, failpoints="" if is_server else dies)
        shop.restart()
        if broken.wait() == 0:
            break
        refused = shop.append(path)
        if refused.wait() == 0:  # it had died before its first batch
            break
        _, words = told(refused.stderr)
    else:
        done = shop.run(*words)
        assert done.wait() == 0, done.stderr
    shop.check_whole()
