"""The lake tables of a real coordinator, next to those that `sluice create-lake-table` makes."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sluice.client import Client, connect
from sluice.config import ClientConfig, Config, DatalakeConfig, ServerConfig
from sluice.driver.lake_tables import create_lake_tables
from sluice.driver.lakes.jvm import Jvm
from sluice.lake.iceberg.lake import IcebergLake
from sluice.model import Column, DataType, Schema, TableDescriptor, TablePath
from sluice.model import types as t
from sluice.server.cluster import EmbeddedCluster
from tests.support.fluss.real_fluss import RealFluss
from tests.support.fluss.table_creation import create_table

pytestmark = [pytest.mark.real_fluss, pytest.mark.slow]

TIERED = {"table.datalake.enabled": "true", "table.datalake.freshness": "1s"}
OWN = {"owner": "shop", "iceberg.write.parquet.page-version": "v2"}


def table(columns: dict[str, DataType], key: tuple[str, ...] = (), **more: Any) -> TableDescriptor:
    fields = tuple(Column(name, kind, i) for i, (name, kind) in enumerate(columns.items()))
    schema = Schema(fields, key, len(fields) - 1)
    return TableDescriptor(schema, **{"properties": TIERED, "bucket_count": 3, **more})


ID, NAME = t.BIGINT.not_null(), t.STRING.not_null()
TABLES = {
    "log": table({"id": t.BIGINT, "note": t.STRING}),
    "bucketed": table({"id": ID, "price": t.decimal(9, 2)}, bucket_keys=("id",)),
    "keyed": table({"id": ID, "at": t.timestamp(6)}, ("id",), custom_properties=OWN),
    "by_day": table(
        {"day": NAME, "id": ID, "n": t.INT},
        ("day", "id"),
        partition_keys=("day",),
        properties=TIERED | {"table.datalake.auto-compaction": "true"},
        comment="by day",
    ),
    "merged": table(
        {"id": ID, "n": t.INT}, ("id",), properties=TIERED | {"table.merge-engine": "first_row"}
    ),
}


def made(config: Config, client: Client, jvm: Jvm, database: str) -> dict[str, Any]:
    """What Iceberg stores of each lake table, without what is different each time."""
    found = {}
    with closing(IcebergLake(jvm.gateway, config.datalake.iceberg)) as lake:
        for name in TABLES:
            loaded = lake.load(TablePath(database, name))
            assert loaded is not None
            metadata = loaded._loaded.java.operations().current()
            parser = jvm.gateway.jvm.org.apache.iceberg.TableMetadataParser
            content = json.loads(parser.toJson(metadata))
            for key in ("location", "table-uuid", "last-updated-ms"):
                del content[key]
            found[name] = content
    return found


def test_they_are_the_same(real_fluss: RealFluss, jvm: Jvm, tmp_path: Path) -> None:
    lakes = {
        "real": DatalakeConfig(iceberg={"type": "hadoop", "warehouse": str(real_fluss.warehouse)}),
        "ours": DatalakeConfig(
            iceberg={"type": "hadoop", "warehouse": str(tmp_path / "lake"), "layout": "legacy"}
        ),
    }
    server = ServerConfig(data_dir=str(tmp_path / "server"), listen="grpc://127.0.0.1:0")
    found = {}
    with EmbeddedCluster(server, datalake=lakes["ours"]) as cluster:
        addresses = {"real": real_fluss.bootstrap, "ours": cluster.address}
        for name, address in addresses.items():
            config = Config(ClientConfig(address), datalake=lakes[name])
            with connect(config.client) as client:
                client.admin.create_database("alike")
                for table_name, descriptor in TABLES.items():
                    path = TablePath("alike", table_name)
                    create_table(client, path, descriptor, Path(lakes[name].iceberg["warehouse"]))
                    [report] = create_lake_tables(config, path, jvm)
                    assert report.outcome == ("exists" if name == "real" else "created")
                found[name] = made(config, client, jvm, "alike")
                client.admin.drop_database("alike", cascade=True)
    assert found["ours"] == found["real"]
