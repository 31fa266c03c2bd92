"""A REST catalog of the tests for what no registry has: logins, prefixes, vended keys, signing."""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sluice.driver.lakes.jvm import Jvm
from tests.support.catalog_servers.aws_bundle import jars_with_s3
from tests.support.catalog_servers.catalog import Catalog, jars_with
from tests.support.catalog_servers.iam_s3 import BUCKET, IamS3
from tests.support.catalogs.http_server import JsonServer, Request
from tests.support.catalogs.jdbc import SQLITE
from tests.support.catalogs.oauth import Login, not_authorized
from tests.support.catalogs.rest_logins import RestLogin
from tests.support.catalogs.rest_tables import ENDPOINTS, Answer, RestTables, refused
from tests.support.catalogs.vending import Vending, Vendor

WAREHOUSE = "main lake"
PREFIX = "p%2F1"
"""As the client must send it; quoted, since a prefix may have a slash."""
_CREDENTIALS = "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials"
_METRICS = "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics"
_TABLE_PARTS = 4


@dataclass(frozen=True, slots=True)
class RestSettings:
    """How the catalog is set up."""

    login: bool = True
    """Whether requests need a token."""
    other_login: RestLogin | None = None
    """In place of the token."""
    token_life_s: float = 3600.0
    headers: dict[str, str] = field(default_factory=dict)
    """That each request must have, beside the token."""
    vending: Vending = Vending.NOTHING
    key_life_s: int = 900
    says_end: bool = True
    """Whether vended keys come with their end."""
    stages: bool = True
    """Whether tables may be staged; S3 Tables refuses that."""
    refreshes: bool = False
    """Whether clients are told of the credentials endpoint."""
    below: tuple[str, ...] = ("",)
    """Prefixes of storage credentials, relative to a table's location."""


class RestServer:
    """A running catalog. Its ``requests`` may be read and cleared at any time."""

    def __init__(self, tables: RestTables, store: IamS3, settings: RestSettings) -> None:
        self._tables, self._store, self._settings = tables, store, settings
        self.login = Login(settings.token_life_s)
        self.vendor = Vendor(
            store,
            settings.vending,
            settings.key_life_s,
            says_end=settings.says_end,
            below=settings.below,
        )
        self._lock = threading.Lock()
        self.requests: list[tuple[str, str, int]] = []
        """Method, path and status of each request, oldest first."""
        self.uri = ""

    @property
    def options(self) -> dict[str, str]:
        """A client's properties; with the owner's keys if the catalog vends none."""
        found = {"type": "rest", "uri": self.uri, "warehouse": WAREHOUSE}
        if self._settings.other_login is not None:
            found |= self._settings.other_login.options
        elif self._settings.login:
            found["credential"] = self.login.credential
        found |= {f"header.{name}": value for name, value in self._settings.headers.items()}
        if self._settings.vending is Vending.NOTHING:
            found |= self._store.options()
        return found

    @property
    def token_options(self) -> dict[str, str]:
        """As ``options``, but with a token in place of the client's secret."""
        kept = {name: value for name, value in self.options.items() if name != "credential"}
        return kept | {"token": self.login.static_token}

    def counts(self) -> Counter[str]:
        """How often each kind of request came: method, and path with ``{table}`` and the like."""
        with self._lock:
            seen = list(self.requests)
        return Counter(f"{method} {_kind(path)}" for method, path, _ in seen)

    def answer(self, request: Request) -> Answer:
        """Answers a request, and notes it."""
        answer = self._answer(request)
        with self._lock:
            self.requests.append((request.method, request.path, answer[0]))
        return answer

    def _answer(self, request: Request) -> Answer:
        path = request.path.split("/")[2:]
        if path == ["oauth", "tokens"]:
            return self.login.give(request)
        for name, value in self._settings.headers.items():
            if request.headers.get(name.lower()) != value:
                return refused(403, "ForbiddenException", f"the header {name} is missing or wrong")
        if (answer := self._no_entry(request)) is not None:
            return answer
        if path == ["config"]:
            return self._config(request)
        if not path or path[0] != PREFIX:
            return refused(404, "NotFoundException", f"no such prefix: {request.path}")
        return self._below_prefix(path[1:], request)

    def _no_entry(self, request: Request) -> Answer | None:
        if self._settings.other_login is not None:
            return self._settings.other_login.refusal(request)
        has_token = self.login.lets_in(request.headers.get("authorization", ""))
        return not_authorized() if self._settings.login and not has_token else None

    def _config(self, request: Request) -> Answer:
        if request.query.get("warehouse") != WAREHOUSE:
            return refused(404, "NotFoundException", f"no such warehouse: {request.query}")
        more = [_CREDENTIALS] if self._settings.vending is Vending.CREDENTIALS else []
        offered = [*ENDPOINTS, _METRICS, *more]
        return 200, {"defaults": {}, "overrides": {"prefix": PREFIX}, "endpoints": offered}

    def _below_prefix(self, path: list[str], request: Request) -> Answer:
        if path[-1] == "sign":
            return 200, self.vendor.sign(json.loads(request.body))
        if path[-1] == "metrics" and len(path) > _TABLE_PARTS:
            return 204, {}
        if path[-1] == "credentials" and len(path) > _TABLE_PARTS:
            code, found = self._tables.answer("GET", path[:-1], {}, "")
            if code != 200:
                return code, found
            return 200, {"storage-credentials": self.vendor.credentials(_location(found))}
        is_staged = path[-1] == "tables" and '"stage-create":true' in request.body
        if is_staged and not self._settings.stages:
            return refused(400, "BadRequestException", "Stage-create is currently not supported")
        code, found = self._tables.answer(request.method, path, request.query, request.body)
        if code == 200 and "metadata" in found and (request.method == "GET" or len(path) == 3):
            name = path[3] if len(path) == _TABLE_PARTS else json.loads(request.body)["name"]
            where = f"v1/{PREFIX}/namespaces/{path[1]}/tables/{name}/credentials"
            refresh = where if self._settings.refreshes else ""
            for field_name, value in self.vendor.described(_location(found), refresh).items():
                found[field_name] = value
        return code, found


def _location(answer: dict[str, Any]) -> str:
    return str(answer["metadata"]["location"])


def _kind(path: str) -> str:
    parts = path.split("/")
    names = {4: "{namespace}", 6: "{table}"} if "namespaces" in parts else {}
    return "/".join(names.get(place, part) for place, part in enumerate(parts))


@contextmanager
def rest_server(store: IamS3, settings: RestSettings | None = None) -> Iterator[RestServer]:
    """Runs the catalog over a store, with its tables in SQLite and in a JVM of its own."""
    folder = Path(tempfile.mkdtemp(prefix="sluice-rest-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder)
        jvm = stack.enter_context(Jvm(str(jars_with("jars-sqlite", SQLITE))))
        behind = {
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{folder}/catalog.db",
            "warehouse": f"s3://{BUCKET}/{folder.name}",
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            **store.options(),
        }
        tables = RestTables(jvm.gateway, behind)
        stack.callback(tables.close)
        server = RestServer(tables, store, settings or RestSettings())
        server.uri = stack.enter_context(JsonServer(server.answer)).uri
        yield server


@contextmanager
def oauth_rest(store: IamS3) -> Iterator[Catalog]:
    """The catalog with a login by OAuth2 and a header, and the owner's keys in the options."""
    settings = RestSettings(token_life_s=20, headers={"X-Team": "tiering-team"})
    with rest_server(store, settings) as server:
        yield Catalog(server.options, jars_with_s3())
