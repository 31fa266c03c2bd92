"""`sluice tables`: the tables of a cluster."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from sluice.cli.main import cli
from sluice.client import connect
from sluice.config import ServerConfig
from sluice.model import Column, Schema, TableDescriptor, TablePath
from sluice.model.types import BIGINT
from sluice.server.cluster import EmbeddedCluster

SCHEMA = Schema((Column("id", BIGINT, 0),), highest_field_id=0)
ENABLED, FRESHNESS = "table.datalake.enabled", "table.datalake.freshness"


def test_the_freshness_that_a_table_is_tiered_by(tmp_path: Path) -> None:
    tables = {
        "default": {ENABLED: "true"},
        "own": {ENABLED: "true", FRESHNESS: "30s"},
        "plain": {},
        "prepared": {FRESHNESS: "1d"},
    }
    config = ServerConfig(str(tmp_path), listen="grpc://127.0.0.1:0")
    with EmbeddedCluster(config) as cluster, connect(cluster.address) as client:
        client.admin.create_database("shop")
        for name, properties in tables.items():
            described = TableDescriptor(SCHEMA, bucket_count=1, properties=properties)
            client.admin.create_table(TablePath("shop", name), described)
        shown = CliRunner().invoke(cli, ["tables", "--bootstrap", cluster.address])
        machine = CliRunner().invoke(
            cli, ["tables", "--format", "json", "--bootstrap", cluster.address]
        )
    lines = {line.split()[0]: line.rstrip() for line in shown.output.splitlines()}
    assert lines["shop.default"].endswith("  3 min (default)")
    assert lines["shop.own"].endswith("  30s")
    assert lines["shop.plain"].endswith("  not tiered")
    assert lines["shop.prepared"].endswith("  not tiered")
    found = {row["table"]: row["freshness"] for row in json.loads(machine.output)}
    assert found == {
        "shop.default": None, "shop.own": "30s", "shop.plain": None, "shop.prepared": "1d",
    }  # fmt: skip
