"""One connection: what it says of a request that the server may have acted on, and deadlines."""

import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from sluice.errors import FlussError, NetworkError
from sluice.wire.native.link import Link
from sluice.wire.sockets.tcp import connect
from tests.support.programs.processes import wait_for


class SlowToReturn(socket.socket):
    """A socket whose ``sendmsg`` returns only when the peer has long seen the bytes."""

    def sendmsg(self, *arguments: object) -> int:  # type: ignore[override]
        count = super().sendmsg(*arguments)  # type: ignore[arg-type]
        time.sleep(0.2)
        return count


def test_a_request_that_left_whole_is_never_said_to_be_unsent() -> None:
    """The server reads it, acts and closes before the sending thread goes on."""
    here, there = socket.socketpair()
    sock = SlowToReturn(fileno=here.detach())
    link = Link("fluss://test:1", sock, 1 << 20, 60.0)

    def act_and_close() -> None:
        there.recv(1 << 16)
        there.close()

    peer = threading.Thread(target=act_and_close)
    peer.start()
    with pytest.raises(NetworkError) as caught:
        link.exchange(1001, 0, b"create", time.monotonic() + 60)
    peer.join()
    assert caught.value.details.get("sent") is not False


class Interrupted(socket.socket):
    """A socket whose ``sendmsg`` has sent a part when Ctrl-C is pressed."""

    def sendmsg(self, buffers: Any, *arguments: object) -> int:  # type: ignore[override]
        super().sendmsg([buffers[0][:6]])
        raise KeyboardInterrupt


def test_nothing_goes_behind_a_request_that_was_interrupted() -> None:
    """The server would take it for the rest of that request."""
    here, there = socket.socketpair()
    link = Link("fluss://test:1", Interrupted(fileno=here.detach()), 1 << 20, 60.0)
    with pytest.raises(KeyboardInterrupt):
        link.exchange(1001, 0, b"create", time.monotonic() + 60)
    assert not link.usable
    with pytest.raises(NetworkError, match="interrupted") as caught:
        link.exchange(1002, 0, b"drop", time.monotonic() + 60)
    assert caught.value.details.get("sent") is False
    assert len(there.recv(1 << 16)) == 6
    assert there.recv(1 << 16) == b""
    there.close()


def test_a_request_on_an_ended_connection_is_said_to_be_unsent() -> None:
    here, there = socket.socketpair()
    link = Link("fluss://test:1", here, 1 << 20, 60.0)
    link.close(NetworkError("over"))
    with pytest.raises(NetworkError) as caught:
        link.exchange(1001, 0, b"create", time.monotonic() + 60)
    assert caught.value.details.get("sent") is False
    there.close()


def test_a_connection_that_is_given_up_takes_no_new_requests() -> None:
    """It is closed when the last one who waits has left: a new request would be lost half way."""
    here, there = socket.socketpair()
    link = Link("fluss://test:1", here, 1 << 20, 60.0)
    waits = threading.Thread(target=lambda: _ignored(link, time.monotonic() + 60))
    waits.start()
    first = there.recv(1 << 16)
    link.retire()
    with pytest.raises(NetworkError, match="closed by this client") as caught:
        link.exchange(1001, 0, b"create", time.monotonic() + 60)
    assert caught.value.details.get("sent") is False
    there.sendall(b"\0\0\0\5\0" + first[8:12])  # an empty answer to who still waits
    waits.join(60)
    assert not waits.is_alive()
    assert there.recv(1 << 16) == b""
    there.close()


def _ignored(link: Link, deadline: float) -> None:
    link.exchange(1003, 0, b"", deadline)


class Between:
    """A lock; when the reading thread leaves it for the first time, something else happens."""

    def __init__(self, lock: threading.Lock, act: Callable[[], object]) -> None:
        self._lock, self._act = lock, act
        self._reader = threading.current_thread()
        self._done = False

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        if threading.current_thread() is self._reader and not self._done:
            self._done = True
            self._act()


class CalledWhenIdle(Link):
    """A connection on which somebody calls just when it was found idle."""

    def __init__(self, call: Callable[[Link], object], sock: socket.socket) -> None:
        self._call = call
        super().__init__("fluss://test:1", sock, 1 << 20, 0.01)

    def close(self, error: FlussError, *, only_idle: bool = False) -> None:
        if only_idle:
            self._lock = Between(self._lock, lambda: self._call(self))  # type: ignore[assignment]
        super().close(error, only_idle=only_idle)


def test_a_call_at_the_idle_limit_was_not_sent() -> None:
    """Else it may have been executed, and nobody repeats it."""
    here, there = socket.socketpair()
    ended = threading.Event()
    errors: list[FlussError] = []
    callers: list[threading.Thread] = []

    def exchange(link: Link) -> None:
        try:
            link.exchange(1001, 0, b"create", time.monotonic() + 60)
        except FlussError as error:
            errors.append(error)
        ended.set()

    def call(link: Link) -> None:
        callers.append(threading.Thread(target=exchange, args=(link,)))
        callers[0].start()
        wait_for("the request or its end", lambda: ended.is_set() or _readable(there))

    CalledWhenIdle(call, here)
    assert ended.wait(60)
    callers[0].join()
    assert [error.details.get("sent") for error in errors] == [False]
    assert there.recv(1 << 16) == b"", "the server got a request that was said to be unsent"
    there.close()


def _readable(sock: socket.socket) -> bool:
    return bool(select.select([sock], [], [], 0)[0])


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that answers no connection: its queue is full."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(100):
            client = stack.enter_context(socket.socket())
            client.settimeout(0.2)
            try:
                client.connect(server.getsockname())
            except TimeoutError:
                break
        else:
            pytest.skip("this system's queues take whoever comes")
        yield server.getsockname()[1]


def resolve(monkeypatch: pytest.MonkeyPatch, *ports: int) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in ports]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)


def test_the_deadline_goes_for_all_addresses_of_a_host_together(
    monkeypatch: pytest.MonkeyPatch, silent_port: int
) -> None:
    resolve(monkeypatch, *[silent_port] * 60)
    started = time.monotonic()
    with pytest.raises(NetworkError, match=r"no response from many:1 within 0\.\d+ s: .* firewall"):
        connect("many", 1, started + 0.6)
    assert time.monotonic() - started < 20  # not 36


def test_an_address_that_is_silent_leaves_time_for_the_next(
    monkeypatch: pytest.MonkeyPatch, silent_port: int
) -> None:
    """A twentieth of it for each of twenty, where one alone had it all."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        resolve(monkeypatch, silent_port, *[server.getsockname()[1]] * 19)
        connect("twenty", 1, time.monotonic() + 60).close()


def test_a_name_that_is_never_resolved_has_the_deadline_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    over = threading.Event()

    def forever(*_: Any, **__: Any) -> Any:
        over.wait(60)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", forever)
    with pytest.raises(NetworkError, match="'slow' was not found in time"):
        connect("slow", 1, time.monotonic() + 0.2)
    over.set()


def test_a_host_that_is_none_is_a_network_error() -> None:
    with pytest.raises(NetworkError, match=r"the host name 'a+\.example' cannot be resolved"):
        connect("a" * 70 + ".example", 1, time.monotonic() + 60)
