"""An address where nothing listens, before anything else of a client."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from typing import Any

import pytest

from sluice.client.connection.reachability import WAIT_S, require_listener
from sluice.config import ClientConfig
from sluice.errors import ConfigurationError, NetworkError
from sluice.wire.listeners.start_marker import is_starting, starting
from tests.support.network.ports import kept_port


@pytest.mark.parametrize("scheme", ["grpc", "fluss"])
def test_a_refused_connection_is_said_once_and_soon(scheme: str) -> None:
    with kept_port() as port:
        started = time.monotonic()
        with pytest.raises(NetworkError) as caught:
            require_listener(ClientConfig(f"{scheme}://127.0.0.1:{port}"))
        took_s = time.monotonic() - started
    assert str(caught.value) == f"nothing listens at 127.0.0.1:{port}: connection refused"
    assert caught.value.details == {"sent": False, "no_listener": "refused"}
    assert WAIT_S <= took_s < WAIT_S + 10  # busy machines are slow


def test_every_address_is_tried_and_named_once() -> None:
    with kept_port() as one, kept_port() as two, pytest.raises(NetworkError) as caught:
        require_listener(
            ClientConfig(
                f"fluss://127.0.0.1:{one},no-such-host.invalid:1,127.0.0.1:{two}",
                connect_timeout_ms=1_000,
            )
        )
    assert str(caught.value).startswith("the host name 'no-such-host.invalid' cannot be resolved")
    assert f"; nothing listens at 127.0.0.1:{one} or 127.0.0.1:{two}: " in str(caught.value)


def test_one_address_that_accepts_is_enough() -> None:
    with kept_port() as port, socket.create_server(("127.0.0.1", 0)) as there:
        place = f"127.0.0.1:{there.getsockname()[1]}"
        require_listener(ClientConfig(f"grpc://127.0.0.1:{port},{place}"))


def test_a_server_that_starts_at_the_same_time_is_waited_for() -> None:
    """`sluice serve &` and the next command of a script."""
    with kept_port() as port:
        servers: list[socket.socket] = []
        late = threading.Timer(
            WAIT_S / 2, lambda: servers.append(socket.create_server(("127.0.0.1", port)))
        )
        late.start()
        require_listener(ClientConfig(f"grpc://127.0.0.1:{port}"))
        late.join()
        servers[0].close()


@pytest.mark.skipif(sys.platform != "linux", reason="the names of such sockets are Linux's")
def test_a_server_that_is_slow_to_start_is_waited_for_as_long_as_it_starts() -> None:
    with kept_port() as port, ExitStack() as stack:
        config = ClientConfig(f"grpc://localhost:{port}", connect_timeout_ms=60_000)
        opened = threading.Event()

        def open_late() -> None:
            stack.enter_context(socket.create_server(("127.0.0.1", port)))
            opened.set()

        with starting([port]):
            late = threading.Timer(2 * WAIT_S, open_late)
            late.start()
            require_listener(config)
            assert opened.is_set()
            late.join()
        stack.close()
        assert not is_starting(port)
        with pytest.raises(NetworkError, match="nothing listens"):
            require_listener(config)


def test_a_host_without_an_address_is_not_waited_for() -> None:
    config = ClientConfig("grpc://no-such-host.invalid:9123", connect_timeout_ms=1_000)
    with pytest.raises(NetworkError, match=r"^the host name 'no-such-host\.invalid' cannot be"):
        require_listener(config)


def test_a_dns_server_that_fails_for_a_time_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    real, tries = socket.getaddrinfo, []

    def failing(host: str, *args: Any, **named: Any) -> Any:
        tries.append(host)
        if len(tries) < 4:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return real("127.0.0.1", *args, **named)

    monkeypatch.setattr(socket, "getaddrinfo", failing)
    with socket.create_server(("127.0.0.1", 0)) as there:
        port = there.getsockname()[1]
        require_listener(ClientConfig(f"fluss://there.example:{port}"))
        assert tries == ["there.example"] * 4
        tries.clear()
        with pytest.raises(NetworkError, match="there.example.*Temporary failure"):
            require_listener(ClientConfig("fluss://there.example:9", connect_timeout_ms=1))


def test_a_proxy_of_grpc_may_reach_what_this_machine_cannot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    require_listener(ClientConfig("grpc://no-such-host.invalid:9123"))
    with pytest.raises(NetworkError):
        require_listener(
            ClientConfig("fluss://no-such-host.invalid:9123", connect_timeout_ms=1_000)
        )


def test_a_malformed_address_is_a_wrong_setting() -> None:
    with pytest.raises(ConfigurationError, match="the scheme is missing"):
        require_listener(ClientConfig("127.0.0.1:9123"))


def test_it_costs_neither_grpc_nor_protobuf_nor_arrow() -> None:
    code = (
        "import sys\n"
        "from sluice.client.connection.reachability import require_listener\n"
        "assert not {'grpc', 'google.protobuf', 'pyarrow', 'numpy'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
