"""`sluice serve` under attack: it serves others, logs little, and stops in time."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from sluice.client import connect
from sluice.config import ClientConfig
from sluice.wire import apis
from sluice.wire.apis import Role
from sluice.wire.messages import frames
from tests.support.network.certificates import authority
from tests.support.network.http2_peer import Http2Peer, message_head, unverified_tls
from tests.support.network.users import ANY_TOKEN, TOKENS, write_users
from tests.support.programs.processes import SLUICE, environment, wait_for

FILES_KEPT = 8
"""gRPC opens some more files for its own threads."""
MEMORY_KEPT_BYTES = 32 << 20
"""Less than one of the attackers' messages would take. Allocators do not give all back."""
STOP_S = 10.0
PATIENCE_S = 10.0
LIST = apis.LIST_DATABASES.grpc_method(Role.COORDINATOR)
FLOOD = [
    b"".join(frames.encode_request(api.key, 0, number, b"") for number in range(64))
    for api in (apis.FETCH_LOG, apis.API_VERSIONS)
]
"""Requests that are sent together, without a login."""
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

    @property
    def open_files(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    @property
    def memory_bytes(self) -> int:
        """Memory of its own, without files that it shares."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        (kilobytes,) = re.findall(r"^RssAnon:\s*(\d+) kB$", text, re.MULTILINE)
        return int(kilobytes) * 1024

    def seen_s(self) -> float:
        """The median time in which other clients connect and are served."""
        times = []
        for _ in range(9):
            began = time.monotonic()
            self.see()
            times.append(time.monotonic() - began)
        return median(times)

    def see(self) -> None:
        """Other clients are served in time over both protocols."""
        patience_ms = round(PATIENCE_S * 1000)
        grpc = ClientConfig(self.grpc, token=ANY_TOKEN["read"], tls_ca=authority().pem)
        native = ClientConfig(self.native, username="ria", password=TOKENS["ria"][1])
        for config in (grpc, native):
            patient = replace(config, request_timeout_ms=patience_ms, retry_timeout_ms=patience_ms)
            with connect(patient) as client:
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


class Flood:
    """Strangers who send many requests over the native port, and connect again when closed."""

    def __init__(self, address: str, count: int) -> None:
        self._address = address
        self._peers = [self._connected() for _ in range(count)]
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.sent_bytes = 0

    def __enter__(self) -> Flood:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        for peer in self._peers:
            peer.close()

    def _connected(self) -> socket.socket:
        peer = connected(self._address)
        peer.setblocking(False)
        return peer

    def _run(self) -> None:
        while not self._stopping.wait(0.01):
            for number, peer in enumerate(self._peers):
                try:
                    self.sent_bytes += peer.send(FLOOD[number % 2])
                    while peer.recv(1 << 16):
                        pass
                except BlockingIOError:
                    continue
                except OSError:
                    pass
                peer.close()
                self._peers[number] = self._connected()


def test_requests_before_a_login_delay_no_other_client(served: Served) -> None:
    served.see()
    with Flood(served.native, 400) as flood:
        for _ in range(3):
            sent = flood.sent_bytes
            served.see()
            wait_for("more of the flood", lambda sent=sent: flood.sent_bytes > sent + (1 << 16))
    served.see()


@pytest.mark.slow
def test_nothing_is_left_of_all_attacks_at_once(served: Served) -> None:
    """Two times, since the first one fills pools that the server keeps."""
    served.see()
    before_s, files = served.seen_s(), served.open_files
    memory: list[int] = []
    for _ in range(2):
        with Flood(served.native, 200) as flood, ExitStack() as opened:
            attack(served, opened)
            sent = flood.sent_bytes
            served.see()
            wait_for("more of the flood", lambda sent=sent: flood.sent_bytes > sent)
            assert served.open_files > files + 100
        wait_for("the end of its connections", lambda: served.open_files <= files + FILES_KEPT, 30)
        memory.append(served.memory_bytes)
    assert memory[1] - memory[0] < MEMORY_KEPT_BYTES
    assert served.seen_s() < max(5 * before_s, 0.5)


@pytest.mark.slow
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
