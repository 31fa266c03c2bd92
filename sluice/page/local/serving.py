"""`sluice ui`: the page for the person who started it, behind a one-time link."""

from __future__ import annotations

import re
import socket
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from contextlib import suppress
from html import escape
from typing import Any

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.background import BackgroundTask

from sluice.page.app import API, page_app
from sluice.page.local.place import LocalPlace
from sluice.page.local.sessions import Sessions
from sluice.page.requests.guard import HEADERS, Guard, problem, require_own_page
from sluice.page.requests.ports import Viewer, serve
from sluice.wire.listeners.http_places import HostNames
from sluice.wire.sockets.tcp import target

READ_ONLY = "`sluice ui --read-only` shows the page only: start it without --read-only to act"
LOGIN_HINT = (
    "Open the newest link that `sluice ui` has printed in its terminal. Each link logs in one"
    " browser, then `sluice ui` prints the next one. If that terminal is gone, stop `sluice ui` and"
    " start it again."
)
LOGGED_OUT = (
    "This browser is not logged in: open the newest link that `sluice ui` has printed in its"
    " terminal."
)
"""For programs and for the page itself, which shows it above all that it has read."""

_CODE = re.compile(r"`([^`]+)`")
_SESSION = "sluice.session"
"""In the scope of a request: the session that it has begun."""

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]


def local_app(place: LocalPlace, *, read_only: bool = False) -> FastAPI:
    """The page of one cluster, for whoever reaches it: serve it :func:`behind` links."""
    why_not = READ_ONLY if read_only else None

    def viewer(request: Request) -> None:
        serve(request, place, Viewer(None, not read_only, why_not, why_not))

    return page_app("", [Depends(viewer)], [])


def behind(access: Access, app: FastAPI) -> FastAPI:
    """The application for those only who have logged in, and for its own page only."""
    app.add_middleware(_Door, access=access)
    app.add_middleware(Guard)  # around the door, too: what it raises is logged and answered as ours
    return app


class Access:
    """Which names this server has, and who is logged in."""

    def __init__(
        self, host: str, port: int, on_login: Callable[[], None], allowed: Collection[str] = ()
    ) -> None:
        """:param on_login: called after a link was used: there is a new one now.
        :param allowed: further host names by which people call it.
        """
        self.sessions = Sessions()
        self.cookie = f"sluice-ui-{port}"  # cookies of a host are shared by all of its ports
        self.on_login = on_login
        shown = socket.gethostname() if host in ("0.0.0.0", "::") else host  # noqa: S104
        self._address = f"http://{target(shown, port)}"
        self.names = HostNames(host, allowed)

    @property
    def link(self) -> str:
        """The link that logs in one browser."""
        return f"{self._address}/login?token={self.sessions.token}"

    def is_logged_in(self, scope: _Message) -> bool:
        """Whether a request has, or has begun, a session that has not ended."""
        session = scope.get(_SESSION) or Request(scope).cookies.get(self.cookie, "")
        return self.sessions.holds(session)


class _Door:
    """ASGI middleware: who is not logged in sees only how to log in, and the page's own files."""

    def __init__(self, app: Any, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        answer = self._answer(Request(scope)) if scope["type"] == "http" else None
        await (answer or self._app)(scope, receive, send)

    def _answer(self, request: Request) -> Response | None:
        """The answer to a request that goes no further."""
        path: str = request.scope["path"]  # what routes decide by; `request.url` has the Host in it
        host = request.headers.get("host", "")
        if not self._access.names.knows(host):
            known = "127.0.0.1 or localhost, or the address of --listen"
            text = f"this server has no name {host!r}: call it as {known}, or start it with"
            return problem(403, f"{text} --allow-host NAME")
        if path == "/login":
            return self._login(request)
        if self._is_logged_in(request) or path.startswith("/assets/"):
            return _foreign(request)
        if path.startswith(API) or request.method != "GET":
            return problem(401, LOGGED_OUT)
        return _page(401, "Log in", LOGIN_HINT)

    def _is_logged_in(self, request: Request) -> bool:
        return self._access.is_logged_in(request.scope)

    def _login(self, request: Request) -> Response:
        if request.method != "GET":  # a preview of the link must not use it up
            return problem(405, "open the link in a browser", None)
        session = self._access.sessions.begin(request.query_params.get("token", ""))
        if session is None:
            if self._is_logged_in(request):  # by this link, perhaps
                return RedirectResponse("./", 303, headers=dict(HEADERS))
            return _page(
                403, "This link does not log in", f"It was used, or is wrong. {LOGIN_HINT}"
            )
        request.scope[_SESSION] = session
        answer = RedirectResponse("./", 303, headers=dict(HEADERS))
        # Lax: a link to a table in a chat or a ticket opens it. Changes need the page's own origin.
        answer.set_cookie(self._access.cookie, session, path="/", httponly=True, samesite="lax")
        answer.background = BackgroundTask(self._tell)  # after the answer, and in a thread
        return answer

    def _tell(self) -> None:
        with suppress(OSError):  # the terminal is gone
            self._access.on_login()


def _foreign(request: Request) -> Response | None:
    """The refusal of a change that another page sent."""
    if request.method in ("GET", "HEAD"):
        return None
    try:
        require_own_page(request, programs=False)
    except HTTPException as error:
        return problem(error.status_code, error.detail)
    return None


def _page(status: int, title: str, text: str) -> HTMLResponse:
    """:param text: commands in it are between backticks."""
    shown = _CODE.sub(r"<code>\1</code>", escape(text))
    content = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title>"
        f"</head><body><main><h1>{escape(title)}</h1><p>{shown}</p></main></body></html>"
    )
    return HTMLResponse(content, status, headers=dict(HEADERS))
