"""All scan sessions of a server: how many there may be, how long one may be idle, how it ended."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass

from sluice.errors import ScannerExpired, TooManyScanners, UnknownScannerId
from sluice.model import TableBucket
from sluice.scans.session import Session

_ENDED_MAX = 10_000
"""Most sessions whose end is remembered; some 200 bytes each."""


@dataclass(frozen=True, slots=True)
class ScanLimits:
    """What scans may take, as Fluss's ``kv.scanner.*`` says."""

    ttl_ms: int = 600_000
    """A session that nobody calls for longer is ended."""
    per_bucket_max: int = 8
    per_server_max: int = 200
    batch_bytes_max: int = 10 * 1024 * 1024
    replay_bytes_max: int = 64 * 1024 * 1024
    """Last batches of finished scans, kept for whoever did not get them."""


@dataclass(frozen=True, slots=True)
class _Ended:
    at_s: float
    reason: str


class Sessions:
    """Sessions by id. Not thread-safe: its owner holds a lock. Times are monotonic seconds.

    A place is reserved before a session is made, so that never more are under way than may be.
    """

    def __init__(self, limits: ScanLimits) -> None:
        self._limits = limits
        self._sessions: dict[bytes, Session] = {}
        self._used_s: dict[bytes, float] = {}
        self._reserved: Counter[TableBucket] = Counter()  # reserved places, and sessions
        self._ended: OrderedDict[bytes, _Ended] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, scanner_id: bytes) -> bool:
        return scanner_id in self._sessions

    @property
    def reserved(self) -> int:
        """Places that are reserved or used."""
        return self._reserved.total()

    def reserve(self, bucket: TableBucket) -> None:
        """Takes a place; :meth:`release` or :meth:`begin` follows.

        :raises TooManyScanners: there is none, of the server or of the bucket.
        """
        most = self._limits
        if self.reserved >= most.per_server_max:
            raise TooManyScanners(
                f"bucket {bucket}: {self.reserved} scans are open on this server, as many as"
                " kv_scanner_max_per_server allows: try again when one has ended"
            )
        if self._reserved[bucket] >= most.per_bucket_max:
            raise TooManyScanners(
                f"bucket {bucket}: {self._reserved[bucket]} scans of it are open, as many as"
                " kv_scanner_max_per_bucket allows: try again when one has ended"
            )
        self._reserved[bucket] += 1

    def release(self, bucket: TableBucket) -> None:
        """Frees a reserved place that no session needs."""
        assert self._reserved[bucket] > 0
        self._reserved[bucket] -= 1
        if not self._reserved[bucket]:
            del self._reserved[bucket]

    def begin(self, session: Session, now_s: float) -> None:
        """Adds a session in its reserved place."""
        assert session.scanner_id not in self._sessions
        assert self._reserved[session.bucket] > 0, "no place was reserved"
        self._sessions[session.scanner_id] = session
        self._used_s[session.scanner_id] = now_s

    def find(self, scanner_id: bytes) -> Session:
        """:raises ScannerExpired: it ended without its client's doing; says why.
        :raises UnknownScannerId: it was closed or has come to its end, or never was.
        """
        session = self._sessions.get(scanner_id)
        if session is not None:
            return session
        shown = scanner_id[:40].decode("ascii", "replace")
        ended = self._ended.get(scanner_id)
        if ended is not None:
            raise ScannerExpired(f"scan {shown} is over: {ended.reason}; begin a new scan")
        raise UnknownScannerId(
            f"scan {shown} is not known: it has ended, or the server was started since; begin a new"
            " scan"
        )

    def touch(self, scanner_id: bytes, now_s: float) -> None:
        """Its time to live begins anew."""
        self._used_s[scanner_id] = now_s

    def update(self, session: Session) -> None:
        """A batch of it was read."""
        assert session.scanner_id in self._sessions
        self._sessions[session.scanner_id] = session

    def end(self, scanner_id: bytes, now_s: float = 0.0, reason: str = "") -> Session | None:
        """Takes a session away and frees its place; None if there is none.

        :param reason: remembered for its client, unless that has ended it itself.
        """
        session = self._sessions.pop(scanner_id, None)
        if session is None:
            return None
        del self._used_s[scanner_id]
        self.release(session.bucket)
        if reason:
            self._ended[scanner_id] = _Ended(now_s, reason)
            while len(self._ended) > _ENDED_MAX:
                self._ended.popitem(last=False)
        return session

    def of(self, bucket: TableBucket) -> list[bytes]:
        return [key for key, session in self._sessions.items() if session.bucket == bucket]

    def all(self) -> list[bytes]:
        return list(self._sessions)

    def idle(self, now_s: float) -> list[bytes]:
        """Sessions that nobody has called for longer than they live."""
        since_s = now_s - self._limits.ttl_ms / 1000
        return [key for key, used_s in self._used_s.items() if used_s < since_s]

    def forget(self, now_s: float) -> None:
        """Forgets how sessions ended that ended two times to live ago."""
        since_s = now_s - 2 * self._limits.ttl_ms / 1000
        while self._ended and next(iter(self._ended.values())).at_s < since_s:
            self._ended.popitem(last=False)
