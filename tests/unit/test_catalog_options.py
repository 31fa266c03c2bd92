"""What a catalog's options mean where its class is named in place of its type."""

from __future__ import annotations

import pytest

from sluice.catalog_options import (
    CATALOG_NAME,
    kind_of,
    shown_kind,
    sql_names,
    with_client_defaults,
    with_type,
)

JDBC = {"catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog"}


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"type": "REST"}, "rest"),
        ({"catalog-impl": "org.apache.iceberg.rest.RESTCatalog"}, "rest"),
        (JDBC, "jdbc"),
        ({"catalog-impl": "com.example.Catalog"}, ""),
        ({}, ""),
    ],
)
def test_the_type_of_a_class(options: dict[str, str], kind: str) -> None:
    assert kind_of(options) == kind


def test_no_client_of_a_catalog_waits_for_ever() -> None:
    rest = {"type": "rest", "rest.client.socket-timeout-ms": "5"}
    told = with_client_defaults(rest)
    assert told["rest.client.connection-timeout-ms"] == "15000"
    assert told["rest.client.socket-timeout-ms"] == "5", "the user's own counts"
    postgresql = {"type": "jdbc", "uri": "jdbc:postgresql://db/lake"}
    assert with_client_defaults(postgresql)["jdbc.socketTimeout"] == "60"
    sqlite = {"type": "jdbc", "uri": "jdbc:sqlite:/lake.db"}
    assert with_client_defaults(sqlite) == sqlite


def test_the_type_in_words() -> None:
    assert shown_kind({"type": "REST"}) == "rest"
    assert shown_kind({"catalog-impl": "org.apache.iceberg.hive.HiveCatalog"}) == "hive"
    assert shown_kind({"catalog-impl": "com.example.Catalog"}) == "of a custom class"
    assert shown_kind({"uri": "thrift://x"}) == "hive (Iceberg's default)"


def test_sql_has_no_second_name_for_a_catalog_that_stores_its_own() -> None:
    assert sql_names(JDBC) == sql_names({"type": "jdbc"}) == (CATALOG_NAME,)
    assert sql_names(JDBC | {"name": "mine"}) == ("mine",)
    assert sql_names({"type": "rest"}) == ("lake", CATALOG_NAME)


@pytest.mark.parametrize(
    "more",
    [{}, {"io-impl": "a.B"}, {"s3.endpoint": "http://x"}, {"user": "u", "prefix": "p", "ref": "r"}],
)
def test_a_folder_and_nothing_that_names_a_catalog_is_of_type_hadoop(more: dict[str, str]) -> None:
    assert with_type({"warehouse": "/lake", **more})["type"] == "hadoop"


@pytest.mark.parametrize("warehouse", ["s3://lake/w", "gs://lake/w", "abfss://c@a/w", "names"])
def test_an_object_store_without_a_type_is_no_hadoop_lake(warehouse: str) -> None:
    assert "type" not in with_type({"warehouse": warehouse})
    assert with_type({"warehouse": "hdfs://name/w"})["type"] == "hadoop"


@pytest.mark.parametrize(
    "name",
    [
        *("type", "catalog-impl", "uri", "jdbc.user"),
        *("url", "uir", "ur", "URI", "tpye", "tyep", "typ", "types", "Type"),
        *("catalog-imp", "catalog-ipml", "catalogtype"),
    ],
)
def test_a_folder_is_no_hadoop_lake_beside_what_names_a_catalog_or_seems_to(name: str) -> None:
    options = {"warehouse": "/lake", name: "x"}
    assert with_type(options) == options
