"""Positions on an object store: pyarrow reads keys and writes positions there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluice.client import connect
from sluice.config import ClientConfig, Config, DatalakeConfig, ServerConfig, TieringConfig
from sluice.driver.lakes.jvm import Jvm
from sluice.driver.local import tier_once
from sluice.lake.iceberg.deletes.deletion_vectors import DeletionVector
from sluice.lake.iceberg.lake import IcebergLake
from sluice.model import TableBucket
from sluice.rounds.records.result import RoundResult
from sluice.rounds.values.types import Split
from sluice.server.cluster import EmbeddedCluster
from tests.spark.conftest import LONG_MS, STOCK
from tests.support.catalog_servers.aws_bundle import jars_with_s3
from tests.support.clusters.s3_server import S3Server
from tests.support.tables.keyed_stock import Stock, stock_table

pytestmark = [pytest.mark.spark, pytest.mark.long]
LAKE = "s3://lake/shop/stock"


def in_lake(lake: IcebergLake, owner: Any) -> dict[tuple[str, int], tuple[str | None, int | None]]:
    """The rows of all live files less those that are marked, by pyarrow alone.

    Iceberg says which files there are.
    """
    table = lake.load(STOCK)
    assert table is not None
    found = {}
    splits = [Split(TableBucket(1, None, number), (), 0, 1) for number in range(2)]
    for files in table.live_files(splits).buckets.values():
        dead = {file.path: set[int]() for file in files.files}
        for mark in files.marks:
            path = mark.path.removeprefix("s3://")
            if mark.blob is None:
                for row in pq.read_table(path, filesystem=owner).to_pylist():
                    dead[row["file_path"]].add(row["pos"])
                continue
            with owner.open_input_file(path) as source:
                blob = source.read_at(mark.blob[1], mark.blob[0])
            assert mark.data_file is not None
            dead[mark.data_file] |= {*DeletionVector.from_blob(blob, path).positions().tolist()}
        for file in files.files:
            assert file.path.startswith(LAKE)
            rows = pq.read_table(file.path.removeprefix("s3://"), filesystem=owner).to_pylist()
            for place, row in enumerate(rows):
                if place not in dead[file.path]:
                    assert (row["day"], row["id"]) not in found, "a key is there twice"
                    found[row["day"], row["id"]] = (row["item"], row["n"])
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", [3, 2])
def test_a_keyed_table_on_s3(tmp_path: Path, version: int) -> None:
    server = ServerConfig(
        data_dir=str(tmp_path / "server"),
        listen="grpc://127.0.0.1:0",
        tiering_timeout_ms=LONG_MS,
        tiering_check_interval_ms=100,
    )
    with (
        S3Server() as s3,
        Jvm(str(jars_with_s3())) as jvm,
        EmbeddedCluster(server) as cluster,
    ):
        owner = s3.bucket("lake")
        options = {
            "type": "hadoop",
            "warehouse": str(tmp_path / "lake"),
            "io-impl": "org.apache.iceberg.io.ResolvingFileIO",
            "s3.path-style-access": "true",
            **s3.options(),
        }
        config = Config(
            client=ClientConfig(bootstrap=cluster.address),
            datalake=DatalakeConfig("iceberg", options),
            tiering=TieringConfig(spill_dir=str(tmp_path)),
        )
        with connect(config.client) as client:
            stock = Stock(client, STOCK, lambda query: [])
            client.admin.create_database("shop")
            described = stock_table(version=version)
            described.custom_properties["iceberg.write.data.path"] = LAKE  # type: ignore[index]
            client.admin.create_table(STOCK, described)

            def tier() -> RoundResult:
                return tier_once(config, STOCK, now=True, jvm=jvm)

            lake = IcebergLake(jvm.gateway, options)
            stock.put({key: key for key in range(300)})
            assert tier().rows == 300
            for start in (0, 100, 3):
                stock.put({key: -key for key in range(start, start + 40)})
                stock.delete(*range(start + 40, start + 45))
                result = tier()
                assert result.deletes_as == "positions"
                assert result.lookup_files >= 2
                assert in_lake(lake, owner) == stock.held
            suffix = "puffin" if version == 3 else "positions.parquet"
            stored = [
                f.path for f in owner.get_file_info(pa.fs.FileSelector("lake", recursive=True))
            ]
            # the last round deletes in four data files; a position file is about one of them
            assert sum(path.endswith(suffix) for path in stored) == {2: 8, 3: 6}[version]
            assert not any(path.endswith("-deletes.parquet") for path in stored)
