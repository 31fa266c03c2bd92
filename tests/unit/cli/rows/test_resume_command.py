"""The command that `sluice append` prints when it breaks off can be copied, and shows no secret."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable

import pytest

from sluice.cli.rows.append import append
from sluice.cli.rows.resume_command import Advice, ResumeCommand
from sluice.errors import NetworkError
from tests.support.tables.append_shop import ORDERS, ROWS, Shop


@pytest.mark.parametrize(
    "name", ["my  rows.csv", "token=abcdefgh.csv", "-x.csv", "two\nlines.csv", "it's $HOME.csv"]
)
def test_what_is_printed_can_be_copied(
    shop: Shop, breaks: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    shop.create(ORDERS)
    shop.file(name=name)
    monkeypatch.chdir(shop.home)
    breaks(60)
    said = shop.run("append", str(shop.table), "--create-partitions", "--", name, fails=1)
    breaks(0)
    before, _, command = said.partition("Resume with:\n")
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
    assert sorted(shop.ids()) == list(range(ROWS))


def command(*words: str) -> ResumeCommand:
    with append.make_context("append", list(words)) as context:
        return ResumeCommand(context)


def test_a_password_is_not_printed() -> None:
    address = "grpc://jane:Secret99@fluss.example:9123"
    told = command("shop.orders", __file__, "--bootstrap", address).advice("It ended", 7)
    assert told.text == "It ended. Replace ADDRESS with your --bootstrap. Resume with:"
    assert told.command == f"sluice append shop.orders {__file__} --bootstrap ADDRESS --skip-rows 7"
    plain = command("shop.orders", __file__, "--bootstrap", "grpc://h:1").advice("It ended", 7)
    assert plain.text == "It ended. Resume with:"
    assert "--bootstrap grpc://h:1 --skip-rows 7" in str(plain.command)


def test_words_that_look_like_options_stand_behind_the_options(
    tmp_path: os.PathLike, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-x.csv").touch()
    given = command("--columns", "a b,c", "--again", "--skip-rows", "3", "--", "s.o", "-x.csv")
    assert (
        given.advice("", 7).command == "sluice append --columns 'a b,c' --skip-rows 7 -- s.o -x.csv"
    )
    again = given.advice("", 7, again=True).command
    assert again == "sluice append --columns 'a b,c' --again --skip-rows 7 -- s.o -x.csv"
    context = append.make_context("append", shlex.split(str(again))[2:])
    assert context.params["skip_rows"] == 7


def test_an_error_has_its_command_beside_its_text(capsys: pytest.CaptureFixture[str]) -> None:
    error = Advice("It ended. Resume with:", "sluice append  x").added_to(NetworkError("gone", a=1))
    assert (type(error), str(error)) == (NetworkError, "gone. It ended. Resume with:")
    assert (error.__notes__, error.details) == (["sluice append  x"], {"a": 1})
    Advice("It ended. Resume with:", "sluice append  x").say()
    assert capsys.readouterr().err == "It ended. Resume with:\nsluice append  x\n"
