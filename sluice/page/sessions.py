"""Who may see the page of `sluice ui`: one-time links, and the sessions that they begin."""

from __future__ import annotations

import hmac
import secrets
import threading
from collections import deque

SESSIONS_MAX = 64
"""Browsers that are logged in at once; the oldest session ends for one more."""
_BYTES = 32


class Sessions:
    """The one link that can be used, and the sessions. Safe for use by many threads.

    Tokens stay in memory: they end with the process.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards both
        self._token = secrets.token_urlsafe(_BYTES)
        self._sessions: deque[str] = deque(maxlen=SESSIONS_MAX)

    @property
    def token(self) -> str:
        """The token of the link that was not used yet."""
        return self._token

    def begin(self, token: str) -> str | None:
        """A new session for the token of the link, which then has another one; None: it is wrong.

        The comparison takes as long for each wrong token of a length.
        """
        with self._lock:
            if not hmac.compare_digest(token.encode(), self._token.encode()):
                return None
            self._token = secrets.token_urlsafe(_BYTES)
            session = secrets.token_urlsafe(_BYTES)
            self._sessions.append(session)
            return session

    def holds(self, session: str) -> bool:
        """Whether that session was begun, and has not ended."""
        with self._lock:
            known = tuple(self._sessions)
        given = session.encode()
        # all of them, so that the time does not tell which one is similar
        return sum(hmac.compare_digest(given, each.encode()) for each in known) > 0
