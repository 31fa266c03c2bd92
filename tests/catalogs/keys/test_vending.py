"""Catalogs that vend session keys, seen by Iceberg's own Java client."""

from __future__ import annotations

import time

import pytest

from sluice.driver.lakes.jvm import Jvm
from sluice.lake.iceberg.catalog.java import JavaThrew
from tests.support.catalog_servers.iam_s3 import IamS3
from tests.support.catalogs.iceberg_client import opened
from tests.support.catalogs.nessie import nessie
from tests.support.catalogs.oauth_rest import RestSettings, rest_server
from tests.support.catalogs.vending import Vending

pytestmark = pytest.mark.long
LIFE_S = 5
TABLE = "/v1/p%2F1/namespaces/{namespace}/tables/{table}"


def test_nessie_vends_keys_that_end(store: IamS3, s3_jvm: Jvm) -> None:
    with nessie(store, vended_life_s=LIFE_S) as catalog, opened(s3_jvm, catalog.options) as client:
        assert not any("key" in name for name in catalog.options)
        client.create("shop.orders")
        table = client.load("shop.orders")
        given_at = time.monotonic()
        where = client.write(table, "words")
        assert client.read(table, where) == "words"
        has = client.io_properties(table)
        assert has["s3.access-key-id"] != store.owner.access_key
        assert has["s3.session-token"]
        # Nessie says neither when the keys end nor where to renew them
        assert not any("expires" in name or "refresh-credentials" in name for name in has)
        assert not client.io_credentials(table)

        time.sleep(LIFE_S - (time.monotonic() - given_at) + 0.5)
        with pytest.raises(JavaThrew, match="expired"):
            client.read(table, where)
        assert client.read(client.load("shop.orders"), where) == "words"
        client.add_column(client.load("shop.orders"), "note")


@pytest.mark.parametrize("how", [Vending.CONFIG, Vending.CREDENTIALS])
def test_keys_of_a_table_end(store: IamS3, s3_jvm: Jvm, how: Vending) -> None:
    settings = RestSettings(vending=how, key_life_s=LIFE_S)
    with rest_server(store, settings) as server, opened(s3_jvm, server.options) as client:
        assert not any(name.startswith("s3.") for name in server.options)
        table = client.create("shop.orders")
        given_at = time.monotonic()
        where = client.write(table, "words")
        assert client.read(table, where) == "words"
        (given,) = server.vendor.given
        has = client.io_properties(table)
        if how is Vending.CREDENTIALS:
            assert "s3.access-key-id" not in has
            assert client.io_credentials(table) == {table.location(): given.keys.options()}
        else:
            assert given.keys.options().items() <= has.items()
            assert not client.io_credentials(table)

        time.sleep(LIFE_S - (time.monotonic() - given_at) + 0.5)
        with pytest.raises(JavaThrew, match="expired"):
            client.read(table, where)
        assert client.read(client.load("shop.orders"), where) == "words"
        assert len(server.vendor.given) == 2
        client.add_column(client.load("shop.orders"), "note")


def test_each_prefix_has_keys_of_its_own(store: IamS3, s3_jvm: Jvm) -> None:
    settings = RestSettings(vending=Vending.CREDENTIALS, below=("", "/data", "/metadata"))
    with rest_server(store, settings) as server, opened(s3_jvm, server.options) as client:
        table = client.create("shop.orders")
        assert len({given.keys.access_key for given in server.vendor.given}) == 3
        client.write(table, "words")
        key = next(
            given.keys.access_key for given in server.vendor.given if "/data" in given.prefix
        )
        written = [request for request in store.requests() if "words.txt" in request["path"]]
        assert written[-1]["key"] == key


def test_iceberg_asks_the_credentials_endpoint(store: IamS3, s3_jvm: Jvm) -> None:
    settings = RestSettings(vending=Vending.CREDENTIALS, key_life_s=LIFE_S, refreshes=True)
    with rest_server(store, settings) as server, opened(s3_jvm, server.options) as client:
        table = client.create("shop.orders")
        where = client.write(table, "words")
        for _ in range(3):
            time.sleep(LIFE_S / 2)
            assert client.read(table, where) == "words"
        asked = server.counts()[f"GET {TABLE}/credentials"]
        # keys with less than five minutes left are asked for again before each request
        assert asked >= 2
        assert len(server.vendor.given) == 1 + asked
        assert client.io_properties(table)["client.refresh-credentials-endpoint"]


def test_iceberg_renews_the_keys_of_one_prefix_only(store: IamS3, s3_jvm: Jvm) -> None:
    settings = RestSettings(
        vending=Vending.CREDENTIALS, key_life_s=LIFE_S, refreshes=True, below=("", "/data")
    )
    with rest_server(store, settings) as server, opened(s3_jvm, server.options) as client:
        table = client.create("shop.orders")
        with pytest.raises(JavaThrew, match="only one S3 credential should exist"):
            client.write(table, "words")


def test_a_catalog_that_signs(store: IamS3, s3_jvm: Jvm) -> None:
    settings = RestSettings(vending=Vending.SIGNING)
    with rest_server(store, settings) as server, opened(s3_jvm, server.options) as client:
        table = client.create("shop.orders")
        has = client.io_properties(table)
        assert has["s3.remote-signing-enabled"] == "true"
        assert not any("key" in name for name in has)
        assert client.read(table, client.write(table, "words")) == "words"
        assert server.counts()[f"POST {TABLE}/sign"] >= 2
