"""A table whose rows the server numbers, by commands alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sluice.cli.main import cli
from sluice.config import ServerConfig
from sluice.server.cluster import EmbeddedCluster

Run = Callable[..., Result]
USERS = (
    "create-table",
    "shop.users",
    "--schema",
    "name STRING PRIMARY KEY, no BIGINT, city STRING",
)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    server = ServerConfig(str(tmp_path / "data"), listen="grpc://127.0.0.1:0")
    with EmbeddedCluster(server) as cluster:
        yield lambda *words: CliRunner().invoke(cli, [*words, "--bootstrap", cluster.address])


def written(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_new_rows_get_numbers_and_keep_them(run: Run, tmp_path: Path) -> None:
    made = run(*USERS, "--auto-increment", "no")
    assert made.exit_code == 0, made.output
    assert "primary key name, column no numbered by the server, will be tiered" in made.stdout
    for text in ("name,city\nann,Rome\nbob,Oslo\n", "name,city\nann,Bern\n"):
        sent = run("append", "shop.users", written(tmp_path / "users.csv", text))
        assert sent.exit_code == 0, sent.output
    part = written(tmp_path / "part.csv", "name\ncat\n")
    sent = run("append", "shop.users", part, "--columns", "name")
    assert sent.exit_code == 0, sent.output
    shown = run("lookup", "shop.users", "--format", "json")
    rows = {row["name"]: (row["no"], row["city"]) for row in json.loads(shown.stdout)}
    assert rows == {"ann": (1, "Bern"), "bob": (2, "Oslo"), "cat": (3, None)}


def test_a_file_with_numbers_of_its_own_is_refused(run: Run, tmp_path: Path) -> None:
    run(*USERS, "--auto-increment", "no")
    path = written(tmp_path / "users.csv", "name,no,city\nann,7,Rome\n")
    sent = run("append", "shop.users", path)
    assert sent.exit_code == 1
    assert sent.stderr == (
        f"sluice: InvalidFile: {path}: line 1: the server numbers column no, so a file cannot have"
        " it: leave it out, or write the others with --columns name,city\n"
    )
    sent = run("append", "shop.users", path, "--columns", "name,city")
    assert sent.exit_code == 0, sent.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*USERS, "--auto-increment", "non"), "no column 'non'; did you mean 'no'?"),
        (
            (*USERS, "--auto-increment", "city"),
            "column city has the type STRING; use INT or BIGINT",
        ),
        (
            ("create-table", "shop.u", "--schema", "name STRING, no INT", "--auto-increment", "no"),
            "only a table with a primary key has numbered rows",
        ),
        (
            (*USERS[:3], "no BIGINT PRIMARY KEY, city STRING", "--auto-increment", "no"),
            "column no is in the primary key",
        ),
        (
            (*USERS[:3], "name STRING PRIMARY KEY, no INT NOT NULL", "--auto-increment", "no"),
            "column no is NOT NULL: in a table with numbered rows only the key can be",
        ),
        (
            (*USERS[:3], "k INT PRIMARY KEY, no INT, n INT NOT NULL", "--auto-increment", "no"),
            "column n is NOT NULL: in a table with numbered rows only the key can be",
        ),
        (
            (*USERS[:3], "name STRING PRIMARY KEY, no BIGINT AUTO_INCREMENT"),
            "column no: AUTO_INCREMENT is not supported here; use --auto-increment no",
        ),
    ],
)
def test_what_fluss_cannot_number_is_refused_before_it_is_made(
    run: Run, words: tuple[str, ...], said: str
) -> None:
    made = run(*words)
    assert made.exit_code == 2
    assert said in made.stderr
    assert "no tables" in run("tables").output
