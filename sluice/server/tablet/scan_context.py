"""What a scan session holds of its bucket's store, and the lock that puts its calls in a row."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from sluice.errors import InvalidScanRequest
from sluice.server.tablet.scan_view import Rows

_TURN_S = 25.0
"""Longest wait for another call of the same session; clients give a call 30 s."""


class View(Protocol):
    """Frozen rows of a store: see ``KvView``."""

    def read(
        self, start: bytes | None, rows_max: int | None, batch_bytes: int, bytes_max: int
    ) -> Rows: ...

    def release(self) -> None: ...


class Pin(Protocol):
    """Keeps a store open while nobody works with it."""

    def release(self) -> None: ...


class ScannerContext:
    """The view and the pin of one session. The manager's lock guards all but :meth:`turn`.

    Whoever reads has entered before. A context that is closed meanwhile is let go of by the last
    one that leaves, so that a view is never taken away from under a read.
    """

    def __init__(self, view: View, pin: Pin) -> None:
        self.view = view
        self._pin = pin
        self._turn = threading.Lock()
        self._users = 0
        self._closed = False

    def enter(self) -> None:
        """Keeps the view from being released; :meth:`leave` follows."""
        assert not self._closed
        self._users += 1

    def leave(self) -> None:
        self._users -= 1
        self._release_if_over()

    def close(self) -> None:
        """Releases view and pin as soon as nobody is inside. Waits for nobody."""
        self._closed = True
        self._release_if_over()

    @property
    def in_use(self) -> bool:
        return self._users > 0

    @contextmanager
    def turn(self) -> Iterator[None]:
        """One call of a session after the other. Take no other lock and then this one.

        :raises InvalidScanRequest: another one takes too long; the session is as it was.
        """
        if not self._turn.acquire(timeout=_TURN_S):
            raise InvalidScanRequest(
                f"another call of this scan has been under way for {_TURN_S:.0f} s: wait for its"
                " answer, or send the same call again"
            )
        try:
            yield
        finally:
            self._turn.release()

    def _release_if_over(self) -> None:
        if self._closed and not self._users:
            self.view.release()  # before the pin: a store with a view cannot be closed
            self._pin.release()
