"""The view and pin that a scan session holds on a store, and the lock that orders its calls."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from sluice.errors import InvalidScanRequest
from sluice.server.tablet.kv.scan_view import Rows

_TURN_S = 25.0
"""Maximum wait for another call of the same session; clients time out after 30 s."""


class View(Protocol):
    """The rows of a store at one point in time; see ``KvView``."""

    def read(
        self, start: bytes | None, rows_max: int | None, batch_bytes: int, bytes_max: int
    ) -> Rows: ...

    def release(self) -> None: ...


class Pin(Protocol):
    """Keeps an idle store open."""

    def release(self) -> None: ...


class ScannerContext:
    """The view and the pin of one session. The manager's lock guards all but :meth:`turn`.

    Readers enter first. If the context is closed in the meantime, the last reader that leaves
    releases it, so that a view is never released during a read.
    """

    def __init__(self, view: View, pin: Pin) -> None:
        self.view = view
        self._pin = pin
        self._turn = threading.Lock()
        self._users = 0
        self._closed = False

    def enter(self) -> None:
        """Prevents the release of the view until :meth:`leave` is called."""
        assert not self._closed
        self._users += 1

    def leave(self) -> None:
        self._users -= 1
        self._release_if_over()

    def close(self) -> None:
        """Releases view and pin as soon as the last reader leaves. Never blocks."""
        self._closed = True
        self._release_if_over()

    @property
    def in_use(self) -> bool:
        return self._users > 0

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Runs the calls of a session in turn. :class:`ScannerManager` gives the lock order.

        :raises InvalidScanRequest: another call takes too long; the session is unchanged.
        """
        if not self._turn.acquire(timeout=_TURN_S):
            raise InvalidScanRequest(
                f"another call of this scan has been running for {_TURN_S:.0f} s: wait for its"
                " response, or repeat this call"
            )
        try:
            yield
        finally:
            self._turn.release()

    def _release_if_over(self) -> None:
        if self._closed and not self._users:
            self.view.release()  # before the pin: a store with a view cannot be closed
            self._pin.release()
