"""Two processes make the namespace of a database at once, in a catalog of JDBC.

It looks for the namespace and inserts it. Whoever comes second is told that a key is not unique.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sluice.driver.lakes.jvm import Jvm
from sluice.errors import LakeNotWritable
from sluice.lake.iceberg.lake import IcebergLake
from sluice.model import Column, Schema, TableDescriptor, TableInfo, TablePath
from sluice.model import types as t
from tests.support.catalog_servers.catalog import jars_with
from tests.support.catalogs.jdbc import SQLITE

pytestmark = pytest.mark.long
ORDERS = TablePath("shop", "orders")
INFO = TableInfo(
    ORDERS, 1, 1, TableDescriptor(Schema((Column("id", t.BIGINT, 0),), highest_field_id=0)), 0, 0
)
NAMESPACES = "iceberg_namespace_properties"


@pytest.fixture(scope="module")
def jvm() -> Iterator[Jvm]:
    with Jvm(str(jars_with("jars-sqlite", SQLITE))) as running:
        yield running


@pytest.fixture
def lake(jvm: Jvm, tmp_path: Path) -> Iterator[IcebergLake]:
    options = {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{tmp_path}/catalog.db",
        "warehouse": str(tmp_path / "lake"),
    }
    with closing(IcebergLake(jvm.gateway, options)) as opened:
        yield opened


def refuse(folder: Path, why: str, before: str = "") -> None:
    """Has the database refuse namespaces from now on.

    :param before: statements of another process, which come just before the refused one and stay.
    """
    with closing(sqlite3.connect(folder / "catalog.db")) as database:
        database.execute(
            f"CREATE TRIGGER refusal BEFORE INSERT ON {NAMESPACES}"
            f" BEGIN {before} SELECT RAISE(FAIL, '{why}'); END"
        )


def test_another_process_has_made_it(lake: IcebergLake, tmp_path: Path) -> None:
    columns = "catalog_name, namespace, property_key, property_value"
    values = ", ".join(f"NEW.{name}" for name in columns.split(", "))
    first = f"INSERT INTO {NAMESPACES} ({columns}) VALUES ({values});"
    refuse(tmp_path, f"UNIQUE constraint failed: {NAMESPACES}.catalog_name", first)
    lake.create(INFO)
    assert lake.has(ORDERS)


def test_another_refusal_is_told(lake: IcebergLake, tmp_path: Path) -> None:
    refuse(tmp_path, "no more namespaces")
    with pytest.raises(LakeNotWritable, match=r"shop\.orders: .*no more namespaces"):
        lake.create(INFO)
