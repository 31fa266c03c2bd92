"""Logins of a REST catalog other than OAuth2, seen by Iceberg's own Java client."""

from __future__ import annotations

import pytest

from sluice.driver.lakes.jvm import Jvm
from sluice.lake.iceberg.catalog.java import JavaThrew
from tests.support.catalog_servers.iam_s3 import IamS3
from tests.support.catalogs.iceberg_client import opened
from tests.support.catalogs.other_names import basic_rest, signed_rest

pytestmark = pytest.mark.long


def refusal(jvm: Jvm, options: dict[str, str]) -> str:
    with pytest.raises(JavaThrew) as caught, opened(jvm, options) as client:
        client.load("shop.orders")
    return str(caught.value)


def test_a_password(store: IamS3, s3_jvm: Jvm) -> None:
    with basic_rest(store) as catalog:
        fine = catalog.options
        with opened(s3_jvm, fine) as client:
            client.add_column(client.create("shop.orders"), "note")
        wrong = "the user or the password is wrong"
        assert wrong in refusal(s3_jvm, fine | {"rest.auth.basic.password": "another"})
        assert wrong in refusal(s3_jvm, fine | {"rest.auth.basic.username": "another"})
        assert wrong in refusal(s3_jvm, fine | {"rest.auth.type": "none"})


def test_signed_requests(store: IamS3, s3_jvm: Jvm) -> None:
    with signed_rest(store) as catalog:
        fine = catalog.options
        with opened(s3_jvm, fine) as client:
            client.add_column(client.create("shop.orders"), "note")
        wrong = "the request's signature does not match"
        assert wrong in refusal(s3_jvm, fine | {"rest.secret-access-key": "another"})
        assert wrong in refusal(s3_jvm, fine | {"rest.access-key-id": "another"})
        assert wrong in refusal(s3_jvm, fine | {"rest.signing-name": "execute-api"})
        assert wrong in refusal(s3_jvm, fine | {"rest.auth.type": "none"})
