"""Google Cloud Storage as fake-gcs-server plays it, behind a gate that checks access tokens.

The server lets everybody in. It is built once by Go from the sums in ``fake_gcs/go.sum``.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.catalog_servers.maven import CACHE
from tests.support.catalog_servers.program import http_answers, running
from tests.support.network.ports import held_port, port_of

_SOURCE = Path(__file__).with_name("fake_gcs")
_PACKAGE = "github.com/fsouza/fake-gcs-server"
_TIMEOUT_S = 60
_BUILD_TIMEOUT_S = 540


class FakeGcs:
    """Serves buckets from memory; a context manager."""

    def __init__(self, folder: Path, tokens: Sequence[str] = ()) -> None:
        """:param folder: for the logs.

        :param tokens: access tokens that are let in; none: all are, also without one.
        """
        self._tokens = tokens
        self._folder = folder
        self._stack = ExitStack()

    def __enter__(self) -> FakeGcs:
        program = _program()
        with ExitStack() as stack:
            port, gate_port = (port_of(stack.enter_context(held_port())) for _ in range(2))
            self.url = f"http://127.0.0.1:{gate_port if self._tokens else port}"
            command = [program, "-backend", "memory", "-scheme", "http", "-host", "127.0.0.1"]
            command += ["-port", f"{port}", "-external-url", self.url, "-log-level", "warn"]
            command += ["-public-host", self.url.removeprefix("http://")]
            self._buckets = f"http://127.0.0.1:{port}/storage/v1/b?project=p"
            log = self._folder / "fake-gcs.log"
            stack.enter_context(running(command, log, lambda: http_answers(self._buckets)))
            if self._tokens:
                gate = [sys.executable, "-m", "tests.support.stores.gcs_gate"]
                gate += [f"{gate_port}", f"{port}", *self._tokens]
                log = self._folder / "gate.log"
                stack.enter_context(running(gate, log, lambda: http_answers(self.url)))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def bucket(self, name: str) -> None:
        """Makes a bucket."""
        body = json.dumps({"name": name}).encode()
        request = urllib.request.Request(self._buckets, body, {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=_TIMEOUT_S).close()

    def requests(self) -> list[str]:
        """Method and path of each request that came with a token, oldest first."""
        return (self._folder / "gate.log").read_text().splitlines()

    def options(self, token: str = "") -> dict[str, str]:
        """Iceberg's own properties for this server."""
        who = {"gcs.oauth2.token": token} if token else {"gcs.no-auth": "true"}
        return {"gcs.service.host": self.url, "gcs.project-id": "p", **who}


def _program() -> str:
    """Builds the server once; skips the test where there is no Go for it."""
    version = next(
        words[1]
        for line in (_SOURCE / "go.mod").read_text().splitlines()
        if (words := line.removeprefix("require ").split()) and words[0] == _PACKAGE
    )
    built = CACHE / f"fake-gcs-server-{version}"
    CACHE.mkdir(exist_ok=True)
    with (CACHE / ".fake-gcs.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.is_file():
            if shutil.which("go") is None:
                pytest.skip("fake-gcs-server is built by Go: install Go")
            new = built.with_suffix(".new")
            done = subprocess.run(
                ["go", "build", "-mod=readonly", "-o", str(new), _PACKAGE],
                cwd=_SOURCE,
                env={**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": ""},
                capture_output=True,
                text=True,
                timeout=_BUILD_TIMEOUT_S,
            )
            if "requires go >=" in done.stderr:
                pytest.skip(f"fake-gcs-server needs a newer Go: {done.stderr.strip()}")
            assert done.returncode == 0, done.stderr
            new.replace(built)
    return str(built)
