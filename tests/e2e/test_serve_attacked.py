"""`sluice serve` under attack: it serves others, logs little, and stops in time."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from sluice.client import connect
from sluice.config import ClientConfig
from sluice.wire import apis
from sluice.wire.apis import Role
from tests.support.certificates import authority
from tests.support.http2_peer import Http2Peer, message_head, unverified_tls
from tests.support.processes import SLUICE, environment
from tests.support.users import ANY_TOKEN, write_users

STOP_S = 10.0
PATIENCE_S = 10.0
LIST = apis.LIST_DATABASES.grpc_method(Role.COORDINATOR)
PRODUCE = apis.PRODUCE_LOG.grpc_method(Role.TABLET)


class Served:
    """The process, with users and three listeners, one of them with TLS."""

    def __init__(self, folder: Path) -> None:
        files = authority().sign(folder / "tls")
        self.log = folder / "log"
        command = [SLUICE, "serve", "--data-dir", str(folder / "data")]
        command += ["--users-file", str(write_users(folder / "users"))]
        command += ["--listen", "grpc://127.0.0.1:0", "--listen", "fluss://127.0.0.1:0"]
        tls = ["--tls-certificate", str(files.certificate), "--tls-key", str(files.key)]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*command, *tls], stdout=subprocess.PIPE, stderr=log, text=True, env=environment()
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline().removeprefix("sluice: ready at ")
        self.grpc, self.native = line.split(", ")[:2]

    def see(self) -> None:
        """Another client is served in time."""
        config = ClientConfig(
            self.grpc,
            token=ANY_TOKEN["read"],
            tls_ca=authority().pem,
            request_timeout_ms=round(PATIENCE_S * 1000),
            retry_timeout_ms=round(PATIENCE_S * 1000),
        )
        with connect(config) as client:
            assert client.admin.list_databases() == ["fluss"]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    server = Served(tmp_path)
    yield server
    server.process.kill()
    server.process.wait()
    assert server.process.stdout is not None
    server.process.stdout.close()


def connected(address: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port_of(address)), 60)


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def attack(served: Served, opened: ExitStack) -> None:
    """What a stranger and a user of role write can leave open, of each kind more than workers."""
    tls = unverified_tls()
    for method, token in (
        ("/grpc.health.v1.Health/Check", ""),
        ("/grpc.health.v1.Health/Watch", ""),
        (LIST, ""),
        (LIST, ANY_TOKEN["write"]),
        (PRODUCE, ANY_TOKEN["write"]),
    ):
        peer = Http2Peer(port_of(served.grpc), tls=tls)
        opened.callback(peer.close)
        for number in range(100):
            stream = peer.begin(method, token)
            if method == PRODUCE:
                peer.send(stream, message_head(32 << 20) + bytes(100))
            elif method.endswith("Watch"):
                peer.message(stream, b"")
                if number % 2:
                    peer.cancel(stream)
        peer.wait_processed()
    for _ in range(600):  # more than one peer may have; none logs in, each begins a frame
        begun = opened.enter_context(connected(served.native))
        begun.sendall(b"\x00\x00\xff")
    for _ in range(300):
        with connected(served.grpc) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n")  # no TLS


def test_it_serves_others_logs_little_and_stops_in_time(served: Served) -> None:
    served.see()
    with ExitStack() as opened:
        attack(served, opened)
        for _ in range(3):
            served.see()
        began = time.monotonic()
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(60) == 0
        assert time.monotonic() - began < STOP_S
    assert len(served.log.read_text().splitlines()) < 100
