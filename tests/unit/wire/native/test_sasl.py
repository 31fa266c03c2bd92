"""SASL PLAIN: its bytes, its retries, and a whole handshake before a server that demands it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from sluice.client.connection.addresses import Address, open_transport
from sluice.config import ClientConfig
from sluice.errors import (
    AuthenticateError,
    ConfigurationError,
    RequestTimeOut,
    RetriableAuthenticateError,
)
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Role
from sluice.wire.native.sasl import AUTHENTICATE, Credentials, authenticate
from tests.support.network.native_peer import Peer, PeerServer


def test_token_is_no_identity_then_user_then_password() -> None:
    assert Credentials("ann", "gehéim").token() == b"\0ann\0geh\xc3\xa9im"


def test_password_is_never_shown() -> None:
    assert "secret" not in repr(Credentials("ann", "secret"))
    assert "secret" not in repr(ClientConfig(username="ann", password="secret"))


@pytest.mark.parametrize(("user", "password"), [("", "x"), ("a\0b", "x"), ("a", "x\0")])
def test_credentials_that_cannot_be_sent_are_refused(user: str, password: str) -> None:
    with pytest.raises(ConfigurationError, match=r"client\.(username|password)"):
        Credentials(user, password)


def test_credentials_over_grpc_are_refused_rather_than_left_out() -> None:
    with pytest.raises(ConfigurationError, match="only fluss:// can send"):
        open_transport(Address.parse("grpc://localhost:1"), ClientConfig(username="ann"))


def test_waits_double_up_to_five_seconds_while_the_server_says_try_again() -> None:
    waits: list[float] = []
    left = 9

    def exchange(request: pb.AuthenticateRequest) -> pb.AuthenticateResponse:
        nonlocal left
        assert request == pb.AuthenticateRequest(protocol="PLAIN", token=b"\0ann\0secret")
        left -= 1
        if left:
            raise RetriableAuthenticateError("later")
        return pb.AuthenticateResponse(challenge=b"")

    authenticate(Credentials("ann", "secret"), exchange, waits.append, lambda: 1.0)
    assert waits == pytest.approx([0.12, 0.24, 0.48, 0.96, 1.92, 3.84, 6, 6])


def test_a_challenge_is_not_plain() -> None:
    answer = pb.AuthenticateResponse(challenge=b"more")
    with pytest.raises(AuthenticateError, match="challenge of 4 bytes"):
        authenticate(Credentials("ann", "secret"), lambda _: answer, time.sleep)


def demanding(password: str, code: int = 46) -> Any:
    """A server that closes a connection whose first request does not authenticate."""

    def script(peer: Peer) -> None:
        peer.greet()
        while (got := peer.request()) is not None:
            head, body = got
            if head.api_key != AUTHENTICATE.key:
                peer.error(head, 46, "authenticate first")
                return
            request = pb.AuthenticateRequest.FromString(body)
            if request.token == f"\0ann\0{password}".encode():
                break
            peer.error(head, code, "Authentication failed")
            if code == 46:
                return
        peer.answer(head, pb.AuthenticateResponse(challenge=b""))
        while (got := peer.request()) is not None:
            peer.answer(got[0], pb.ListDatabasesResponse(database_name=["shop"]))

    return script


def ask(server: PeerServer, timeout_ms: int = 60_000, **config: str) -> Any:
    address = f"fluss://127.0.0.1:{server.port}"
    transport = open_transport(Address.parse(address), ClientConfig(address, **config))
    try:
        request = pb.ListDatabasesRequest()
        return transport.call(Role.TABLET, apis.LIST_DATABASES, request, timeout_ms)
    finally:
        transport.close()


def test_a_client_authenticates_before_its_first_request() -> None:
    with PeerServer(demanding("secret")) as server:
        assert ask(server, username="ann", password="secret").database_name == ["shop"]


def test_a_wrong_password_is_an_error_that_does_not_show_it() -> None:
    with PeerServer(demanding("secret")) as server:
        with pytest.raises(AuthenticateError, match="Authentication failed") as caught:
            ask(server, username="ann", password="hunter2")
        assert caught.value.details["sent"] is False
        assert "hunter2" not in str(caught.value)


def test_a_client_without_credentials_is_refused_by_the_server() -> None:
    with PeerServer(demanding("secret")) as server, pytest.raises(AuthenticateError, match="first"):
        ask(server)


def test_a_server_that_says_try_again_for_ever_is_left_at_the_deadline() -> None:
    """After five waits (2.5 to 3.7 s) the sixth (2.6 s or more) would end behind it: two seconds
    are left for the answer to the last try."""
    with (
        PeerServer(demanding("secret", code=51)) as server,
        pytest.raises(RequestTimeOut, match="again and again"),
    ):
        ask(server, timeout_ms=5_000, username="ann", password="hunter2")
