"""Who is admitted, who must make room, and which peer an address belongs to."""

from __future__ import annotations

import pytest

from sluice.errors import StorageBackpressure
from sluice.wire.listeners.admission import Admission, Admitted, peer_of
from tests.support.harness.owned_clock import MonotonicClock


class Ends:
    """Counts what was ended, by peer."""

    def __init__(self) -> None:
        self.peers: list[str] = []

    def admit(self, admission: Admission, peer: str, holds: int = 1, user: str = "") -> Admitted:
        return admission.admit(peer, lambda: self.peers.append(peer), holds, user)


@pytest.fixture
def ends() -> Ends:
    return Ends()


@pytest.fixture
def clock() -> MonotonicClock:
    return MonotonicClock()


def test_what_is_settled_keeps_its_place(ends: Ends, clock: MonotonicClock) -> None:
    admission = Admission("calls", 4, 2, clock)
    for peer in "aab":
        ends.admit(admission, peer).settle()
    with pytest.raises(StorageBackpressure, match="^a has 2 calls at once, the limit of one peer"):
        ends.admit(admission, "a")
    last = ends.admit(admission, "c")
    last.settle()
    with pytest.raises(StorageBackpressure, match="^the server has 4 calls at once, its limit"):
        ends.admit(admission, "d")
    assert not ends.peers
    last.release()
    ends.admit(admission, "d").settle()


def test_what_waits_for_its_client_again_is_the_youngest(ends: Ends, clock: MonotonicClock) -> None:
    admission = Admission("calls", 4, 2, clock, pending_s=5)
    answered = admission.admit("a", lambda: ends.peers.append("answered"))
    answered.settle()
    ends.admit(admission, "a")
    clock.now_s += 4
    answered.unsettle(3)
    ends.admit(admission, "a")
    assert ends.peers == ["a"]
    clock.now_s += 2
    assert admission.end_late() == 0
    clock.now_s += 1
    assert admission.end_late() == 1
    assert ends.peers == ["a", "answered"]
    answered.unsettle(3)  # too late, and nothing comes back
    ends.admit(admission, "b").settle()
    assert (admission.end_all(), len(admission), ends.peers[2:]) == (2, 0, ["a", "b"])


def test_the_oldest_pending_one_of_a_peer_makes_room(ends: Ends, clock: MonotonicClock) -> None:
    admission = Admission("calls", 4, 2, clock)
    oldest, newer, other = (ends.admit(admission, peer) for peer in "aab")
    newest = ends.admit(admission, "a")
    assert ends.peers == ["a"]
    assert oldest.dropped
    with pytest.raises(StorageBackpressure, match="a has begun too many calls, or was too slow"):
        oldest.settle()
    for one in (newer, other, newest):
        one.settle()
    oldest.release()  # its place was freed before
    assert len(admission) == 3


def test_what_has_just_begun_is_safe(ends: Ends, clock: MonotonicClock) -> None:
    """A burst of clients that mean well is refused, not ended."""
    admission = Admission("calls", 3, 2, clock, safe_s=1)
    ends.admit(admission, "a")
    clock.now_s += 0.6
    ends.admit(admission, "a")
    with pytest.raises(StorageBackpressure, match="^a has 2 calls at once"):
        ends.admit(admission, "a")
    ends.admit(admission, "b")
    with pytest.raises(StorageBackpressure, match="^the server has 3 calls at once"):
        ends.admit(admission, "c")
    clock.now_s += 0.4
    ends.admit(admission, "c")
    assert ends.peers == ["a"]
    with pytest.raises(StorageBackpressure, match="^the server has 3 calls at once"):
        ends.admit(admission, "d")


def test_what_is_kept_makes_room_for_the_small_only(ends: Ends, clock: MonotonicClock) -> None:
    admission = Admission("calls", 4, 4, clock, safe_s=1, kept_s=15)
    for _ in range(4):
        ends.admit(admission, "a", user="busy")
    clock.now_s += 0.9
    with pytest.raises(StorageBackpressure):
        ends.admit(admission, "a", user="small")  # all are safe from everybody
    clock.now_s += 0.1
    with pytest.raises(StorageBackpressure):
        ends.admit(admission, "a", user="busy")
    assert not ends.peers
    ends.admit(admission, "a", user="small").settle()
    assert len(ends.peers) == 1
    ends.admit(admission, "a", user="small").settle()  # 3 to 1
    with pytest.raises(StorageBackpressure):
        ends.admit(admission, "a", user="small")  # 2 to 2
    with pytest.raises(StorageBackpressure, match="^a has 4 calls at once"):
        ends.admit(admission, "a", user="busy")
    assert len(ends.peers) == 2
    clock.now_s += 14
    ends.admit(admission, "a", user="busy")
    assert len(ends.peers) == 3


def test_another_peer_need_not_wait_for_what_is_kept(ends: Ends, clock: MonotonicClock) -> None:
    admission = Admission("calls", 4, 2, clock, safe_s=1, kept_s=15)
    for peer in "aabb":
        ends.admit(admission, peer)
    clock.now_s += 1
    with pytest.raises(StorageBackpressure, match="^a has 2 calls at once"):
        ends.admit(admission, "a")
    ends.admit(admission, "c")
    assert ends.peers == ["a"]


def test_the_peer_with_the_most_pending_ones_makes_room(ends: Ends, clock: MonotonicClock) -> None:
    admission = Admission("calls", 4, 3, clock)
    small = ends.admit(admission, "small")
    for _ in range(3):
        ends.admit(admission, "greedy")
    ends.admit(admission, "new")
    assert ends.peers == ["greedy"]
    assert not small.dropped


def test_the_last_holder_frees_the_place(ends: Ends, clock: MonotonicClock) -> None:
    admission = Admission("calls", 1, 1, clock)
    call = ends.admit(admission, "a", holds=2)
    call.settle()
    call.release()
    with pytest.raises(StorageBackpressure):
        ends.admit(admission, "a")
    assert not admission.wait_empty(0)
    call.release()
    assert admission.wait_empty(0)
    ends.admit(admission, "a")


def test_what_is_late_ends(ends: Ends, clock: MonotonicClock) -> None:
    admission = Admission("calls", 4, 4, clock, pending_s=10)
    late, settled, answering = (ends.admit(admission, peer) for peer in "abc")
    settled.settle()
    answering.settle()
    answering.expect_end(5)
    clock.now_s += 4.9
    assert admission.end_late() == 0
    clock.now_s += 0.1
    assert admission.end_late() == 1
    assert ends.peers == ["c"]
    clock.now_s += 5
    assert admission.end_late() == 1
    assert ends.peers == ["c", "a"]
    assert late.dropped
    clock.now_s += 1_000
    assert admission.end_late() == 0
    assert len(admission) == 1


@pytest.mark.parametrize(
    ("host", "peer"),
    [
        ("10.0.0.5", "10.0.0.5"),
        ("ipv4:10.0.0.5:41234", "10.0.0.5"),
        ("ipv6:%5B::1%5D:41234", "::/64"),
        ("ipv6:%5Bfe80::1%25eth0%5D:41234", "fe80::/64"),
        ("fd00:1:2:3:aaaa:bbbb:cccc:dddd", "fd00:1:2:3::/64"),
        ("ipv6:[::ffff:10.0.0.5]:41234", "10.0.0.5"),
        ("unix:/run/x", "unix:/run/x"),
    ],
)
def test_a_peer_is_a_host(host: str, peer: str) -> None:
    assert peer_of(host) == peer
