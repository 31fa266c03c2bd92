"""A cluster behind TLS and tokens: both reach each task and the driver, the token no file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from sluice.client import connect
from sluice.config import ClientConfig, ServerConfig
from sluice.server.cluster import EmbeddedCluster
from tests.airflow.page.test_login import holding
from tests.airflow.place import AirflowProcess, Place, only, results_of
from tests.support.network.certificates import authority
from tests.support.network.users import ANY_TOKEN, write_users

pytestmark = pytest.mark.airflow


@pytest.fixture
def guarded(airflow: AirflowProcess, tmp_path: Path) -> Iterator[Place]:
    files = authority().sign(tmp_path / "tls")
    config = ServerConfig(
        data_dir=str(tmp_path / "data"),
        listen="grpc://127.0.0.1:0",
        tls_certificate=str(files.certificate),
        tls_key=str(files.key),
        users_file=str(write_users(tmp_path / "users")),
    )
    with EmbeddedCluster(config) as cluster:
        admin = ClientConfig(cluster.address, token=ANY_TOKEN["admin"], tls_ca=authority().pem)
        with connect(admin) as client:
            client.admin.create_database("shop")
            yield Place(airflow, client, cluster.address, tmp_path / "work")


def connection(place: Place, token: str, tls_ca: str) -> dict[str, str]:
    where = urlsplit(place.address)
    content = {
        "conn_type": "fluss",
        "host": where.hostname,
        "port": where.port,
        "password": token,
        "extra": {
            "work_uri": place.work.as_uri(),
            "datalake": {"iceberg.type": "hadoop", "iceberg.warehouse": str(place.lake)},
            "tls_ca": tls_ca,
        },
    }
    return {"AIRFLOW_CONN_FLUSS_DEFAULT": json.dumps(content)}


def run(place: Place, name: str, environment: dict[str, str]) -> dict[str, Any]:
    place.wait(place.table(name))
    return place.airflow.ask("run", environment=environment)


@pytest.mark.parametrize("as_file", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_run_with_a_token_of_the_role_write(
    guarded: Place, tmp_path: Path, as_file: bool
) -> None:
    token, tls_ca = ANY_TOKEN["write"], authority().pem
    if as_file:
        (tmp_path / "ca.pem").write_text(tls_ca)
        tls_ca = str(tmp_path / "ca.pem")
    done = run(guarded, "orders", connection(guarded, token, tls_ca))
    assert done["state"] == "success", guarded.airflow.log.read_text()[-6000:]
    assert only(results_of(done))["outcome"] == "committed"
    [command] = guarded.work.glob("*/*/command-*")
    assert ("client.tls_ca" in command.read_text()) == as_file
    home = Path(guarded.airflow.environment["AIRFLOW_HOME"])
    assert holding(token, guarded.work, home) == []
    assert token not in json.dumps(done)


def test_a_token_of_the_role_read_tiers_nothing_and_says_so(guarded: Place) -> None:
    token = ANY_TOKEN["read"]
    done = run(guarded, "orders", connection(guarded, token, authority().pem))
    assert done["state"] == "failed"
    said = guarded.airflow.log.read_text(errors="replace")
    assert "LakeTieringHeartbeat needs the role write; 'ria' has the role read" in said
    assert holding(token, Path(guarded.airflow.environment["AIRFLOW_HOME"])) == []


def test_the_test_button_says_what_is_wrong(guarded: Place) -> None:
    token, pem = ANY_TOKEN["read"], authority().pem
    for given, told in (
        (
            connection(guarded, token, pem),
            f"cluster {guarded.address}: answers; 2 databases. Checked on ",
        ),
        (
            connection(guarded, "guessed", pem),
            "AuthenticateError: the token is wrong or was",
        ),
        (connection(guarded, "", pem), "AuthenticateError: the server requires a bearer token"),
        (connection(guarded, token, ""), "speaks TLS on this port: set client.tls_ca"),
    ):
        answer = guarded.airflow.ask("connection", environment=given)
        assert told in answer["said"]
        assert "guessed" not in answer["said"]
