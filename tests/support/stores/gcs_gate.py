"""A proxy before fake-gcs-server that lets in requests with known access tokens only.

It prints the method and the path of each request.

It is a process of its own: pyarrow holds back all threads of Python while it asks for the size of
a file. Arguments: its port, the server's port, the tokens.
"""

from __future__ import annotations

import contextlib
import http.client
import re
import sys
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_TIMEOUT_S = 60
_NOT_PASSED_ON = ("connection", "transfer-encoding", "content-length", "keep-alive")
_BEARER = re.compile(rb"(?im)^authorization: Bearer (\S+)")
_PART = re.compile(rb"(?m)^(?:GET|POST|PUT|PATCH|DELETE) ")
_REFUSAL = b'{"error": {"code": 401, "message": "Invalid Credentials"}}'


class Gate(BaseHTTPRequestHandler):
    """Passes requests on."""

    protocol_version = "HTTP/1.1"
    server_port: int
    tokens: frozenset[bytes]

    def _pass_on(self) -> None:
        body = self._body()
        print(self.command, self.path, flush=True)
        if not self._is_let_in(body):
            self._answer(401, [("Content-Type", "application/json")], _REFUSAL)
            return
        inner = http.client.HTTPConnection("127.0.0.1", self.server_port, timeout=_TIMEOUT_S)
        kept = {k: v for k, v in self.headers.items() if k.lower() not in _NOT_PASSED_ON}
        inner.request(self.command, self.path, body, kept)
        answer = inner.getresponse()
        with contextlib.suppress(ConnectionError):  # who needs no more of it hangs up
            self._answer(answer.status, answer.getheaders(), answer.read())
        inner.close()

    def _is_let_in(self, body: bytes) -> bool:
        """Each part of a batch has a token of its own."""
        if self.path.startswith("/batch/"):
            tokens = _BEARER.findall(body)
            return len(tokens) == len(_PART.findall(body)) > 0 and {*tokens} <= self.tokens
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        return token.encode() in self.tokens

    def _body(self) -> bytes:
        if "chunked" not in (self.headers.get("Transfer-Encoding") or ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _answer(self, status: int, headers: Sequence[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in _NOT_PASSED_ON:
                self.send_header(name, value)
        if status >= 200 and status not in (204, 304):
            self.send_header("Content-Length", f"{len(body)}")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = _pass_on  # noqa: N815


def main(port: str, server_port: str, *tokens: str) -> None:
    """Serves until it is killed."""
    Gate.server_port, Gate.tokens = int(server_port), frozenset(t.encode() for t in tokens)
    ThreadingHTTPServer(("127.0.0.1", int(port)), Gate).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
