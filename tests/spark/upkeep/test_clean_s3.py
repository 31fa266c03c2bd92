"""`sluice clean` where the data files lie on S3."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import fs

from sluice import failpoints
from sluice.cli.main import cli
from sluice.client import connect
from sluice.config import ServerConfig
from sluice.formats.types.types import schema_from_arrow
from sluice.model import TableDescriptor, TablePath
from sluice.server.cluster import EmbeddedCluster
from tests.support.catalog_servers.aws_bundle import jars_with_s3
from tests.support.clusters.s3_server import S3Server

pytestmark = [pytest.mark.spark, pytest.mark.long]
PATH = TablePath("shop", "orders")
ROWS = pa.table({"id": pa.array(range(1000), pa.int64())})


@pytest.mark.timeout(600)
def test_objects_of_a_dead_round_go_and_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ServerConfig(
        data_dir=str(tmp_path / "data"), listen="grpc://127.0.0.1:0", tiering_backoff_ms=0
    )
    with S3Server() as s3, EmbeddedCluster(server) as cluster, connect(cluster.address) as client:
        owner = s3.bucket("lake")
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
        environment = {
            "SLUICE_CLIENT_BOOTSTRAP": cluster.address,
            "SLUICE_TIERING_JARS": str(jars_with_s3()),
        }

        def command(*words: str) -> str:
            arguments = [words[0], str(PATH), "--config", str(config), *words[1:]]
            done = CliRunner().invoke(cli, arguments, env=environment)
            return done.output if done.exit_code == 0 else f"{done.exit_code}: {done.output}"

        def objects() -> set[str]:
            found = owner.get_file_info(fs.FileSelector("lake", recursive=True))
            return {f"s3://{info.path}" for info in found if info.is_file and info.size}

        def append() -> None:
            with client.log_writer(PATH) as writer:
                writer.write(ROWS)

        append()
        assert "committed to the lake" in command("tier")
        before = objects()
        append()
        monkeypatch.setattr(failpoints, "_armed", failpoints.parse("round.lake_commit.ready=raise"))
        assert "failpoint round.lake_commit.ready" in command("tier")
        monkeypatch.setattr(failpoints, "_armed", {})
        left = objects() - before
        assert left
        assert "nothing to delete" in command("clean")
        assert "committed to the lake" in command("tier")
        [report] = json.loads(command("clean", "--yes", "--format", "json"))["tables"]
        assert set(report["removed"]) == left
        assert not left & objects()
        assert before < objects()
