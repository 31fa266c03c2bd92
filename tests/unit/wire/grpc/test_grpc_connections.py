"""Which connections of a gRPC listener are ended, on sockets of this process."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
import structlog

from sluice.wire.grpc import connections as grpc_connections
from sluice.wire.grpc.connections import CALM_S, GREEDY_S, Connections
from sluice.wire.listeners.refusals import RefusalLog
from tests.support.harness.owned_clock import MonotonicClock

HANDSHAKE_S = 10.0


class Port:
    """A listener by hand: what gRPC would have accepted, and its clients."""

    def __init__(self, closing: ExitStack) -> None:
        self._closing = closing
        self._listening = closing.enter_context(socket.socket())
        self._listening.bind(("", 0))
        self._listening.listen(64)
        self.number = int(self._listening.getsockname()[1])
        self._accepted: list[Accepted] = []

    def connect(
        self, source: str = "127.0.0.2", port: int = 0, target: str = "127.0.0.1"
    ) -> Accepted:
        client = self._closing.enter_context(socket.socket())
        client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        client.bind((source, port))
        client.connect((target, self.number))
        server = self._closing.enter_context(self._listening.accept()[0])
        self._accepted.append(Accepted(client, server))
        return self._accepted[-1]

    def close_ended(self) -> None:
        """Closes connections that were shut down, as gRPC does."""
        for one in self._accepted:
            if not one.is_open:
                one.server.close()


class Accepted:
    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server
        self.name = "ipv4:{}:{}".format(*client.getsockname())
        """As gRPC writes it."""

    @property
    def is_open(self) -> bool:
        try:
            return bool(self.client.recv(1, socket.MSG_DONTWAIT))
        except BlockingIOError:
            return True
        except OSError:
            return False  # closed by its client

    def close(self) -> None:
        self.client.close()
        self.server.close()


class Place:
    def __init__(self, closing: ExitStack, most: int) -> None:
        self._closing = closing
        self.clock = MonotonicClock()
        self.port = self.another_port()
        self.connections = Connections(
            most, HANDSHAKE_S, self.clock, RefusalLog(structlog.get_logger(), self.clock)
        )

    def another_port(self) -> Port:
        return Port(self._closing)

    def connect(self, count: int, source: str = "127.0.0.2") -> list[Accepted]:
        return [self.port.connect(source) for _ in range(count)]

    def look(self, after_s: float = 0.5, busy: Sequence[Accepted] = ()) -> int:
        self.clock.now_s += after_s
        ended = self.connections.end_surplus(self.port.number, {one.name for one in busy})
        self.port.close_ended()
        return ended


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def place(closing: ExitStack) -> Place:
    return Place(closing, 4)  # 2 of one host


def open_of(accepted: list[Accepted]) -> list[bool]:
    return [one.is_open for one in accepted]


def test_one_host_keeps_half_of_them_and_loses_the_oldest(place: Place) -> None:
    """The second has the file number of one that was closed, so numbers are not ages."""
    gone, first = place.connect(2)
    assert place.look() == 0
    gone.close()
    second, third = place.connect(2)
    assert second.server.fileno() < first.server.fileno(), "the case that is tested"
    assert place.look() == 1
    assert open_of([first, second, third]) == [False, True, True]


def test_connections_without_a_call_go_first_then_those_unused_for_the_longest(
    place: Place,
) -> None:
    first, second, third, idle = place.connect(4)
    for used in (third, first, second):
        place.clock.now_s += 1
        place.connections.used(used.name)
    assert place.look() == 2
    assert open_of([first, second, third, idle]) == [True, True, False, False]


def test_no_socket_of_another_port_is_touched(place: Place) -> None:
    """The native listener's, and the server's own connections to other servers."""
    other = place.another_port()
    others = [other.connect() for _ in range(5)]
    assert place.look() == 0
    assert all(open_of(others))


def test_a_file_number_that_is_anothers_by_now_is_left_alone(place: Place) -> None:
    (was,) = place.connect(1)
    client = grpc_connections._client(was.server, place.port.number)
    assert client is not None
    (file, number) = (was.server.fileno(), place.port.number)
    was.close()
    (now,) = place.connect(1)
    assert now.server.fileno() == file, "the case that is tested"
    assert not grpc_connections._end(file, number, client)
    assert now.is_open


def test_connections_from_one_port_count_each(place: Place) -> None:
    """To several addresses of the server. Several of one IPv6 network are alike."""
    first = place.port.connect()
    source = first.client.getsockname()[1]
    all_ = [first]
    all_ += [place.port.connect(port=source, target=f"127.0.0.{n}") for n in range(3, 8)]
    assert place.look() == 4
    assert sum(open_of(all_)) == 2


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("10.0.0.5", "ipv4:10.0.0.5:41234"),
        ("::ffff:10.0.0.5", "ipv4:10.0.0.5:41234"),
        ("fd00::5", "ipv6:%5Bfd00::5%5D:41234"),
        ("fe80::5", "ipv6:%5Bfe80::5%25eth0%5D:41234"),
    ],
)
def test_a_client_is_its_whole_address(host: str, name: str) -> None:
    """Not its network: another address of it is another client."""
    client = grpc_connections._named(name)
    assert client == grpc_connections._Client.of(host, 41234)
    assert client != grpc_connections._Client.of("fd00::6", 41234)
    assert client.port == 41234


def test_two_hosts_leave_room_for_others(closing: ExitStack) -> None:
    place = Place(closing, 40)  # 20 of one host; 5 are kept free
    known = place.connect(2, "127.0.0.4")
    for one in known:
        place.connections.used(one.name)
    two = [place.connect(19, f"127.0.0.{n}") for n in (2, 3)]
    assert place.look() == 0
    place.look(0.5)
    assert all(open_of(two[0] + two[1])), "they may be about to log in"
    assert place.look(0.5) == 5
    assert sorted(map(sum, map(open_of, two))) == [16, 17]
    assert not two[0][0].is_open and two[0][-1].is_open, "the oldest went"
    assert all(open_of(known))
    assert place.look(60) == 0, "there is room"


def test_what_one_host_has_too_many_makes_the_room(closing: ExitStack) -> None:
    place = Place(closing, 40)
    old = place.connect(20)
    place.look()
    place.look(GREEDY_S)
    place.connect(19)
    assert place.look(0) == 19
    assert sum(open_of(old)) == 1


def test_hosts_with_a_few_have_the_time_of_the_handshake(closing: ExitStack) -> None:
    place = Place(closing, 40)
    few = [one for n in range(2, 12) for one in place.connect(4, f"127.0.0.{n}")]
    place.look()
    assert place.look(HANDSHAKE_S - 0.1) == 0
    assert place.look(0.1) == 5
    assert sum(open_of(few)) == 35


def test_connections_of_known_callers_make_no_room(closing: ExitStack) -> None:
    place = Place(closing, 40)
    known = [one for n in (2, 3) for one in place.connect(20, f"127.0.0.{n}")]
    for one in known:
        place.connections.used(one.name)
    place.look()
    assert place.look(600) == 0
    assert all(open_of(known))


def test_calls_in_progress_make_no_room(closing: ExitStack) -> None:
    """Nor does one that began before all calls that are remembered."""
    place = Place(closing, 40)
    busy = [one for n in (2, 3) for one in place.connect(20, f"127.0.0.{n}")]
    place.look(busy=busy)
    assert place.look(600, busy) == 0
    further = place.connect(3)
    for one in further:
        place.connections.used(one.name)
    assert place.look(busy=busy) == 3
    assert all(open_of(busy))


def test_it_looks_less_often_while_most_places_are_free(closing: ExitStack) -> None:
    place = Place(closing, 40)
    place.connect(10)
    place.look()
    place.connect(11)
    assert place.look(CALM_S - 0.1) == 0
    assert place.look(0.1) == 1
    place.connect(1)
    assert place.look(0.1) == 1


def test_a_call_during_a_look_is_not_forgotten(place: Place) -> None:
    place.connect(3)
    place.connections.used("ipv4:127.0.0.9:1")  # connected after the look had listed the files
    assert place.look(0) == 1
    assert len(place.connections._used) == 1


def test_closed_connections_are_forgotten(place: Place) -> None:
    (kept,) = place.connect(1)
    place.connections.used(kept.name)
    for port in range(1, 11):
        place.connections.used(f"ipv4:127.0.0.9:{port}")
    place.look()
    assert list(place.connections._used) == [kept.name]


def test_with_few_files_closed_connections_are_forgotten_too(
    closing: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_connections, "_USED_MAX", 3)
    place = Place(closing, 2 * len([*Path("/dev/fd").iterdir()]) + 200)
    for port in range(1, 5):
        place.connections.used(f"ipv4:127.0.0.9:{port}")
        place.look(CALM_S)
    assert not place.connections._used


def test_without_a_list_of_files_a_few_are_remembered(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(grpc_connections, "_FILES", str(tmp_path / "fd"))
    monkeypatch.setattr(grpc_connections, "_USED_MAX", 3)
    for port in range(1, 11):
        place.clock.now_s += 1
        place.connections.used(f"ipv4:127.0.0.9:{port}")
        place.connections.used("ipv4:127.0.0.9:1")
    assert place.look() == 0
    kept = {f"ipv4:127.0.0.9:{port}" for port in (1, 9, 10)}
    assert set(place.connections._used) == kept
