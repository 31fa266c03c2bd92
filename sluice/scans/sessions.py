"""All scan sessions of a server, with their limits, idle times and reasons of ending."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass

from sluice.errors import ScannerExpired, TooManyScanners, UnknownScannerId
from sluice.model import TableBucket
from sluice.scans.types import Session

_ENDED_MAX = 10_000
"""Maximum number of remembered ended sessions; about 200 bytes each."""


@dataclass(frozen=True, slots=True)
class ScanLimits:
    """The limits of scans, as Fluss's ``kv.scanner.*`` options."""

    ttl_ms: int = 600_000
    """A session that is idle for longer is ended."""
    per_bucket_max: int = 8
    per_server_max: int = 200
    batch_bytes_max: int = 10 * 1024 * 1024
    replay_bytes_max: int = 64 * 1024 * 1024
    """Limit of the last batches of finished scans, kept for clients that did not receive them."""

    @property
    def per_bucket_and_user_max(self) -> int:
        """One user has at most half of the scans of a bucket, so that others can scan it too."""
        return max(self.per_bucket_max // 2, 1)

    @property
    def per_user_max(self) -> int:
        """The same of a server."""
        return max(self.per_server_max // 2, 1)


@dataclass(frozen=True, slots=True)
class _Ended:
    at_s: float
    reason: str


class Sessions:
    """Sessions by id. Not thread-safe: its owner holds a lock. Times are monotonic seconds.

    A place is reserved before a session is created, so that the limits are never exceeded.
    """

    def __init__(self, limits: ScanLimits) -> None:
        self._limits = limits
        self._sessions: dict[bytes, Session] = {}
        self._used_s: dict[bytes, float] = {}
        # Reserved places, and sessions.
        self._reserved: Counter[TableBucket] = Counter()
        self._reserved_by: Counter[tuple[str, TableBucket | None]] = Counter()
        self._ended: OrderedDict[bytes, _Ended] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, scanner_id: bytes) -> bool:
        return scanner_id in self._sessions

    @property
    def reserved(self) -> int:
        """The number of reserved and used places."""
        return self._reserved.total()

    def reserve(self, bucket: TableBucket, user: str = "") -> None:
        """Reserves a place; call :meth:`release` or :meth:`begin` afterwards.

        :param user: who scans. Nobody in particular may take all places.
        :raises TooManyScanners: server, bucket or user have no free place.
        """
        self._check_free(bucket)
        if user:
            self._check_free_of(user, bucket)
        self._reserved[bucket] += 1
        for place in (bucket, None):
            self._reserved_by[user, place] += 1

    def _check_free(self, bucket: TableBucket) -> None:
        most = self._limits
        if self.reserved >= most.per_server_max:
            raise TooManyScanners(
                f"bucket {bucket}: {self.reserved} scans are open on this server, the limit of"
                " kv_scanner_max_per_server: retry when one has ended"
            )
        if self._reserved[bucket] >= most.per_bucket_max:
            raise TooManyScanners(
                f"bucket {bucket}: {self._reserved[bucket]} scans of it are open, the limit of"
                " kv_scanner_max_per_bucket: retry when one has ended"
            )

    def _check_free_of(self, user: str, bucket: TableBucket) -> None:
        most = self._limits
        for place, limit, where, setting in (
            (None, most.per_user_max, "on this server", "kv_scanner_max_per_server"),
            (bucket, most.per_bucket_and_user_max, "of it", "kv_scanner_max_per_bucket"),
        ):
            count = self._reserved_by[user, place]
            if count >= limit:
                raise TooManyScanners(
                    f"bucket {bucket}: user {user!r} has {count} open scans {where}, the limit of"
                    f" one user (half of {setting}): retry when one of them has ended"
                )

    def release(self, bucket: TableBucket, user: str = "") -> None:
        """Releases a reserved place that no session uses."""
        assert self._reserved[bucket] > 0
        assert self._reserved_by[user, bucket] > 0
        self._reserved[bucket] -= 1
        if not self._reserved[bucket]:
            del self._reserved[bucket]
        for place in (bucket, None):
            self._reserved_by[user, place] -= 1
            if not self._reserved_by[user, place]:
                del self._reserved_by[user, place]

    def begin(self, session: Session, now_s: float) -> None:
        """Adds a session in its reserved place."""
        assert session.scanner_id not in self._sessions
        assert self._reserved_by[session.user, session.bucket] > 0, "no place was reserved"
        self._sessions[session.scanner_id] = session
        self._used_s[session.scanner_id] = now_s

    def find(self, scanner_id: bytes, user: str = "") -> Session:
        """Returns a session of a user.

        :raises ScannerExpired: the server ended it; the message has the reason.
        :raises UnknownScannerId: it was closed, was read to the end, never existed, or belongs to
            another user.
        """
        session = self._sessions.get(scanner_id)
        if session is not None and session.user == user:
            return session
        shown = scanner_id[:40].decode("ascii", "replace")
        ended = self._ended.get(scanner_id)
        if ended is not None:
            raise ScannerExpired(f"scan {shown} was ended: {ended.reason}; start a new scan")
        raise UnknownScannerId(
            f"unknown scan {shown}: it has ended, or the server was restarted; start a new scan"
        )

    def is_of(self, scanner_id: bytes, user: str) -> bool:
        """Whether it is an open session of that user."""
        session = self._sessions.get(scanner_id)
        return session is not None and session.user == user

    def touch(self, scanner_id: bytes, now_s: float) -> None:
        """Restarts the time to live of a session."""
        self._used_s[scanner_id] = now_s

    def update(self, session: Session) -> None:
        """Replaces a session after a batch was read."""
        assert session.scanner_id in self._sessions
        self._sessions[session.scanner_id] = session

    def end(self, scanner_id: bytes, now_s: float = 0.0, reason: str = "") -> Session | None:
        """Removes a session and frees its place; returns it, or None if it does not exist.

        :param reason: kept for its client; empty if the client has ended it.
        """
        session = self._sessions.pop(scanner_id, None)
        if session is None:
            return None
        del self._used_s[scanner_id]
        self.release(session.bucket, session.user)
        if reason:
            self._ended[scanner_id] = _Ended(now_s, reason)
            while len(self._ended) > _ENDED_MAX:
                self._ended.popitem(last=False)
        return session

    def of(self, bucket: TableBucket) -> list[bytes]:
        return [key for key, session in self._sessions.items() if session.bucket == bucket]

    def oldest_offset(self, bucket: TableBucket) -> int | None:
        """The lowest log offset of the bucket's sessions; None without a session."""
        found = (one.log_offset for one in self._sessions.values() if one.bucket == bucket)
        return min(found, default=None)

    def all(self) -> list[bytes]:
        return list(self._sessions)

    def idle(self, now_s: float) -> list[bytes]:
        """Returns the expired sessions."""
        since_s = now_s - self._limits.ttl_ms / 1000
        return [key for key, used_s in self._used_s.items() if used_s < since_s]

    def forget(self, now_s: float) -> None:
        """Forgets sessions that ended more than two times to live ago."""
        since_s = now_s - 2 * self._limits.ttl_ms / 1000
        while self._ended and next(iter(self._ended.values())).at_s < since_s:
            self._ended.popitem(last=False)
