"""How many calls or connections a listener has at once: in all, and of one peer.

A peer is a host: an IPv4 address, or an IPv6 network of 64 bits, which one host may have for
itself. What a client has only begun is *pending*: a call whose message has not arrived, a
connection without its login. Beyond a limit the oldest pending one ends and makes room, so that
half-open calls keep nobody out. What is no longer pending stays, and the newcomer is refused.
What arrives slowly is kept for a while from those who have as much: a newcomer is refused rather
than a running upload cut off, which would only be sent again.
"""

from __future__ import annotations

import ipaddress
import resource
import threading
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from operator import attrgetter
from urllib.parse import unquote

from sluice.clock import Clock
from sluice.errors import StorageBackpressure

_IPV6_NETWORK = 64

FILES_SHARE = 8
"""A listener uses this part of the files that the process may open: others are for storage."""


def within_files(most: int) -> int:
    """The most connections of a listener, or as many as the process may open files for."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return most if files == resource.RLIM_INFINITY else min(most, files // FILES_SHARE)


class Admitted:
    """One admitted call or connection. The lock of its admission guards it."""

    __slots__ = (
        "_admission", "client", "deadline_s", "dropped", "end", "holds", "peer", "pending",
        "since_s", "user",
    )  # fmt: skip

    def __init__(
        self,
        admission: Admission,
        peer: str,
        user: str,
        end: Callable[[], object],
        holds: int,
        since_s: float,
        client: str,
    ) -> None:
        self._admission = admission
        self.peer = peer
        self.user = user
        self.end = end
        self.holds = holds
        self.since_s = since_s
        self.client = client
        self.pending = True
        self.deadline_s: float | None = None
        self.dropped = False
        """Whether it was ended, to make room or because it was late."""

    def settle(self) -> None:
        """It is no longer pending, and so keeps its place.

        :raises StorageBackpressure: it was dropped before.
        """
        with self._admission.lock:
            self.pending, self.deadline_s = False, None
            dropped = self.dropped
        if dropped:
            raise StorageBackpressure(
                f"{self.peer} has begun too many {self._admission.what}, or was too slow: try again"
            )

    def unsettle(self, within_s: float) -> None:
        """It is pending again, as the youngest: it waits for its client once more."""
        with self._admission.lock:
            if not self.dropped:
                self.pending = True
                self.since_s = self._admission.now_s()
                self.deadline_s = self.since_s + within_s
                self._admission.move_to_end(self)

    def expect_end(self, within_s: float | None) -> None:
        """It is dropped if it has not ended within this time; None: no limit."""
        self.deadline_s = None if within_s is None else self._admission.now_s() + within_s

    def release(self) -> None:
        """One of its holders has ended; the last one frees its place."""
        admission = self._admission
        with admission.lock:
            self.holds -= 1
            if not self.holds and not self.dropped:
                admission.remove(self)


class Admission:
    """Counts what is admitted. Safe for use by many threads; nothing waits."""

    def __init__(
        self,
        what: str,
        most: int,
        per_peer: int,
        clock: Clock,
        *,
        pending_s: float | None = None,
        safe_s: float = 0,
        kept_s: float = 0,
    ) -> None:
        """:param what: names what is counted, in the plural, for errors.
        :param pending_s: longest time that something is pending; None: no limit.
        :param safe_s: time in which something pending need not make room yet: a burst of clients
            that mean well is refused rather than ended.
        :param kept_s: time in which it need only make room for those who have less than half as
            much: other users at the limit of a peer, other peers at the limit of all.
        """
        self.most = max(most, 1)
        self.per_peer = min(max(per_peer, 1), self.most)
        self.what = what
        self.now_s = clock.monotonic_s
        self._pending_s = pending_s
        self._safe_s, self._kept_s = safe_s, max(safe_s, kept_s)
        self.lock = threading.Lock()  # guards the next fields, and all that is admitted
        self._empty = threading.Condition(self.lock)
        self._all: dict[Admitted, None] = {}  # the oldest first
        self._by_peer: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._all)

    def admit(
        self,
        peer: str,
        end: Callable[[], object],
        holds: int = 1,
        user: str = "",
        client: str = "",
    ) -> Admitted:
        """Admits one more of a peer (:func:`peer_of`), as pending.

        :param end: ends it when it makes room or is too late; must neither fail nor wait.
        :param holds: how often it will be released.
        :param user: who has logged in, if anybody has.
        :param client: the other end of its connection.
        :raises StorageBackpressure: the peer, or all peers together, have what they may have.
        """
        new = Admitted(self, peer, user, end, holds, self.now_s(), client)
        if self._pending_s is not None:
            new.deadline_s = new.since_s + self._pending_s
        gone = None
        with self.lock:
            of_peer = self._by_peer.get(peer, 0)
            if of_peer >= self.per_peer or len(self._all) >= self.most:
                gone = self._make_room(new, of_peer)
                of_peer = self._by_peer.get(peer, 0)
            self._all[new] = None
            self._by_peer[peer] = of_peer + 1
        if gone is not None:
            gone.end()
        return new

    def clients(self) -> set[str]:
        """The other ends of the connections that have something admitted."""
        with self.lock:
            return {one.client for one in self._all}

    def wait_empty(self, timeout_s: float | None) -> bool:
        """Waits until nothing is admitted any more; False if it takes longer."""
        with self.lock:
            return self._empty.wait_for(lambda: not self._all, timeout_s)

    def end_late(self) -> int:
        """Ends what has reached its deadline; returns how many."""
        now_s = self.now_s()
        return self._end_those(lambda one: one.deadline_s is not None and one.deadline_s <= now_s)

    def end_all(self) -> int:
        """Ends all that is admitted; returns how many."""
        return self._end_those(lambda one: True)  # noqa: ARG005

    def _end_those(self, chosen: Callable[[Admitted], bool]) -> int:
        with self.lock:
            those = [one for one in self._all if chosen(one)]
            for one in those:
                self._drop(one)
        for one in those:
            one.end()
        return len(those)

    def _make_room(self, new: Admitted, of_peer: int) -> Admitted:
        """Drops what must end for one more.

        :raises StorageBackpressure: nothing is pending that could.
        """
        if of_peer >= self.per_peer:
            rivals = [one for one in self._all if one.peer == new.peer]
            party = attrgetter("user")
            refusal = f"{new.peer} has {self.per_peer} {self.what} at once, the limit of one peer"
        else:
            rivals = list(self._all)
            party = attrgetter("peer")
            refusal = f"the server has {self.most} {self.what} at once, its limit"
        have = Counter(map(party, rivals))
        now_s = new.since_s
        begun = [one for one in rivals if one.pending and now_s - one.since_s >= self._safe_s]
        # Who has begun the most gives one, so those of small parties are safe.
        have_begun = Counter(map(party, begun))
        greediest = max(have_begun, key=have_begun.__getitem__, default=None)
        if greediest is not None and have[greediest] <= 2 * have[party(new)]:
            begun = [one for one in begun if now_s - one.since_s >= self._kept_s]
        gone = next((one for one in begun if party(one) == greediest), None)
        if gone is None:
            raise StorageBackpressure(f"{refusal}: try again later")
        self._drop(gone)
        return gone

    def _drop(self, one: Admitted) -> None:
        one.dropped = True
        self.remove(one)

    def move_to_end(self, one: Admitted) -> None:
        """Makes it the youngest. Call it under the lock."""
        self._all[one] = self._all.pop(one)

    def remove(self, one: Admitted) -> None:
        """Frees a place. Call it under the lock."""
        del self._all[one]
        left = self._by_peer[one.peer] - 1
        if left:
            self._by_peer[one.peer] = left
        else:
            del self._by_peer[one.peer]
        if not self._all:
            self._empty.notify_all()


@lru_cache(8192)
def peer_of(host: str) -> str:
    """The peer that a host's address belongs to; other names stay as they are.

    :param host: ``10.0.0.5``, ``fd00::5%eth0``, or in gRPC's form ``ipv6:%5Bfd00::5%5D:41234``.
    """
    return _address_and_peer(_host(host))[1]


def address_of(host: str) -> str:
    """The address of a host, always written alike; other names stay as they are.

    :param host: as for :func:`peer_of`.
    """
    return _address_and_peer(_host(host))[0]


def _host(host: str) -> str:
    kind, _, rest = host.partition(":")
    if kind in ("ipv4", "ipv6"):
        return unquote(rest).rpartition(":")[0].strip("[]")
    return host


@lru_cache(1024)
def _address_and_peer(host: str) -> tuple[str, str]:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host, host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped), str(address.ipv4_mapped)
        network = ipaddress.ip_network((address, _IPV6_NETWORK), strict=False)
        return str(address), str(network)
    return str(address), str(address)
