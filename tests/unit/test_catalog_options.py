"""What a catalog's options mean where its class is named in place of its type."""

from __future__ import annotations

import pytest

from sluice.catalog_options import CATALOG_NAME, kind_of, sql_names

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


def test_sql_has_no_second_name_for_a_catalog_that_stores_its_own() -> None:
    assert sql_names(JDBC) == sql_names({"type": "jdbc"}) == (CATALOG_NAME,)
    assert sql_names(JDBC | {"name": "mine"}) == ("mine",)
    assert sql_names({"type": "rest"}) == ("lake", CATALOG_NAME)
