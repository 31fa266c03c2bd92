"""An S3 on a free loopback port (moto), which may refuse credentials, as tests want it."""

from __future__ import annotations

import logging
import re
import threading
import urllib.request
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from pyarrow import fs
from werkzeug.serving import make_server

from sluice.storage import s3_file_system, s3_options

REGION = "eu-central-1"
_DENIED = b"<Error><Code>AccessDenied</Code><Message>not with this key</Message></Error>"


class S3Server:
    """Serves buckets from this process's memory, one server at a time. Thread safe.

    ``allowed``: access keys that are let in, each with its session token; None lets all in.
    """

    def __init__(self) -> None:
        self.allowed: dict[str, str] | None = None
        self.refused_methods: frozenset[str] = frozenset()
        """Such as DELETE, whoever asks."""
        self.seen: list[str] = []
        """Access keys of all requests."""
        self._moto = DomainDispatcherApplication(create_backend_app)
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> S3Server:
        self._thread.start()
        urllib.request.urlopen(f"{self.endpoint}/moto-api/reset", data=b"", timeout=30).close()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join(30)
        self._server.server_close()

    def options(self, key: str = "tester", secret: str = "secret-of-tester") -> dict[str, str]:
        """Iceberg's own properties for this server."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.access-key-id": key,
            "s3.secret-access-key": secret,
            "client.region": REGION,
        }

    def bucket(self, name: str) -> fs.S3FileSystem:
        """Makes a bucket; answers a file system of whoever may do all."""
        arguments = {**s3_options(self.options()), "allow_bucket_creation": True}
        found = s3_file_system(arguments)
        found.create_dir(name)
        return found

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        match = re.search(r"Credential=([^/]+)/", environ.get("HTTP_AUTHORIZATION", ""))
        key = match[1] if match else ""
        self.seen.append(key)
        token = environ.get("HTTP_X_AMZ_SECURITY_TOKEN", "")
        is_stranger = self.allowed is not None and self.allowed.get(key) != token
        if is_stranger or environ["REQUEST_METHOD"] in self.refused_methods:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            body = b"" if environ["REQUEST_METHOD"] == "HEAD" else _DENIED
            start("403 Forbidden", [("Content-Type", "application/xml")])
            return [body]
        answer: Iterable[bytes] = self._moto(environ, start)
        return answer
