"""A layer before moto that ends session keys by time, which moto does not do.

It also notes each request, and caps the life of keys far below the 15 minutes that AWS allows. It
can delay what clients with session keys ask, so that their keys end during some work, and refuse
to delete some files.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

Start = Callable[..., Any]
Wsgi = Callable[[dict[str, Any], Start], Iterable[bytes]]

CONTROL = "/session-layer/"
"""Its own paths are below: ``requests``, ``secrets`` (GET), ``life``, ``delay`` (POST, seconds),
``metadata-delay`` (the same for the other files), ``kept`` (POST, a part of a path)."""
_SCOPE = re.compile(r"Credential=([^/,\s]+)/[^/]+/[^/]+/([^/]+)/aws4_request")
_KEY = re.compile(rb"<AccessKeyId>([^<]+)</AccessKeyId>")
_END = re.compile(rb"<Expiration>([^<]+)</Expiration>")
_SECRET = re.compile(rb"<(?:SecretAccessKey|SessionToken)>([^<]+)</")
_TEXT = "The provided token has expired."
_EXPIRED = {
    "s3": (
        "400 Bad Request",
        "application/xml",
        f"<Error><Code>ExpiredToken</Code><Message>{_TEXT}</Message></Error>",
    ),
    "sts": (
        "403 Forbidden",
        "text/xml",
        "<ErrorResponse><Error><Type>Sender</Type><Code>ExpiredToken</Code>"
        f"<Message>{_TEXT}</Message></Error></ErrorResponse>",
    ),
    "glue": (
        "400 Bad Request",
        "application/x-amz-json-1.1",
        json.dumps({"__type": "ExpiredTokenException", "message": _TEXT}),
    ),
}
_UNSIGNED = (
    "403 Forbidden",
    "application/xml",
    "<Error><Code>AccessDenied</Code><Message>The request is not signed.</Message></Error>",
)
_KEPT = (
    "403 Forbidden",
    "application/xml",
    "<Error><Code>AccessDenied</Code><Message>The file is kept.</Message></Error>",
)


class SessionLayer:
    """Passes requests on to moto, but those with keys past their end. Thread safe."""

    def __init__(self, inner: Wsgi, life_s: float | None = None) -> None:
        """:param life_s: caps the life of keys that are given from now on; None: as asked."""
        self._inner = inner
        self._life_s = life_s
        self._delay_s = self._metadata_delay_s = 0.0
        self._kept = ""
        self._lock = threading.Lock()
        self._ends: dict[str, float] = {}
        self._seen: list[dict[str, str]] = []
        self._secrets: list[str] = []

    def __call__(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if path.startswith(CONTROL):
            return self._control(path.removeprefix(CONTROL), environ, start)
        if path.startswith("/moto-api/"):
            return self._inner(environ, start)
        key, service = signer(environ)
        with self._lock:
            self._seen.append({"method": method, "path": path, "key": key, "service": service})
            is_over = key in self._ends and time.time() >= self._ends[key]
            delay_s = self._metadata_delay_s if "/metadata/" in path else self._delay_s
            delay_s = delay_s if key in self._ends else 0.0
            is_kept = method == "DELETE" and self._kept != "" and self._kept in path
        time.sleep(delay_s)  # after the look at the keys, as a store that is slow to answer
        if is_over:
            return _answer(_EXPIRED.get(service, _EXPIRED["s3"]), environ, start)
        if is_kept:
            return _answer(_KEPT, environ, start)
        if not key:  # moto itself would fail where it checks signatures
            return _answer(_UNSIGNED, environ, start)
        if service == "sts":
            return self._sts(environ, start)
        return self._inner(environ, start)

    def _control(self, what: str, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        with self._lock:
            if what == "life":
                self._life_s = float(body) if body else None
            elif what == "delay":
                self._delay_s = float(body)
            elif what == "metadata-delay":
                self._metadata_delay_s = float(body)
            elif what == "kept":
                self._kept = body.decode()
            noted = {"requests": self._seen, "secrets": self._secrets}
            answer = json.dumps(noted.get(what, {})).encode()
        start("200 OK", [("Content-Type", "application/json")])
        return [answer]

    def _sts(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        begun: list[Any] = []

        def note(status: str, headers: list[tuple[str, str]], *more: Any) -> None:
            begun[:] = [status, headers, *more]

        body = b"".join(self._inner(environ, note))
        if (key := _KEY.search(body)) and (end := _END.search(body)):
            at = datetime.fromisoformat(end[1].decode()).timestamp()
            with self._lock:
                if self._life_s is not None:
                    at = min(at, time.time() + self._life_s)
                self._ends[key[1].decode()] = at
                self._secrets += [found.decode() for found in _SECRET.findall(body)]
            text = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
            body = _END.sub(f"<Expiration>{text}</Expiration>".encode(), body)
        status, headers, *more = begun
        kept = [item for item in headers if item[0].lower() != "content-length"]
        start(status, [*kept, ("Content-Length", str(len(body)))], *more)
        return [body]


def signer(environ: dict[str, Any]) -> tuple[str, str]:
    """The access key and the service of a signed request; empty if it is not signed."""
    found = _SCOPE.search(environ.get("HTTP_AUTHORIZATION", ""))
    return (found[1], found[2]) if found else ("", "")


def _answer(answer: tuple[str, str, str], environ: dict[str, Any], start: Start) -> Iterable[bytes]:
    environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    status, kind, text = answer
    body = b"" if environ["REQUEST_METHOD"] == "HEAD" else text.encode()
    start(status, [("Content-Type", kind), ("Content-Length", str(len(body)))])
    return [body]
