"""Errors of a cluster as answers of the page: a status, and one line without secrets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from sluice import errors
from sluice.client import connect
from sluice.config import ClientConfig, ServerConfig
from sluice.errors import SluiceError
from sluice.page.local.place import LocalPlace
from sluice.page.local.serving import local_app
from sluice.page.requests.guard import STATUSES, status_of
from sluice.server.cluster import EmbeddedCluster
from tests.support.network.ports import kept_port


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("AuthorizationError", 403),
        ("AuthenticateError", 403),
        ("TableNotExist", 404),
        ("LeaseNotExist", 404),
        ("TableNotDue", 409),
        ("InvalidTable", 409),
        ("InvalidDatabase", 422),
        ("InvalidLease", 422),
        ("UnsupportedVersion", 501),
        ("NetworkError", 502),
        ("TlsError", 502),
        ("UnknownServerError", 502),
        ("RequestTimeOut", 504),
    ],
)
def test_each_kind_of_error_has_its_status(kind: str, status: int) -> None:
    assert status_of(getattr(errors, kind)("x")) == status
    assert status in STATUSES


def test_no_error_is_without_a_status() -> None:
    kinds = [one for one in vars(errors).values() if isinstance(one, type)]
    assert {status_of(one("x")) for one in kinds if issubclass(one, SluiceError)} == set(STATUSES)


@pytest.fixture
def page(tmp_path: Path) -> Iterator[TestClient]:
    config = ServerConfig(data_dir=str(tmp_path / "data"), listen="grpc://127.0.0.1:0")
    with EmbeddedCluster(config) as cluster, connect(cluster.address) as client:
        yield TestClient(local_app(LocalPlace(client)))


def test_a_table_that_is_not_there(page: TestClient) -> None:
    answer = page.post("/api/v1/tables/shop/nope/pause")
    assert answer.status_code == 404
    assert answer.json()["error"] == "TableNotExist"
    assert "shop.nope" in answer.json()["message"]


def test_a_wrong_request_has_the_same_form(page: TestClient) -> None:
    answer = page.get("/api/v1/tables", params={"limit": "many"})
    assert answer.status_code == 422
    assert answer.json()["error"] == "InvalidRequest"
    assert answer.json()["message"].startswith("query.limit: ")


def test_a_cluster_that_is_away() -> None:
    with kept_port() as port:
        address = f"grpc://127.0.0.1:{port}"
        config = ClientConfig(address, connect_timeout_ms=500, retry_timeout_ms=500)
        with connect(config) as client:
            answer = TestClient(local_app(LocalPlace(client))).get("/api/v1/leases")
    assert answer.status_code == 502
    assert answer.json()["error"] == "NetworkError"


def test_the_description_names_every_status(page: TestClient) -> None:
    paths = page.get("/api/v1/openapi.json").json()["paths"]
    for path, calls in paths.items():
        for call in calls.values():
            schemas = {
                status: answer["content"]["application/json"]["schema"]["$ref"]
                for status, answer in call["responses"].items()
                if status != "200"
            }
            assert {int(status) for status in schemas} >= set(STATUSES), path
            assert set(schemas.values()) == {"#/components/schemas/Problem"}, path
