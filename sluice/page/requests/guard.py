"""What every answer of the page has, wherever it is served: safe headers, errors as one line."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from fastapi import HTTPException, Request
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException as StarletteHTTPException

from sluice import errors as e
from sluice.masking import mask, reason_text
from sluice.page.cluster.models import Problem

_BY_STATUS: dict[int, tuple[type[e.SluiceError], ...]] = {
    403: (e.AuthorizationError, e.AuthenticateError, e.RetriableAuthenticateError),
    404: (
        e.TableNotExist,
        e.DatabaseNotExist,
        e.PartitionNotExists,
        e.SchemaNotExist,
        e.UnknownTableOrBucket,
        e.LeaseNotExist,
        e.KvSnapshotNotExist,
        e.LakeSnapshotNotExist,
        e.LakeTableMissing,
    ),
    409: (
        e.TableNotDue,
        e.TablePaused,
        e.ClaimLost,
        e.FencedTieringEpoch,
        e.InvalidTable,
        e.NonPrimaryKeyTable,
        e.LakeStorageNotConfigured,
    ),
    422: (e.InvalidDatabase, e.InvalidLease, e.PartitionSpecInvalid, e.InvalidConfig),
    501: (e.UnsupportedVersion,),
    504: (e.RequestTimeOut,),
}
"""All other errors have 502: the cluster, or the way to it, has failed."""

STATUSES = (*_BY_STATUS, 502)


def status_of(error: Exception) -> int:
    """The HTTP status of an error."""
    return next((status for status, kinds in _BY_STATUS.items() if isinstance(error, kinds)), 502)


_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
_App = Callable[[_Message, _Receive, _Send], Awaitable[None]]

OWN_HEADER = "X-Sluice-Page"
"""A page of another origin cannot send it without asking first, and is not allowed to."""
BODY_BYTES_MAX = 16_384
"""The bodies of the page's calls are small; a larger one is refused before it is read."""
TOO_LARGE = f"the body is larger than {BODY_BYTES_MAX:,} bytes"
PATH_CHARS_MAX = 200
"""What is logged of a path."""
NO_STORE = "no-store"
UNCHANGING = "public, max-age=31536000, immutable"
"""For files whose names change with their contents."""
HEADERS = {
    # React sets styles through the DOM, which the policy allows.
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; object-src 'none';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "SAMEORIGIN",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": NO_STORE,
}
"""Headers of each answer that does not set them itself."""

_log = logging.getLogger(__name__)


class Guard:
    """ASGI middleware: adds :data:`HEADERS`, refuses large bodies, and hides unexpected errors.

    The cause of an unexpected error is logged, without secrets; the answer only says where to look.
    """

    def __init__(self, app: _App) -> None:
        self._app = app

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_started, read_bytes = False, 0

        async def receive_bounded() -> _Message:
            nonlocal read_bytes
            message = await receive()
            read_bytes += len(message.get("body", b""))
            if read_bytes > BODY_BYTES_MAX:
                raise HTTPException(413, TOO_LARGE)
            return message

        async def send_safe(message: _Message) -> None:
            nonlocal has_started
            if message["type"] == "http.response.start":
                has_started = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        if _declared_bytes(scope) > BODY_BYTES_MAX:
            answer = problem(413, TOO_LARGE)
            await answer(scope, receive, send_safe)
            return
        try:
            await self._app(scope, receive_bounded, send_safe)
        except Exception as error:
            # The path is a stranger's: its line ends would be lines of the log.
            what = f"{scope['method']} {scope['path'][:PATH_CHARS_MAX]!r}"
            _log.error("%s failed\n%s", what, mask("".join(traceback.format_exception(error))))
            if has_started:
                raise  # the connection ends, so that nobody takes the part for the whole
            answer = problem(500, f"{type(error).__name__}: the log of the server has the cause")
            await answer(scope, receive, send_safe)


def _declared_bytes(scope: _Message) -> int:
    text = Headers(scope=scope).get("content-length", "0")
    return int(text) if text.isascii() and text.isdecimal() else 0


def problem(status: int, message: str, error: str | None = None) -> JSONResponse:
    """An answer that says why a request failed.

    :param error: the class of the error; None: the phrase of the status.
    """
    name = error or HTTPStatus(status).phrase
    found = Problem(error=name, message=reason_text(message))
    return JSONResponse(found.model_dump(), status, headers=dict(HEADERS))


async def refused(request: Request, error: Exception) -> JSONResponse:  # noqa: ARG001
    """The answer to a request that the application or its place refuses."""
    assert isinstance(error, StarletteHTTPException)
    answer = problem(error.status_code, str(error.detail))
    answer.headers.update(error.headers or {})
    return answer


def require_own_page(request: Request, *, programs: bool, public_url: str = "") -> None:
    """Refuses a change that another page in the same browser may have sent.

    :param programs: whether a call with a Bearer token may come from no page at all: no browser
        adds one by itself. False where nobody checks such a token.
    :param public_url: where people see this page, for browsers that send only the origin: behind a
        proxy, scheme and Host may be others. Empty: where it is called.
    :raises HTTPException: 403; says what is missing.
    """
    headers = request.headers
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    is_program = headers.get("authorization", "").lower().startswith("bearer ")
    if programs and is_program and origin is None and site is None:
        return
    if OWN_HEADER not in headers:
        raise HTTPException(403, f"the header {OWN_HEADER} is missing: send it with any value")
    if site is None and origin is None:
        raise HTTPException(403, "the header Origin is missing: send the origin of this page")
    if site is not None:  # browsers set it, and no script can
        is_own = site == "same-origin"
    else:
        is_own = _origin_of(origin or "") in _own_origins(request, public_url)
    if not is_own:
        raise HTTPException(403, "another page sent this request: use the buttons of this page")


_Origin = tuple[str, str, int]
"""Scheme, host and port."""
_PORTS = {"http": 80, "https": 443}


def _own_origins(request: Request, public_url: str) -> set[_Origin | None]:
    """Where this page may be. A page at a public address is there by its own scheme only.

    The scheme of a request is what the server has seen, or what a proxy says that it trusts.
    """
    called = _origin_of(f"{request.scope['scheme']}://{request.headers.get('host', '')}")
    public = _origin_of(public_url)
    if public is None:
        return {called} - {None}
    scheme, host, port = public
    # A proxy that ends TLS passes Host on, perhaps without the port, and calls by http.
    at_public = {_origin_of(f"{scheme}://{request.headers.get('host', '')}"), called}
    if (host, port) in {one[1:] for one in at_public if one is not None}:
        return {public}
    return {public, called} - {None}


def _origin_of(url: str) -> _Origin | None:
    """None: it is no origin of the web."""
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError:
        return None
    if scheme not in _PORTS or not host:
        return None
    return scheme, host, port or _PORTS[scheme]
