"""Logins of a REST catalog other than OAuth2: a password, and requests that their client signs.

See RFC 7617 (Basic), and "Create a signed AWS API request" in AWS' IAM User Guide (SigV4).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from typing import Protocol
from urllib.parse import quote

from tests.support.catalogs.http_server import Request
from tests.support.catalogs.rest_tables import Answer, refused

_REGION, _SERVICE = "eu-central-1", "glue"


class RestLogin(Protocol):
    """Lets requests in by what is in their headers."""

    @property
    def options(self) -> dict[str, str]:
        """What a client's properties need."""

    def refusal(self, request: Request) -> Answer | None:
        """Why a request is not let in; None: it is."""


class BasicLogin:
    """A user with a password."""

    def __init__(self) -> None:
        self._user, self._password = "tester", secrets.token_urlsafe()

    @property
    def options(self) -> dict[str, str]:
        return {
            "rest.auth.type": "basic",
            "rest.auth.basic.username": self._user,
            "rest.auth.basic.password": self._password,
        }

    def refusal(self, request: Request) -> Answer | None:
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        wanted = base64.b64encode(f"{self._user}:{self._password}".encode()).decode()
        if kind == "Basic" and hmac.compare_digest(given, wanted):
            return None
        return refused(401, "NotAuthorizedException", "the user or the password is wrong")


class SignedLogin:
    """An access key: its secret signs each request, as AWS' own REST catalogs want it."""

    def __init__(self) -> None:
        self._key, self._secret = "AKIATESTER", secrets.token_urlsafe()

    @property
    def options(self) -> dict[str, str]:
        return {
            "rest.auth.type": "sigv4",
            "rest.auth.sigv4.delegate-auth-type": "none",
            "rest.signing-region": _REGION,
            "rest.signing-name": _SERVICE,
            "rest.access-key-id": self._key,
            "rest.secret-access-key": self._secret,
        }

    def refusal(self, request: Request) -> Answer | None:
        given = _parts(request.headers.get("authorization", ""))
        scope = f"{request.headers.get('x-amz-date', '')[:8]}/{_REGION}/{_SERVICE}/aws4_request"
        if given.get("Credential") == f"{self._key}/{scope}":
            wanted = self._signature(request, given["SignedHeaders"], scope)
            if hmac.compare_digest(given.get("Signature", ""), wanted):
                return None
        return refused(403, "ForbiddenException", "the request's signature does not match")

    def _signature(self, request: Request, signed: str, scope: str) -> str:
        query = "&".join(f"{_quoted(k)}={_quoted(v)}" for k, v in sorted(request.query.items()))
        headers = [f"{name}:{request.headers.get(name, '').strip()}" for name in signed.split(";")]
        body = hashlib.sha256(request.body.encode()).hexdigest()
        # the path is quoted once more: only S3 does without
        canonical = [request.method, quote(request.path, safe="/-_.~"), query, *headers, "", signed]
        digest = hashlib.sha256("\n".join([*canonical, body]).encode()).hexdigest()
        key = f"AWS4{self._secret}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        text = "\n".join(["AWS4-HMAC-SHA256", request.headers["x-amz-date"], scope, digest])
        return hmac.digest(key, text.encode(), "sha256").hex()


def _parts(authorization: str) -> dict[str, str]:
    kind, _, rest = authorization.partition(" ")
    pairs = [one.strip().split("=", 1) for one in rest.split(",")]
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2 and kind == "AWS4-HMAC-SHA256"}


def _quoted(text: str) -> str:
    return quote(text, safe="-_.~")
