"""Which clients work with which Hive Metastore, and what each metastore refuses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sluice.driver.lakes.jvm import Jvm
from sluice.lake.iceberg.catalog.java import JavaThrew
from tests.support.catalog_servers.catalog import jars_with
from tests.support.catalog_servers.iam_s3 import IamS3
from tests.support.catalogs.hive_metastore import CLIENT_3, CLIENT_4, hive_options, metastore
from tests.support.catalogs.iceberg_client import opened

pytestmark = pytest.mark.long
OF_HIVE = {"hadoop.iceberg.engine.hive.enabled": "true"}


@pytest.fixture(scope="module")
def hive3(store: IamS3) -> Iterator[dict[str, str]]:
    with metastore(3) as uri:
        yield hive_options(store, uri)


@pytest.fixture(scope="module")
def hive4(store: IamS3) -> Iterator[dict[str, str]]:
    with metastore(4) as uri:
        yield hive_options(store, uri)


@pytest.fixture(scope="module")
def jvm_of_hive3() -> Iterator[Jvm]:
    with Jvm(str(jars_with("jars-hive3", *CLIENT_3))) as running:
        yield running


@pytest.fixture(scope="module")
def jvm_of_hive4() -> Iterator[Jvm]:
    with Jvm(str(jars_with("jars-hive4", CLIENT_4))) as running:
        yield running


def commit(jvm: Jvm, options: dict[str, str], table: str, *, first: bool = False) -> None:
    with opened(jvm, options) as client:
        client.create(table)
        client.add_column(client.load(table), "note", first=first)


def refusal(jvm: Jvm, options: dict[str, str], table: str, *, first: bool = False) -> str:
    with pytest.raises(JavaThrew) as caught:
        commit(jvm, options, table, first=first)
    return str(caught.value)


def test_sparks_own_client(hive3: dict[str, str], hive4: dict[str, str], s3_jvm: Jvm) -> None:
    commit(s3_jvm, hive3, "spark.orders")
    assert "Invalid method name: 'get_table'" in refusal(s3_jvm, hive4, "spark.orders")


def test_the_client_of_hive_4(
    hive3: dict[str, str], hive4: dict[str, str], jvm_of_hive4: Jvm
) -> None:
    commit(jvm_of_hive4, hive4, "four.orders")
    assert "Invalid method name: 'get_database_req'" in refusal(jvm_of_hive4, hive3, "four.orders")


def test_the_client_of_hive_3(
    hive3: dict[str, str], hive4: dict[str, str], jvm_of_hive3: Jvm
) -> None:
    commit(jvm_of_hive3, hive3, "three.orders")
    commit(jvm_of_hive3, hive4, "three.orders")


def test_a_column_in_front_of_others(
    hive3: dict[str, str], hive4: dict[str, str], s3_jvm: Jvm, jvm_of_hive4: Jvm
) -> None:
    told = "have types incompatible with the existing columns"
    assert told in refusal(s3_jvm, hive3, "front.orders", first=True)
    assert told in refusal(s3_jvm, hive3 | OF_HIVE, "front.items", first=True)
    assert told in refusal(jvm_of_hive4, hive4, "front.orders", first=True)
    commit(jvm_of_hive4, hive4 | OF_HIVE, "front.items", first=True)
