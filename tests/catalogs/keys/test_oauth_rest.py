"""The REST catalog of the tests, seen by Iceberg's own Java client."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from sluice.driver.lakes.jvm import Jvm
from sluice.lake.iceberg.catalog.java import JavaThrew
from tests.support.catalog_servers.iam_s3 import IamS3
from tests.support.catalogs.iceberg_client import opened
from tests.support.catalogs.oauth_rest import RestServer, RestSettings, rest_server

pytestmark = pytest.mark.long
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"


@pytest.fixture
def server(store: IamS3) -> Iterator[RestServer]:
    with rest_server(store, RestSettings(token_life_s=4, headers={"X-Team": "lake"})) as running:
        yield running


def refusal(jvm: Jvm, options: dict[str, str]) -> str:
    with pytest.raises(JavaThrew) as caught, opened(jvm, options) as client:
        client.load("shop.orders")
    return str(caught.value)


def test_a_client_with_its_secret_renews_its_token(server: RestServer, s3_jvm: Jvm) -> None:
    with opened(s3_jvm, server.options) as client:
        table = client.create("shop.orders")
        assert client.read(table, client.write(table, "words")) == "words"
        client.add_column(client.load("shop.orders"), "note")
        deadline = time.monotonic() + 60
        while EXCHANGE not in server.login.grants:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        time.sleep(server.login.token_life_s)
        client.load("shop.orders")
    assert server.login.grants[0] == "client_credentials"
    assert server.counts()["POST /v1/p%2F1/namespaces/{namespace}/tables/{table}"] == 1


def test_a_token_that_was_given_by_hand(server: RestServer, s3_jvm: Jvm) -> None:
    with opened(s3_jvm, server.token_options) as client:
        client.create("shop.orders")
        client.load("shop.orders")
    assert not server.login.grants


def test_what_is_refused(server: RestServer, s3_jvm: Jvm) -> None:
    fine = server.options
    lacking = {name: value for name, value in fine.items() if name != "credential"}
    assert "the token is missing" in refusal(s3_jvm, lacking)
    assert "the token is missing" in refusal(s3_jvm, {**lacking, "token": "another"})
    assert "unknown client" in refusal(s3_jvm, {**fine, "credential": "tester:another"})
    assert "invalid_scope" in refusal(s3_jvm, {**fine, "scope": "another"})
    assert "no such warehouse" in refusal(s3_jvm, {**fine, "warehouse": "another"})
    assert "the header X-Team" in refusal(s3_jvm, {**fine, "header.X-Team": "another"})
    assert "Table does not exist" in refusal(s3_jvm, fine)
