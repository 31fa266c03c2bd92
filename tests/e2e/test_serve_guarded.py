"""`sluice serve` with TLS and users on an address that others reach, and what commands say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sluice.cli.main import cli
from tests.support.harness.contents import contents
from tests.support.network.certificates import Authority, authority
from tests.support.network.users import ANY_TOKEN, TOKENS, write_users
from tests.support.programs.processes import SLUICE, ServerProcess, sluice


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    files = authority().sign(tmp_path / "tls")
    (tmp_path / "ca.pem").write_text(authority().pem)
    server = ServerProcess(tmp_path / "data")
    server.address = "grpc://0.0.0.0:0"
    server.command = (
        *(SLUICE, "serve", "--log-level", "debug", "--listen", "fluss://0.0.0.0:0"),
        *("--tls-certificate", str(files.certificate), "--tls-key", str(files.key)),
        *("--users-file", str(write_users(tmp_path / "users"))),
    )
    server.start()
    yield server
    server.stop()


def run(server: ServerProcess, *arguments: str, **environment: str) -> Result:
    """A command in this process, as a shell on this machine would give it."""
    address = server.address.replace("0.0.0.0", "127.0.0.1")
    variables = {f"SLUICE_CLIENT_{name.upper()}": value for name, value in environment.items()}
    return CliRunner().invoke(cli, [*arguments, "--bootstrap", address], env=variables)


def test_commands_before_a_guarded_server(server: ServerProcess, tmp_path: Path) -> None:
    ca = str(tmp_path / "ca.pem")
    create = ("create-table", "shop.orders", "--schema", "id BIGINT")
    read, write, admin = ANY_TOKEN["read"], ANY_TOKEN["write"], ANY_TOKEN["admin"]
    assert run(server, *create, token=admin, tls_ca=ca).exit_code == 0
    good = run(server, "tables", token=read, tls_ca=ca)
    assert (good.exit_code, "orders" in good.output) == (0, True)
    (tmp_path / "other.pem").write_text(Authority("other").pem)
    other = str(tmp_path / "other.pem")
    said = []
    for result, code, told in (
        (run(server, "tables", tls_ca=ca), 1, "AuthenticateError: the server requires a bearer"),
        (
            run(server, "tables", tls_ca=ca, token="gues-sed"),
            1,
            "AuthenticateError: the token is wrong",
        ),
        (run(server, *create, tls_ca=ca, token=write), 1, "needs the role admin; 'wim' has the"),
        (run(server, "tables", token=read), 1, "TlsError: .* speaks TLS on this port: set client"),
        (run(server, "tables", token=read, tls="true"), 1, "TlsError: .* no authority that this"),
        (run(server, "tables", token=read, tls_ca=other), 1, "TlsError: .* no authority that"),
        (run(server, "tables", token=read, tls_ca="/no"), 2, "client.tls_ca: /no: No such file"),
        (run(server, "tables", token="a b", tls_ca=ca), 2, "client.token has a space"),
    ):
        assert (result.exit_code, result.stdout) == (code, "")
        assert re.match(f"sluice: .*{told}", result.stderr), result.stderr
        assert result.stderr.count("\n") == 1
        said.append(result.output)
    by_name = server.address.replace("0.0.0.0", "localhost")
    process = sluice("tables", "--bootstrap", by_name, SLUICE_CLIENT_TOKEN=read)
    assert (process.returncode, process.stdout) == (1, "")
    assert process.stderr.startswith("sluice: TlsError: ")
    assert process.stderr.count("\n") == 1  # and nothing of gRPC's own
    log = server.log.read_text()
    for secret in (*ANY_TOKEN.values(), "gues-sed"):
        assert secret not in log + "".join(said)
    for _, held in contents(server.data_dir):
        assert not [token for _, token in TOKENS.values() if token.encode() in held]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--tls-key", "k"), "server.tls_certificate is not set"),
        (("--tls-certificate", "nowhere", "--tls-key", "k"), "nowhere: No such file"),
        (("--users-file", "nowhere"), "server.users_file: nowhere: No such file"),
        (("--listen", "grpc://0.0.0.0:0"), r"lacks TLS .* and logins .*--insecure"),
        (("--listen", "fluss://0.0.0.0:0"), r"lacks logins .--users-file.: .*--insecure"),
    ],
)
def test_what_serve_refuses(tmp_path: Path, arguments: tuple[str, ...], told: str) -> None:
    data = tmp_path / "data"
    result = CliRunner().invoke(cli, ["serve", "--data-dir", str(data), *arguments])
    assert result.exit_code == 2
    assert re.match(f"sluice: .*{told}", result.stderr), result.stderr
    assert result.stderr.count("\n") == 1
    assert not data.exists()
