"""Catalogs that vend session keys, seen by Iceberg's own Java client."""

from __future__ import annotations

import time

import pytest

from sluice.driver.jvm import Jvm
from sluice.lake.java import JavaThrew
from tests.support.catalogs.iam_s3 import IamS3
from tests.support.catalogs.iceberg_client import opened
from tests.support.catalogs.nessie import nessie

pytestmark = pytest.mark.long
LIFE_S = 5


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
