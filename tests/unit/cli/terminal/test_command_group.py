"""Arguments and variables with bytes that are not UTF-8, as a shell with another encoding sends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from sluice.cli.main import cli
from sluice.config import ServerConfig
from sluice.server.cluster import EmbeddedCluster
from tests.support.programs.processes import sluice

BAD = "b\udce4d"
"""``bäd`` in Latin-1, as Python reads it from the command line."""
NEW = ("create-table", "shop.new", "--schema", "id INT")
END = "is not UTF-8; write it in UTF-8"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    config = ServerConfig(str(tmp_path_factory.mktemp("data")), listen="grpc://127.0.0.1:0")
    with EmbeddedCluster(config) as cluster:
        yield cluster.address


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("create-table", f"shop.{BAD}", "--schema", "id INT"), r"TABLE: b'shop.b\xe4d'"),
        (("create-table", "shop.new", "--schema", f"{BAD} INT"), r"--schema: b'b\xe4d INT'"),
        ((*NEW, "--property", "a=1", "--property", f"{BAD}=1"), r"--property: b'b\xe4d=1'"),
        ((*NEW, f"--property=a={BAD}"), r"--property: b'a=b\xe4d'"),
        (("status", f"shop.{BAD}"), r"TABLE: b'shop.b\xe4d'"),
        (("tables", BAD), r"DATABASE: b'b\xe4d'"),
        (("lookup", "shop.stock", f"item={BAD}"), r"[COLUMN=VALUE]...: b'item=b\xe4d'"),
        (("tier", "shop.stock", "--warehouse", BAD), r"--warehouse: b'b\xe4d'"),
        (("leases", "drop", BAD), r"ID: b'b\xe4d'"),
        (("tables", "--bootstrap", f"grpc://{BAD}:1"), r"--bootstrap: b'grpc://b\xe4d:1'"),
        (("sql", f"SELECT '{BAD}'"), "QUERY: b\"SELECT 'b\\xe4d'\""),
        (
            ("sql", f"SELECT '{'long ' * 40}{BAD}{' long' * 40}'"),
            rf"QUERY: ...b'{('long ' * 8)[1:]}b\xe4d{(' long' * 8)[:-1]}'...",
        ),
    ],
)
def test_an_argument_is_named_with_its_bytes(
    words: tuple[str, ...], told: str, address: str
) -> None:
    done = CliRunner().invoke(cli, words, env={"SLUICE_CLIENT_BOOTSTRAP": address})
    assert (done.exit_code, done.stdout) == (2, "")
    command = " ".join(words[:2] if words[0] == "leases" else words[:1])
    assert done.stderr == f"sluice: {told} {END}; see `sluice {command} --help`\n"


def test_a_variable_is_named_without_its_value(address: str) -> None:
    done = sluice("tables", SLUICE_CLIENT_BOOTSTRAP=address, SLUICE_CLIENT_USERNAME=BAD)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "sluice: SLUICE_CLIENT_USERNAME: byte 2 of the value (0xe4) is not UTF-8; set it in UTF-8\n"
    )


def test_files_and_folders_may_have_any_name(address: str, tmp_path: Path) -> None:
    (tmp_path / f"{BAD}.csv").write_text("id\n1\n")
    (tmp_path / f"{BAD}.toml").write_text(f'[client]\nbootstrap = "{address}"\n')
    options = ("--config", str(tmp_path / f"{BAD}.toml"))
    for words in (NEW, ("append", "shop.new", str(tmp_path / f"{BAD}.csv"))):
        done = sluice(*words, *options, SLUICE_SERVER_DATA_DIR=str(tmp_path / BAD))
        assert (done.returncode, done.stderr) == (0, "")


def test_an_argument_of_the_process_has_the_bytes_too(address: str) -> None:
    done = sluice("status", f"shop.{BAD}", SLUICE_CLIENT_BOOTSTRAP=address)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(rf"sluice: TABLE: b'shop.b\xe4d' {END}")
