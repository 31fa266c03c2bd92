"""A small HTTP server on loopback that answers with JSON."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl, urlsplit

_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asks."""

    method: str
    path: str
    """Without the query, still quoted."""
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: str


Answers = Callable[[Request], tuple[int, dict[str, Any]]]


class JsonServer:
    """Answers requests on a free loopback port; a context manager."""

    def __init__(self, answers: Answers) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(answers))
        self._server.daemon_threads = True  # connections that clients keep open
        self._thread = threading.Thread(target=self._server.serve_forever)
        self.uri = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> JsonServer:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(answers: Answers) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = _TIMEOUT_S

        def _answer(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(size).decode()
            parts = urlsplit(self.path)
            query = dict(parse_qsl(parts.query))
            headers = {name.lower(): value for name, value in self.headers.items()}
            code, content = answers(Request(self.command, parts.path, query, headers, body))
            sent = b"" if code == 204 else json.dumps(content).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            if code != 204:
                self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(sent)

        do_GET = do_POST = do_HEAD = do_DELETE = _answer  # noqa: N815  (names of the base class)

        def log_message(self, *_: object) -> None:
            """Nothing: a test's output is not the place."""

    return Handler
