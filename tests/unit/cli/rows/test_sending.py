"""The command that `sluice append` prints when it breaks off can be copied, and shows no secret."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable

import pytest

from sluice.cli.rows.append import append
from sluice.cli.rows.sending import _command, with_advice
from sluice.errors import NetworkError
from tests.support.tables.append_shop import ORDERS, ROWS, Shop


@pytest.mark.parametrize("name", ["my  rows.csv", "token=abcdefgh.csv", "-x.csv", "it's $HOME.csv"])
def test_what_is_printed_can_be_copied(
    shop: Shop, breaks: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    shop.create(ORDERS)
    shop.file(name=name)
    monkeypatch.chdir(shop.home)
    breaks(60)
    said = shop.run("append", str(shop.table), "--create-partitions", "--", name, fails=1)
    breaks(0)
    before, _, command = said.partition("Continue with:\n")
    assert before.startswith("sluice: UnknownServerError: ")
    assert before.count("\n") == 0, "the error is one line"
    read = subprocess.run(
        ["sh", "-c", f"printf '%s\\0' {command}"], capture_output=True, check=True, cwd=shop.home
    ).stdout
    words = os.fsdecode(read).split("\0")[:-1]
    assert name in words
    assert words[:2] == ["sluice", "append"]
    assert str(shop.table) in words
    assert command.count("\n") == 1, "no name begins a line of its own"
    shop.run(*words[1:])
    assert set(shop.ids()) == set(range(ROWS))


def command(*words: str) -> tuple[str, str]:
    with append.make_context("append", list(words)):
        return _command(7)


def test_a_password_is_not_printed() -> None:
    address = "grpc://jane:Secret99@fluss.example:9123"
    told = command("shop.orders", __file__, "--bootstrap", address)
    assert told == (
        f"sluice append shop.orders {__file__} --bootstrap ADDRESS --skip-rows 7",
        ". Replace ADDRESS with your --bootstrap",
    )
    plain, hidden = command("shop.orders", __file__, "--bootstrap", "grpc://h:1")
    assert plain.endswith("--bootstrap grpc://h:1 --skip-rows 7")
    assert hidden == ""


def test_words_that_look_like_options_stand_behind_the_options(
    tmp_path: os.PathLike, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-x.csv").touch()
    given, _ = command("--columns", "a b,c", "--skip-rows", "3", "--", "s.o", "-x.csv")
    assert given == "sluice append --columns 'a b,c' --skip-rows 7 -- s.o -x.csv"
    context = append.make_context("append", shlex.split(given)[2:])
    assert context.params["skip_rows"] == 7


def test_an_error_has_its_command_beside_its_text() -> None:
    error = with_advice(NetworkError("gone", a=1), "It ended. Continue with:", "sluice append  x")
    assert (type(error), str(error)) == (NetworkError, "gone. It ended. Continue with:")
    assert (error.__notes__, error.details) == (["sluice append  x"], {"a": 1})
