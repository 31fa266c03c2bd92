"""Who may see the page of `sluice ui`: one-time links, and the sessions that they begin."""

from __future__ import annotations

import hmac
import secrets
import threading

from sluice.clock import Clock, SystemClock

SESSIONS_MAX = 64
"""Browsers that are logged in at once; the oldest session ends for one more."""
IDLE_S = 12 * 3600.0
"""A session that was not used for so long has ended. An open page uses it all the time."""
_BYTES = 32


class Sessions:
    """The one link that can be used, and the sessions. Safe for use by many threads.

    Tokens stay in memory: they end with the process.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()  # guards both
        self._token = secrets.token_urlsafe(_BYTES)
        self._sessions: dict[str, float] = {}  # when each was last used; in order of their begin

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
            self._sessions[session] = self._clock.monotonic_s()
            if len(self._sessions) > SESSIONS_MAX:
                del self._sessions[next(iter(self._sessions))]
            return session

    def holds(self, session: str) -> bool:
        """Whether that session was begun, and has not ended. This is a use of it."""
        given = session.encode()
        with self._lock:
            now_s = self._clock.monotonic_s()
            used = self._sessions.items()
            self._sessions = {one: at for one, at in used if now_s - at < IDLE_S}
            # all of them, so that the time does not tell which one is similar
            found = [one for one in self._sessions if hmac.compare_digest(given, one.encode())]
            self._sessions.update(dict.fromkeys(found, now_s))
            return bool(found)
