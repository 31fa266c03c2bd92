"""`sluice append` and `sluice delete` by a user who may only read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from sluice.cli.main import cli
from sluice.config import ServerConfig
from sluice.server.cluster import EmbeddedCluster

TOKENS = {"ann": "ann-token-1234567890", "bob": "bob-token-1234567890"}
REFUSED = (
    "{call} needs the role write; 'bob' has the role read: use another token, or change the role in"
    " the users file. Nothing was sent\n"
)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("guarded")
    roles = {"ann": "admin", "bob": "read"}
    lines = [
        f"{name} {role} {hashlib.sha256(TOKENS[name].encode()).hexdigest()}\n"
        for name, role in roles.items()
    ]
    (folder / "users").write_text("".join(lines))
    config = ServerConfig(
        str(folder / "data"), listen="grpc://127.0.0.1:0", users_file=str(folder / "users")
    )
    with EmbeddedCluster(config) as cluster:
        yield cluster.address


def run(address: str, user: str, *words: str, fails: int = 0) -> str:
    env = {
        "SLUICE_CLIENT_BOOTSTRAP": address,
        "SLUICE_CLIENT_TOKEN": TOKENS[user],
    }
    done = CliRunner().invoke(cli, words, env=env)
    assert done.exit_code == fails, done.output
    return done.stderr


@pytest.mark.parametrize(
    ("table", "schema", "command", "call"),
    [
        ("shop.log", "id BIGINT", "append", "InitWriter"),
        ("shop.keyed", "id BIGINT, PRIMARY KEY (id)", "append", "InitWriter"),
        ("shop.deleted", "id BIGINT, PRIMARY KEY (id)", "delete", "InitWriter"),
    ],
)
def test_a_reader_is_told_the_role_and_not_to_resume(
    table: str, schema: str, command: str, call: str, address: str, tmp_path: Path
) -> None:
    run(address, "ann", "create-table", table, "--schema", schema)
    file = tmp_path / "rows.csv"
    file.write_text("id\n1\n2\n")
    said = run(address, "bob", command, table, str(file), fails=1)
    assert said == f"sluice: AuthorizationError: {REFUSED.format(call=call)}"
    run(address, "ann", command, table, str(file))
