"""A running API server of Airflow with the page, and people who are logged in to it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from sluice.client import connect
from sluice.config import ServerConfig
from sluice.server.cluster import EmbeddedCluster
from tests.airflow.page_rights import CLERK, EDITOR
from tests.airflow.place import HERE, LONG_MS, AirflowProcess, Place, airflow_home

USERS = {"admin": "admin", "user": "user", "viewer": "viewer", CLERK: "user", EDITOR: "user"}
"""Names and roles."""
PASSWORD = "pass-4711"
DAG = "tiering"
ASKS_ITSELF = {"X-Sluice-Page": "1"}
PLANTED = {
    "token": "planted-4710-token",
    "login": "Planted/Login+4711",
    "datalake.iceberg.s3.access-key-id": "PLANTEDKEYID4712",
    "datalake.iceberg.s3.secret-access-key": "Planted/Lake+4713",
    "datalake.iceberg.token": "planted-4714-catalog",
    "datalake.iceberg.uri": "Planted-4715-address",
    "fs.s3.access-key": "PLANTEDKEYID4716",
    "fs.s3.secret-key": "Planted/Remote+4717",
}
"""Secrets of connections, by where they are. That of the address is a part of it."""
DEPLOYMENT = "west"
"""The id of this Airflow in lease ids."""


@dataclass(frozen=True)
class Route:
    """A route of the page's application, as it is in Airflow's."""

    name: str
    path: str
    methods: list[str]


class PageServer:
    """An API server; :meth:`as_` gives a browser's calls, :meth:`program` those of a script."""

    def __init__(self, url: str, log: Path, routes: list[Route]) -> None:
        self.url, self.log, self.routes = url, log, routes
        self._tokens: dict[str, str] = {}

    def token(self, role: str) -> str:
        if role not in self._tokens:
            login = {"username": role, "password": PASSWORD}
            answer = httpx.post(f"{self.url}/auth/token", json=login, timeout=60)
            assert answer.status_code == 201, answer.text
            self._tokens[role] = answer.json()["access_token"]
        return self._tokens[role]

    def as_(self, role: str | None, **headers: str) -> httpx.Client:
        """A browser that is logged in, on a page of Airflow itself."""
        cookies = {} if role is None else {"_token": self.token(role)}
        return self._client(cookies=cookies, headers={"Origin": self.url, **headers})

    def program(self, role: str, **headers: str) -> httpx.Client:
        """A script with a Bearer token."""
        return self._client(headers={"Authorization": f"Bearer {self.token(role)}", **headers})

    def _client(self, **more: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60, follow_redirects=False, **more)


def api(path: str, dag: str = DAG) -> str:
    """The address of a call of the page's JSON API."""
    return f"/sluice/dags/{dag}/api/v1/{path}"


def connection(place: Place, **fields: Any) -> str:
    """The cluster's connection in Airflow's JSON form, with secrets wherever it may have some."""
    address = PLANTED["datalake.iceberg.uri"]
    host, port = place.address.removeprefix("grpc://").split(":")
    content = {
        "conn_type": "fluss",
        "host": host,
        "port": int(port),
        "password": PLANTED["token"],
        "extra": {
            "work_uri": place.work.as_uri(),
            "deployment_id": DEPLOYMENT,
            "datalake": {
                **_planted("datalake."),
                "iceberg.type": "jdbc",
                "iceberg.uri": f"jdbc:postgresql://bob:{address}@127.0.0.1:1/lake",
            },
            "fs": _planted("fs."),
        },
    }
    return json.dumps({**content, **fields})


def _planted(section: str) -> dict[str, str]:
    found = PLANTED.items()
    return {name.removeprefix(section): one for name, one in found if name.startswith(section)}


def cluster_config(folder: Path) -> ServerConfig:
    return ServerConfig(
        data_dir=str(folder),
        listen="grpc://127.0.0.1:0",
        tiering_backoff_ms=0,
        tiering_timeout_ms=LONG_MS,
    )


@contextmanager
def page_server(
    home: Path, environment: Mapping[str, str], dags: Path = HERE / "page_dags.py", **more: str
) -> Iterator[PageServer]:
    """Starts the API server, and ends it.

    :param environment: as of ``airflow_home``.
    :param more: variables over it.
    """
    passwords = home / "passwords.json"
    passwords.touch(mode=0o600)
    passwords.write_text(json.dumps(dict.fromkeys(USERS, PASSWORD)))
    ours = {
        **environment,
        "AIRFLOW__CORE__AUTH_MANAGER": "tests.airflow.page_rights.RightsByDag",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(map(":".join, USERS.items())),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
        "AIRFLOW__API_AUTH__JWT_SECRET": "for these tests, and long enough for the algorithm " * 2,
        "AIRFLOW__API__SECRET_KEY": "for these tests",
        "AIRFLOW__API_AUTH__JWT_ISSUER": "these tests",  # Airflow 3.1 signs nothing without one
        **more,
    }
    log = home / "api-server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, HERE / "page_server.py", dags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=out,
            env=ours,
            cwd=home,
            text=True,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        port = process.stdout.readline().strip()
        assert port, log.read_text()[-6000:]
        routes = [Route(**one) for one in json.loads(process.stdout.readline())]
        yield PageServer(f"http://127.0.0.1:{port}", log, routes)
    finally:
        process.stdin.close()
        try:
            process.wait(60)
        finally:
            process.kill()
            process.stdout.close()


@dataclass(frozen=True)
class PagePlace:
    """The server, and a cluster beside it."""

    server: PageServer
    shop: Place
    """Without an Airflow of its own."""
    cluster: EmbeddedCluster


@contextmanager
def running_page(folder: Path) -> Iterator[PagePlace]:
    """Starts a cluster and an API server."""
    home = folder / "home"
    home.mkdir()
    config = cluster_config(folder / "data")
    with EmbeddedCluster(config) as cluster, connect(cluster.address) as client:
        client.admin.create_database("shop")
        none: AirflowProcess = None  # type: ignore[assignment]
        shop = Place(none, client, cluster.address, folder / "work")
        variables = {
            "AIRFLOW_CONN_FLUSS_DEFAULT": connection(shop),
            "AIRFLOW_CONN_WRONG": connection(shop, login="ann", password=PLANTED["login"]),
            "AIRFLOW__API__BASE_URL": "https://airflow.example",
        }
        environment = airflow_home(home, HERE / "driver.py")
        with page_server(home, environment, **variables) as server:
            yield PagePlace(server, shop, cluster)
