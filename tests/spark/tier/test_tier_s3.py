"""`sluice tier` to S3: pyarrow writes the data files, Iceberg's own S3FileIO reads them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyarrow import fs

from sluice.cli.main import cli
from sluice.client import connect
from sluice.config import ServerConfig
from sluice.formats.types.types import schema_from_arrow
from sluice.model import TableDescriptor, TablePath
from sluice.server.cluster import EmbeddedCluster
from tests.support.catalog_servers.aws_bundle import jars_with_s3
from tests.support.clusters.s3_server import S3Server

pytestmark = [pytest.mark.spark, pytest.mark.slow]
PATH = TablePath("shop", "orders")
ROWS = pa.table({"id": pa.array(range(1000), pa.int64()), "s": [f"r{i}" for i in range(1000)]})


@pytest.mark.timeout(600)
def test_rows_reach_the_bucket_and_what_is_refused_has_its_reason(tmp_path: Path) -> None:
    server = ServerConfig(data_dir=str(tmp_path / "data"), listen="grpc://127.0.0.1:0")
    with S3Server() as s3, EmbeddedCluster(server) as cluster, connect(cluster.address) as client:
        owner = s3.bucket("lake")
        s3.allowed = {"tester": ""}
        config = tmp_path / "sluice.toml"
        options = {
            "type": "hadoop",
            "warehouse": str(tmp_path / "lake"),
            "io-impl": "org.apache.iceberg.io.ResolvingFileIO",
            "s3.path-style-access": "true",
            **s3.options(),
        }
        lines = [f'"{name}" = "{value}"' for name, value in options.items()]
        config.write_text("[datalake.iceberg]\n" + "\n".join(lines))
        client.admin.create_database(PATH.database)
        described = TableDescriptor(
            schema_from_arrow(ROWS.schema),
            bucket_count=2,
            properties={"table.datalake.enabled": "true", "table.datalake.freshness": "0s"},
            custom_properties={"iceberg.write.data.path": "s3://lake/shop/orders"},
        )
        client.admin.create_table(PATH, described)
        with client.log_writer(PATH) as writer:
            writer.write(ROWS)

        def tier() -> tuple[int, str]:
            environment = {
                "SLUICE_CLIENT_BOOTSTRAP": cluster.address,
                "SLUICE_TIERING_JARS": str(jars_with_s3()),
            }
            arguments = ["tier", str(PATH), "--config", str(config)]
            result = CliRunner().invoke(cli, arguments, env=environment)
            return result.exit_code, result.output

        code, said = tier()
        assert code == 0, said
        assert "shop.orders: committed to the lake" in said
        found = owner.get_file_info(fs.FileSelector("lake", recursive=True))
        files = [info.path for info in found if info.is_file]
        assert files
        lake = pa.concat_tables(pq.read_table(file, filesystem=owner) for file in files)
        assert sorted(lake["id"].to_pylist()) == list(range(1000))

        with client.log_writer(PATH) as writer:
            writer.write(ROWS)
        s3.allowed = {}
        code, said = tier()
        assert code == 1
        assert "s3://lake/shop/orders" in said
        assert "ACCESS_DENIED" in said
        assert "secret-of-tester" not in said
        reason = client.statuses.list(PATH)[0].last_error
        assert reason is not None
        assert "secret-of-tester" not in reason
