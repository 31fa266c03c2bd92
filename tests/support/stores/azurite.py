"""Azure's storage as the emulator Azurite plays it, from npm by the lock file in ``azurite/``."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlencode

from pyarrow import fs

from sluice.storage import file_system
from tests.support.catalog_servers.maven import CACHE
from tests.support.catalog_servers.program import http_answers, running
from tests.support.network.ports import held_port, port_of

_SOURCE = Path(__file__).with_name("azurite")
_FILES = ("package.json", "package-lock.json", ".npmrc")
_PROGRAM = "node_modules/azurite/dist/src/blob/main.js"
_BIN = Path(sys.executable).parent
"""Where the lock file's Node.js is."""
_VERSION = "2021-06-08"
"""Of the SAS tokens."""
_PROTOCOLS = "https,http"
_INSTALL_TIMEOUT_S = 540


class Azurite:
    """Serves containers of one account from memory; a context manager."""

    account = "sluicetest"
    key = base64.b64encode(b"the key of the tests' own account").decode()

    def __init__(self, folder: Path) -> None:
        """:param folder: for the log."""
        self._folder = folder
        self._stack = ExitStack()
        self.host = f"{self.account}.dfs.core.windows.net"

    def __enter__(self) -> Azurite:
        program = _installed() / _PROGRAM
        with ExitStack() as stack:
            self._start(program, stack)
            self._stack = stack.pop_all()
        return self

    def _start(self, program: Path, stack: ExitStack) -> None:
        port = port_of(stack.enter_context(held_port()))
        self.url = f"http://127.0.0.1:{port}/{self.account}"
        command = [str(_BIN / "node"), str(program), "--inMemoryPersistence"]
        # The newest client may speak a version of the protocol that Azurite does not know yet.
        command += ["--blobHost", "127.0.0.1", "--blobPort", f"{port}", "--skipApiVersionCheck"]
        command += ["--disableTelemetry"]
        accounts = {"AZURITE_ACCOUNTS": f"{self.account}:{self.key}"}
        log = self._folder / "azurite.log"
        stack.enter_context(running(command, log, lambda: http_answers(self.url), env=accounts))

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def uri(self, container: str, path: str = "", scheme: str = "abfss") -> str:
        """A location as Iceberg writes it."""
        return f"{scheme}://{container}@{self.host}/{path}"

    def container(self, name: str) -> fs.FileSystem:
        """Makes a container; answers a file system of whoever may do all."""
        found, path = file_system(self.uri(name), self.options())
        found.create_dir(path.rstrip("/"))
        return found

    def requests(self) -> list[str]:
        """Method and path of each request, oldest first."""
        log = (self._folder / "azurite.log").read_text()
        return re.findall(r'"((?:GET|HEAD|PUT|POST|DELETE) \S+) HTTP', log)

    def options(self, key: str = "") -> dict[str, str]:
        """Iceberg's own properties for this server, with the account's key."""
        return {
            f"adls.connection-string.{self.host}": self.url,
            "adls.auth.shared-key.account.name": self.account,
            "adls.auth.shared-key.account.key": key or self.key,
        }

    def sas_options(self, sas: str = "") -> dict[str, str]:
        """Iceberg's own properties for this server, with a SAS token; default: one for all."""
        return {
            f"adls.connection-string.{self.host}": self.url,
            f"adls.sas-token.{self.host}": sas or self.sas(),
        }

    def sas(self, permissions: str = "rwdlac", end: str = "2100-01-01T00:00:00Z") -> str:
        """A SAS token of the account for its blobs, as Azure's REST API describes it."""
        fields = {
            "sp": permissions,
            "ss": "b",
            "srt": "sco",
            "st": "",
            "se": end,
            "sip": "",
            "spr": _PROTOCOLS,
            "sv": _VERSION,
        }
        return self._signed(fields, [self.account, *fields.values(), "", ""])

    def container_sas(self, container: str, permissions: str) -> str:
        """A SAS token of one container, as catalogs vend it."""
        fields = {
            "sp": permissions,
            "se": "2100-01-01T00:00:00Z",
            "spr": _PROTOCOLS,
            "sv": _VERSION,
            "sr": "c",
        }
        place = f"/blob/{self.account}/{container}"
        last = [_PROTOCOLS, _VERSION, "c", "", "", "", "", "", "", ""]
        return self._signed(fields, [permissions, "", fields["se"], place, "", "", *last])

    def _signed(self, fields: Mapping[str, str], lines: Sequence[str]) -> str:
        digest = hmac.digest(base64.b64decode(self.key), "\n".join(lines).encode(), hashlib.sha256)
        told = {name: value for name, value in fields.items() if value}
        return urlencode({**told, "sig": base64.b64encode(digest).decode()})


def _installed() -> Path:
    """Installs Azurite once; npm checks each package's sum."""
    lock_file = (_SOURCE / "package-lock.json").read_bytes()
    folder = CACHE / f"azurite-{hashlib.sha256(lock_file).hexdigest()[:12]}"
    CACHE.mkdir(exist_ok=True)
    with (CACHE / ".azurite.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            new = folder.with_suffix(".new")
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir()
            for name in _FILES:
                shutil.copy(_SOURCE / name, new)
            done = subprocess.run(
                [str(_BIN / "npm"), "ci", "--ignore-scripts", "--prefix", str(new)],
                env={**os.environ, "PATH": f"{_BIN}:{os.environ['PATH']}"},
                capture_output=True,
                text=True,
                timeout=_INSTALL_TIMEOUT_S,
            )
            assert done.returncode == 0, done.stderr[-3000:]
            new.replace(folder)
    return folder
