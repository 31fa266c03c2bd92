"""As much of Kubernetes' API as spark-submit uses in deploy mode cluster; no pod ever starts."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlparse

KILLED: dict[str, Any] = {
    "phase": "Failed",
    "containerStatuses": [
        {
            "name": "spark-kubernetes-driver",
            "image": "image",
            "imageID": "id",
            "ready": False,
            "restartCount": 0,
            "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
        }
    ],
}
"""Status of a driver pod that the kernel killed."""


class KubernetesApi:
    """Keeps what it is sent, and tells who watches the driver pod what became of it."""

    def __init__(self, status: dict[str, Any] | None) -> None:
        """:param status: how the driver pod ends; None: somebody deletes it."""
        self.made: dict[str, dict[str, Any]] = {}
        """What was made, by the last two parts of its address, or its kind."""
        self.deleted: list[str] = []
        self.decided = threading.Event()
        """The pod ends once this is set."""
        self.status = status
        self.refuses = False
        """Whether it answers that the user may make no pod."""
        self.is_gone = False
        """Whether it answers that there is no such pod."""
        self.address = ""

    @property
    def pod(self) -> dict[str, Any]:
        return self.made["pods"]

    @property
    def properties(self) -> str:
        """The file of Spark properties that the driver reads."""
        [found] = [o["data"] for o in self.made.values() if "spark.properties" in o.get("data", {})]
        return str(found["spark.properties"])

    @property
    def everything(self) -> str:
        return json.dumps(self.made)

    def keep(self, path: str, sent: dict[str, Any]) -> dict[str, Any]:
        sent["metadata"] |= {"uid": "uid-1", "resourceVersion": "1"}
        if sent["kind"] == "Pod":
            sent["metadata"]["namespace"] = path.split("/")[4]
            sent["status"] = {"phase": "Running"}
        self.made[path.rsplit("/", 1)[-1]] = sent
        return sent

    def events(self) -> Iterator[dict[str, Any]]:
        """The driver pod's life."""
        yield {"type": "MODIFIED", "object": self.pod}
        self.decided.wait(120)
        if self.status is None:
            yield {"type": "DELETED", "object": self.pod}
        else:
            self.pod["status"] = self.status
            yield {"type": "MODIFIED", "object": self.pod}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    api: KubernetesApi

    def log_message(self, *_words: object) -> None:
        """Says nothing."""

    def do_POST(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        sent = json.loads(self.rfile.read(size))
        if self.api.refuses:
            self._answer(403, {"kind": "Status", "code": 403, "message": "pods is forbidden"})
            return
        self._answer(201, self.api.keep(urlparse(self.path).path, sent))

    do_PATCH = do_POST  # noqa: N815

    def do_DELETE(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.api.deleted.append(urlparse(self.path).path)
        if self.api.is_gone:
            self._answer(404, {"kind": "Status", "code": 404, "message": "pods not found"})
        else:
            self._answer(200, self.api.pod)

    def do_GET(self) -> None:
        if "watch" not in parse_qs(urlparse(self.path).query):
            self._answer(200, self.api.pod)
        elif self.headers.get("Upgrade"):
            self._answer(200, {})  # no websocket: the client watches by HTTP
        else:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Connection", "close")
            self.end_headers()
            for event in self.api.events():
                self.wfile.write(json.dumps(event).encode() + b"\n")
                self.wfile.flush()
            self.close_connection = True

    def _answer(self, code: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def kubernetes_api(status: dict[str, Any] | None) -> Iterator[KubernetesApi]:
    """Serves on a free port while the block lasts."""
    api = KubernetesApi(status)
    handler = type("Handler", (_Handler,), {"api": api})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        api.address = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield api
        finally:
            api.decided.set()
            server.shutdown()
            thread.join(30)
