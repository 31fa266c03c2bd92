"""The login of a REST catalog: OAuth2 with tokens that end, or one token that is given by hand.

See RFC 6749 (client credentials) and RFC 8693 (token exchange).
"""

from __future__ import annotations

import base64
import secrets
import threading
import time
from collections.abc import Mapping
from urllib.parse import parse_qsl, unquote_plus

from tests.support.catalogs.http_server import Request
from tests.support.catalogs.rest_tables import Answer, refused

_ACCESS = "urn:ietf:params:oauth:token-type:access_token"
_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
SCOPE = "catalog"


class Login:
    """Gives and checks tokens. Thread safe."""

    def __init__(self, token_life_s: float = 3600.0) -> None:
        self.client_id, self.secret = "tester", secrets.token_urlsafe()
        self.static_token = secrets.token_urlsafe()
        """Lets in for ever; no client gets it from this server."""
        self.token_life_s = token_life_s
        self.grants: list[str] = []
        """The grant type of each token that was given."""
        self._ends: dict[str, float] = {}
        self._lock = threading.Lock()

    @property
    def credential(self) -> str:
        """Iceberg's option ``credential``."""
        return f"{self.client_id}:{self.secret}"

    def lets_in(self, authorization: str) -> bool:
        """Whether a request's header ``Authorization`` has a token that has not ended."""
        kind, _, token = authorization.partition(" ")
        with self._lock:
            known = self._ends.get(token, 0.0)
        return kind == "Bearer" and (token == self.static_token or time.monotonic() < known)

    def end_all(self) -> None:
        """Ends all tokens now, as a restart of the login server might."""
        with self._lock:
            self._ends = dict.fromkeys(self._ends, 0.0)

    def give(self, request: Request) -> Answer:
        """Answers a request to the token endpoint."""
        form = dict(parse_qsl(request.body))
        if not self._is_client(form, request.headers.get("authorization", "")):
            return _oauth_error(401, "invalid_client", "unknown client or wrong secret")
        if form.get("scope", SCOPE) not in (SCOPE, "sign"):
            return _oauth_error(400, "invalid_scope", f"only {SCOPE} is known")
        grant = form.get("grant_type", "")
        if grant == _EXCHANGE:
            with self._lock:
                is_known = form.get("subject_token") in self._ends
            if not is_known:
                return _oauth_error(400, "invalid_grant", "the subject token is not ours")
        elif grant != "client_credentials":
            return _oauth_error(400, "unsupported_grant_type", grant)
        token = secrets.token_urlsafe()
        with self._lock:
            self.grants.append(grant)
            self._ends[token] = time.monotonic() + self.token_life_s
        return 200, {
            "access_token": token,
            "token_type": "bearer",
            "issued_token_type": _ACCESS,
            "expires_in": int(self.token_life_s),
            "scope": SCOPE,
        }

    def _is_client(self, form: Mapping[str, str], authorization: str) -> bool:
        """Whether the form, a Basic header or a token that has not ended shows the client."""
        if "client_secret" in form:
            return (form.get("client_id"), form["client_secret"]) == (self.client_id, self.secret)
        kind, _, value = authorization.partition(" ")
        if kind == "Basic":
            given = unquote_plus(base64.b64decode(value).decode())
            return given == self.credential
        return self.lets_in(authorization)


def not_authorized() -> Answer:
    """The refusal of a request whose token is missing, unknown or over."""
    return refused(401, "NotAuthorizedException", "the token is missing, unknown or has ended")


def _oauth_error(code: int, error: str, text: str) -> Answer:
    return code, {"error": error, "error_description": text}
