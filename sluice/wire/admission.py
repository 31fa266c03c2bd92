"""How many calls or connections a listener has at once: in all, and of one peer.

A peer is a host: an IPv4 address, or an IPv6 network of 64 bits, which one host may have for
itself. What a client has only begun is *pending*: a call whose message has not arrived, a
connection without its login. Beyond a limit the oldest pending one ends and makes room, so that
half-open calls keep nobody out. What is no longer pending stays, and the newcomer is refused.
"""

from __future__ import annotations

import ipaddress
import threading
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from urllib.parse import unquote

from sluice.clock import Clock
from sluice.errors import StorageBackpressure

_IPV6_NETWORK = 64


class Admitted:
    """One admitted call or connection. The lock of its admission guards it."""

    __slots__ = (
        "_admission", "deadline_s", "dropped", "end", "holds", "peer", "pending", "since_s"
    )  # fmt: skip

    def __init__(
        self, admission: Admission, peer: str, end: Callable[[], object], holds: int, since_s: float
    ) -> None:
        self._admission = admission
        self.peer = peer
        self.end = end
        self.holds = holds
        self.since_s = since_s
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
    ) -> None:
        """:param what: names what is counted, in the plural, for errors.
        :param pending_s: longest time that something is pending; None: no limit.
        :param safe_s: time in which something pending need not make room yet: a burst of clients
            that mean well is refused rather than ended.
        """
        self.most = max(most, 1)
        self.per_peer = min(max(per_peer, 1), self.most)
        self.what = what
        self.now_s = clock.monotonic_s
        self._pending_s = pending_s
        self._safe_s = safe_s
        self.lock = threading.Lock()  # guards the next fields, and all that is admitted
        self._empty = threading.Condition(self.lock)
        self._all: dict[Admitted, None] = {}  # the oldest first
        self._by_peer: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._all)

    def admit(self, peer: str, end: Callable[[], object], holds: int = 1) -> Admitted:
        """Admits one more of a peer (:func:`peer_of`), as pending.

        :param end: ends it when it makes room or is too late; must neither fail nor wait.
        :param holds: how often it will be released.
        :raises StorageBackpressure: the peer, or all peers together, have what they may have.
        """
        new = Admitted(self, peer, end, holds, self.now_s())
        if self._pending_s is not None:
            new.deadline_s = new.since_s + self._pending_s
        gone = None
        with self.lock:
            of_peer = self._by_peer.get(peer, 0)
            if of_peer >= self.per_peer or len(self._all) >= self.most:
                gone = self._make_room(peer, of_peer)
                of_peer = self._by_peer.get(peer, 0)
            self._all[new] = None
            self._by_peer[peer] = of_peer + 1
        if gone is not None:
            gone.end()
        return new

    def wait_empty(self, timeout_s: float | None) -> bool:
        """Waits until nothing is admitted any more; False if it takes longer."""
        with self.lock:
            return self._empty.wait_for(lambda: not self._all, timeout_s)

    def end_late(self) -> int:
        """Ends what has reached its deadline; returns how many."""
        now_s = self.now_s()
        with self.lock:
            late = [
                one for one in self._all if one.deadline_s is not None and one.deadline_s <= now_s
            ]
            for one in late:
                self._drop(one)
        for one in late:
            one.end()
        return len(late)

    def _make_room(self, peer: str, of_peer: int) -> Admitted:
        """Drops what must end for one more of that peer.

        :raises StorageBackpressure: nothing is pending that could.
        """
        latest_s = self.now_s() - self._safe_s
        begun = [one for one in self._all if one.pending and one.since_s <= latest_s]
        if of_peer >= self.per_peer:
            greediest = peer
            refusal = f"{peer} has {self.per_peer} {self.what} at once, the limit of one peer"
        else:
            # Who has begun the most gives one, so those of small peers are safe.
            of_each = Counter(one.peer for one in begun)
            greediest = max(of_each, key=of_each.__getitem__, default=peer)
            refusal = f"the server has {self.most} {self.what} at once, its limit"
        gone = next((one for one in begun if one.peer == greediest), None)
        if gone is None:
            raise StorageBackpressure(f"{refusal}: try again later")
        self._drop(gone)
        return gone

    def _drop(self, one: Admitted) -> None:
        one.dropped = True
        self.remove(one)

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


@lru_cache(1024)
def peer_of(host: str) -> str:
    """The peer that a host's address belongs to; other names stay as they are.

    :param host: ``10.0.0.5``, ``fd00::5%eth0``, or in gRPC's form ``ipv6:%5Bfd00::5%5D:41234``.
    """
    kind, _, rest = host.partition(":")
    if kind in ("ipv4", "ipv6"):
        host = unquote(rest).rpartition(":")[0].strip("[]")
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        network = ipaddress.ip_network((address, _IPV6_NETWORK), strict=False)
        return str(network)
    return str(address)
