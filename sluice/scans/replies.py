"""Keeps the last batches of finished scans, for clients that did not receive them."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reply:
    """The last batch of a scan."""

    call_seq_id: int
    records: bytes
    user: str = ""
    """The user whose scan it was."""


class Replies:
    """Replies by scanner id, up to a number of bytes; drops the oldest first. Not thread-safe."""

    def __init__(self, bytes_max: int, ttl_ms: int) -> None:
        """:param ttl_ms: how long a reply is kept."""
        self._bytes_max = bytes_max
        self._ttl_s = ttl_ms / 1000
        self._kept: OrderedDict[bytes, tuple[float, Reply]] = OrderedDict()
        self._bytes = 0

    @property
    def size_bytes(self) -> int:
        return self._bytes

    def keep(self, scanner_id: bytes, reply: Reply, now_s: float) -> None:
        """Keeps a reply, unless it alone exceeds the limit."""
        self.drop(scanner_id)
        if len(reply.records) > self._bytes_max:
            return
        self._kept[scanner_id] = (now_s, reply)
        self._bytes += len(reply.records)
        while self._bytes > self._bytes_max:
            self.drop(next(iter(self._kept)))

    def find(self, scanner_id: bytes, call_seq_id: int, user: str = "") -> Reply | None:
        """Returns the reply to a call of a user, or None."""
        _, reply = self._kept.get(scanner_id, (0.0, None))
        if reply is None or (reply.call_seq_id, reply.user) != (call_seq_id, user):
            return None
        return reply

    def drop(self, scanner_id: bytes, user: str | None = None) -> None:
        """Drops a reply, if it exists. :param user: only if it is that user's."""
        found = self._kept.get(scanner_id)
        if found is not None and user in (None, found[1].user):
            del self._kept[scanner_id]
            self._bytes -= len(found[1].records)

    def forget(self, now_s: float) -> None:
        """Drops expired replies."""
        while self._kept:
            scanner_id, (kept_s, _) = next(iter(self._kept.items()))
            if kept_s >= now_s - self._ttl_s:
                return
            self.drop(scanner_id)
