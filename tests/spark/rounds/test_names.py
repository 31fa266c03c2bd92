"""What Spark and PyIceberg do with names that the rules for names and types warn of."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

from sluice.driver.local import tier_once
from sluice.model import TablePath
from sluice.model import types as t
from tests.spark.conftest import Site

pytestmark = pytest.mark.spark
PATH = TablePath("shop", "named")
LAKE = f"lake.{PATH}"


def tiered(site: Site, *names: str, **custom: str) -> Any:
    properties = {"table.datalake.auto-compaction": "true"}
    columns = dict.fromkeys(names, t.INT)
    site.create(PATH, columns, bucket_count=1, properties=properties, custom_properties=custom)
    return tier(site, *names)


def tier(site: Site, *names: str) -> Any:
    site.append(PATH, pa.table({name: pa.array([1, 2], pa.int32()) for name in names}))
    return tier_once(site.config, PATH, now=True, jvm=site.jvm)


def by_pyiceberg(site: Site) -> dict[str, list[int]]:
    folder = site.warehouse / PATH.database / PATH.table / "metadata"
    newest = max(folder.glob("v*.metadata.json"), key=lambda one: int(one.name[1:].split(".")[0]))
    found: dict[str, list[int]] = (
        StaticTable.from_metadata(str(newest)).scan().to_arrow().to_pydict()
    )
    return found


def test_columns_that_differ_in_case(site: Site) -> None:
    result = tiered(site, "Id", "id")
    assert result.notes == (
        "columns Id and id differ in case only (Spark: it cannot read the table)",
    )
    with pytest.raises(Exception, match="COLUMN_ALREADY_EXISTS"):
        site.rows(f"SELECT * FROM {LAKE}")
    assert by_pyiceberg(site) == {"Id": [1, 2], "id": [1, 2]}


@pytest.mark.parametrize("version", ["2", "3"])
@pytest.mark.parametrize("name", ["_pos", "_row_id"])
def test_a_metadata_column_of_iceberg(site: Site, name: str, version: str) -> None:
    result = tiered(site, "a", name, **{"iceberg.format-version": version})
    assert f"column {name} has the name of a metadata column of Iceberg" in result.notes[0]
    with pytest.raises(Exception, match="conflict with names reserved"):
        site.rows(f"SELECT * FROM {LAKE}")
    assert [row.a for row in site.rows(f"SELECT a FROM {LAKE} ORDER BY a")] == [1, 2]
    told = [tier(site, "a", name) for _ in range(4)]
    assert by_pyiceberg(site)[name].count(2) == 5, "no compaction has replaced the values"
    left_out = any(
        "name of Iceberg's ids of rows: small files stay" in one.compacted for one in told
    )
    assert left_out == (name == "_row_id" and version == "3")
