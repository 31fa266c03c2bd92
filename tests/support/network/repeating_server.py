"""A catalog and a storage that refuse each request, and repeat what they got, in many encodings."""

from __future__ import annotations

import base64
import html
import json
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import escape

import psutil

ENCODINGS: tuple[Callable[[str], str], ...] = (
    str,
    lambda one: quote(one, safe=""),
    lambda one: base64.b64encode(one.encode()).decode(),
    lambda one: base64.b64encode(f"user:{one}".encode()).decode(),
    lambda one: json.dumps(one)[1:-1],
    html.escape,
    lambda one: one.encode().hex(),
)
FORGED = "\x1b]0;title\x07\x1b[31mred\u202e\r\nInjected: line"
"""What no terminal may get."""


class RepeatingServer:
    """Answers 400 to all; a context manager. ``also``: further values that it knows and repeats."""

    def __init__(self, *also: str, status: int = 400) -> None:
        self.also, self.status = also, status
        self.requests = 0
        self.commands: set[str] = set()
        """The command lines of all processes of this machine, at each request."""
        self.variables: dict[str, set[str]] = {}
        """The values of each environment variable of the processes below this one, likewise."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever)
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> RepeatingServer:
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

    def answer(self, got: str, *, is_s3: bool) -> bytes:
        self.requests += 1
        for process in psutil.process_iter(["cmdline"]):
            self.commands.add(" ".join(process.info["cmdline"] or ()))
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):  # it may have ended
                for name, value in process.environ().items():
                    self.variables.setdefault(name, set()).add(value)
        encoded = [encode(one) for one in self.also for encode in ENCODINGS]
        said = f"{FORGED} I got {got} and know {' '.join(encoded)}"
        if is_s3:
            shown = "".join(char for char in said if char.isprintable() or char == "\n")
            code = f"<Code>AccessDenied</Code><Message>{escape(shown)}</Message>"
            return f'<?xml version="1.0"?><Error>{code}</Error>'.encode()
        error = {"message": said, "type": "BadRequestException", "code": self.status}
        return json.dumps({"error": error}).encode()


def _handler(server: RepeatingServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            got = f"{self.headers} {body[:4096].decode(errors='replace')}"
            is_s3 = "AWS4-HMAC" in self.headers.get("Authorization", "")
            sent = server.answer(got, is_s3=is_s3)
            self.send_response(server.status)
            self.send_header("Content-Type", "application/xml" if is_s3 else "application/json")
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(sent)

        do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = _answer  # noqa: N815

        def log_message(self, *_: Any) -> None:
            """Nothing: a test's output is not the place."""

    return Handler
