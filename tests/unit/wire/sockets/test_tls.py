"""TLS and bearer tokens between a real gRPC server and the transport: what works, what fails."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sluice.client.connection.addresses import Address, open_transport
from sluice.config import ClientConfig
from sluice.errors import (
    AuthenticateError,
    AuthorizationError,
    ConfigurationError,
    NetworkError,
    RecordTooLarge,
    TlsError,
)
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Api, Role
from sluice.wire.grpc.server import GrpcLimits, GrpcServer
from sluice.wire.listeners.tokens import UsersFile
from sluice.wire.sockets.tls import ServerTls
from tests.support.network.certificates import Authority, Files, authority
from tests.support.network.ports import kept_port
from tests.support.network.users import ANY_TOKEN, TOKENS, write_users

EXISTS = pb.DatabaseExistsRequest(database_name="db")
Start = Callable[..., str]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a server; answers ``HOST:PORT``."""
    running: list[GrpcServer] = []

    def make(files: Files | None = None, tokens: UsersFile | None = None) -> str:
        handlers: Any = {
            Role.COORDINATOR: {
                apis.DATABASE_EXISTS: lambda _: pb.DatabaseExistsResponse(exists=True),
                apis.DROP_DATABASE: lambda _: pb.DropDatabaseResponse(),
            }
        }
        server = GrpcServer(
            handlers,
            "127.0.0.1",
            0,
            limits=GrpcLimits(max_message_bytes=1 << 20, max_workers=2),
            tls=ServerTls(files.certificate, files.key) if files else None,
            tokens=tokens,
        )
        running.append(server)
        return f"127.0.0.1:{server.start()}"

    yield make
    for server in running:
        server.stop(0)


def ask(target: str, api: Api = apis.DATABASE_EXISTS, **config: Any) -> Any:
    transport = open_transport(Address.parse(f"grpc://{target}"), ClientConfig(**config))
    request = EXISTS if api is apis.DATABASE_EXISTS else pb.DropDatabaseRequest(database_name="db")
    if api is apis.DROP_DATABASE:
        request = pb.DropDatabaseRequest(
            database_name="db", ignore_if_not_exists=True, cascade=True
        )
    try:
        return transport.call(Role.COORDINATOR, api, request, 60_000)
    finally:
        transport.close()


def named(target: str) -> str:
    return target.replace("127.0.0.1", "localhost")


@pytest.mark.parametrize("by_name", [False, True])
def test_tls_by_address_and_by_name(start: Start, tmp_path: Path, by_name: bool) -> None:
    target = start(authority().sign(tmp_path))
    assert ask(named(target) if by_name else target, tls_ca=authority().pem).exists


def test_the_authority_may_be_a_file_with_others_in_it(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text(f"# Autorität\n{Authority('other').pem}\n{authority().pem}", encoding="utf-8")
    assert ask(start(authority().sign(tmp_path)), tls_ca=str(file)).exists


def test_a_pickled_configuration_needs_no_file(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text(authority().pem)
    config = ClientConfig(tls_ca=str(file), token="t", fs={"s3.endpoint": "http://s3"})
    there = pickle.dumps(config)
    file.unlink()
    arrived = pickle.loads(there)
    assert (arrived.token, arrived.fs) == ("t", {"s3.endpoint": "http://s3"})
    target = start(authority().sign(tmp_path))
    assert ask(target, tls_ca=arrived.tls_ca, token="t").exists


@pytest.mark.parametrize("config", [{"tls_ca": Authority("other").pem}, {"tls": True}])
def test_an_authority_that_is_not_trusted(start: Start, tmp_path: Path, config: Any) -> None:
    target = start(authority().sign(tmp_path))
    with pytest.raises(TlsError, match=r"no authority that this client trusts.*client\.tls_ca"):
        ask(target, **config)


def test_a_certificate_that_has_ended(start: Start, tmp_path: Path) -> None:
    target = start(authority().sign(tmp_path, days=-1))
    with pytest.raises(TlsError, match=r"has expired.*server\.tls_certificate"):
        ask(target, tls_ca=authority().pem)


def test_a_certificate_for_another_host(start: Start, tmp_path: Path) -> None:
    target = start(authority().sign(tmp_path, "lake.example"))
    for address in (target, named(target)):
        with pytest.raises(TlsError, match="does not name this host"):
            ask(address, tls_ca=authority().pem)


def test_a_client_without_tls_before_a_server_with_it(start: Start, tmp_path: Path) -> None:
    target = start(authority().sign(tmp_path))
    with pytest.raises(TlsError, match=r"speaks TLS on this port: set client\.tls_ca") as caught:
        ask(target)
    assert f"grpc://{target}: the server" in str(caught.value)
    assert caught.value.details["sent"] is False
    assert not caught.value.retryable


def test_a_client_with_tls_before_a_server_without_it(start: Start) -> None:
    with pytest.raises(TlsError, match=r"does not speak TLS on this port: unset client\.tls"):
        ask(start(), tls_ca=authority().pem)


@pytest.mark.parametrize("tls_ca", ["", authority().pem], ids=["public authorities", "of our own"])
def test_nobody_there_is_no_matter_of_tls(tls_ca: str) -> None:
    with kept_port() as port, pytest.raises(NetworkError, match="^nothing listens at ") as caught:
        ask(f"127.0.0.1:{port}", tls_ca=tls_ca)
    assert type(caught.value) is NetworkError


def test_a_renewed_certificate_is_used_without_a_restart(start: Start, tmp_path: Path) -> None:
    target = start(authority().sign(tmp_path))
    assert ask(target, tls_ca=authority().pem).exists
    other = Authority("the next one")
    other.sign(tmp_path)
    assert ask(target, tls_ca=other.pem).exists
    (tmp_path / "server.key").write_text("half a k")  # changes nothing
    assert ask(target, tls_ca=other.pem).exists
    (tmp_path / "server.pem").unlink()
    assert ask(target, tls_ca=other.pem).exists
    authority().sign(tmp_path)
    assert ask(target, tls_ca=authority().pem).exists


def test_files_that_are_no_certificate_and_key(tmp_path: Path) -> None:
    good = authority().sign(tmp_path / "good")
    other = authority().sign(tmp_path / "other")
    wrong = tmp_path / "wrong"
    wrong.write_text("wrong")
    none = tmp_path / "none"
    for certificate, key, why in (
        (none, good.key, r"server\.tls_certificate: .*none: No such file"),
        (good.certificate, none, r"server\.tls_key: .*none: No such file"),
        (good.certificate, other.key, "the key does not belong to the certificate"),
        (wrong, good.key, "provide a certificate .* both as PEM"),
        (good.certificate, wrong, "provide a certificate .* both as PEM"),
    ):
        with pytest.raises(ConfigurationError, match=why):
            ServerTls(certificate, key)


@pytest.mark.parametrize(
    ("tls_ca", "why"),
    [
        ("/nowhere/ca.pem", r"client\.tls_ca: /nowhere/ca.pem: No such file"),
        ("-----BEGIN PRIVATE KEY-----\nabc", "the text has no certificate"),
        (
            "-----BEGIN CERTIFICATE-----\nYWJj\n-----END CERTIFICATE-----",
            "not the certificates of an authority as PEM",
        ),
    ],
)
def test_an_authority_that_is_none(tls_ca: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        ask("127.0.0.1:1", tls_ca=tls_ca)


@pytest.fixture
def tokens(tmp_path: Path) -> UsersFile:
    return UsersFile(write_users(tmp_path / "users"))


def test_a_token_is_asked_for_with_each_call(start: Start, tokens: UsersFile) -> None:
    target = start(tokens=tokens)
    with pytest.raises(AuthenticateError, match=r"none was sent: set client\.token"):
        ask(target)
    with pytest.raises(AuthenticateError, match="the token is wrong or was withdrawn") as caught:
        ask(target, token="guessed-1234")
    assert "guessed" not in str(caught.value)
    assert ask(target, token=ANY_TOKEN["read"]).exists


def test_what_a_stranger_sends_is_not_read(start: Start, tokens: UsersFile) -> None:
    """A request over the server's limit is refused for its token, so nobody has looked at it."""
    target = start(tokens=tokens)
    request = pb.DatabaseExistsRequest(database_name="x" * (4 << 20))
    for token, error in (("", AuthenticateError), (ANY_TOKEN["read"], RecordTooLarge)):
        config = ClientConfig(token=token)
        transport = open_transport(Address.parse(f"grpc://{target}"), config)
        with pytest.raises(error):
            transport.call(Role.COORDINATOR, apis.DATABASE_EXISTS, request, 60_000)
        transport.close()


def test_a_role_that_is_not_enough(start: Start, tokens: UsersFile) -> None:
    target = start(tokens=tokens)
    for role in ("read", "write"):
        with pytest.raises(AuthorizationError, match="DropDatabase needs the role admin; .* has"):
            ask(target, apis.DROP_DATABASE, token=ANY_TOKEN[role])
    ask(target, apis.DROP_DATABASE, token=ANY_TOKEN["admin"])


def test_a_withdrawn_token_does_not_outlive_its_line(
    start: Start, tokens: UsersFile, tmp_path: Path
) -> None:
    target = start(tokens=tokens)
    assert ask(target, token=ANY_TOKEN["read"]).exists
    write_users(tmp_path / "users", {"ada": TOKENS["ada"]})
    with pytest.raises(AuthenticateError, match="withdrawn"):
        ask(target, token=ANY_TOKEN["read"])


def test_a_token_and_tls_together(start: Start, tokens: UsersFile, tmp_path: Path) -> None:
    target = start(authority().sign(tmp_path), tokens)
    assert ask(target, tls_ca=authority().pem, token=ANY_TOKEN["read"]).exists
    with pytest.raises(AuthenticateError, match="none was sent"):
        ask(target, tls_ca=authority().pem)


@pytest.mark.parametrize("token", ["two words", "a\n", "gehéim", "\x7f"])
def test_a_token_that_no_header_can_carry_is_not_shown(token: str) -> None:
    with pytest.raises(ConfigurationError, match=r"client\.token has a space") as caught:
        ask("127.0.0.1:1", token=token)
    assert token not in str(caught.value)


def test_a_token_does_not_cross_the_network_in_the_open() -> None:
    for host in ("lake.example:9123", "192.168.0.7:9123"):
        with pytest.raises(
            ConfigurationError, match=r"reached without encryption.*client\.tls_ca"
        ) as caught:
            ask(host, token="t0p-secret")
        assert "t0p" not in str(caught.value)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"token": "t0p-secret"}, r"client\.token is set, which only grpc:// can send"),
        ({"tls": True}, "Fluss's own protocol has no TLS"),
        ({"tls_ca": authority().pem}, "Fluss's own protocol has no TLS"),
    ],
)
def test_what_fluss_own_protocol_does_not_have(config: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as caught:
        open_transport(Address.parse("fluss://127.0.0.1:1"), ClientConfig(**config))
    assert "t0p" not in str(caught.value)


def test_a_token_is_never_shown() -> None:
    assert "t0p" not in repr(ClientConfig(token="t0p-secret"))
