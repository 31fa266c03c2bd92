"""A round on Spark before a server with TLS and tokens: executors get both, no file does."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluice.client import connect
from sluice.config import SETTINGS_VARIABLE, ClientConfig, ServerConfig
from sluice.driver.spark.round import config_of, run
from sluice.model import TablePath
from sluice.model import types as t
from sluice.rounds.records.json_files import read_json, write_json
from sluice.rounds.records.plan_file import PlanFile, plan_uri
from sluice.rounds.records.result import result_uri
from sluice.server.cluster import EmbeddedCluster
from tests.spark.conftest import Site
from tests.support.network.certificates import authority
from tests.support.network.users import ANY_TOKEN, write_users

pytestmark = [pytest.mark.spark, pytest.mark.slow]
PATH = TablePath("shop", "orders")


def test_executors_read_with_tls_and_a_token(site: Site, spark: Any, tmp_path: Path) -> None:
    token = ANY_TOKEN["write"]
    files = authority().sign(tmp_path / "tls")
    ca = tmp_path / "ca.pem"
    ca.write_text(authority().pem)
    server = ServerConfig(
        data_dir=str(tmp_path / "guarded"),
        listen="grpc://127.0.0.1:0",
        tls_certificate=str(files.certificate),
        tls_key=str(files.key),
        users_file=str(write_users(tmp_path / "users")),
        tiering_check_interval_ms=100,
    )
    with EmbeddedCluster(server) as cluster:
        admin = ClientConfig(cluster.address, token=ANY_TOKEN["admin"], tls_ca=str(ca))
        with connect(admin) as client:
            there = replace(site, client=client)
            there.create(PATH, {"id": t.BIGINT}, bucket_count=3, bucket_keys=("id",))
            there.append(PATH, pa.table({"id": pa.array(range(1000), pa.int64())}))
            claim = there.claim(PATH)
        uri = plan_uri(site.work_uri, "lease", claim)
        write_json(uri, PlanFile(claim, "lease", cluster.address).to_json())
        secrets = json.dumps({"client.token": token, "client.tls_ca": str(ca)})
        settings = config_of(spark.sparkContext, None, {SETTINGS_VARIABLE: secrets})
        config = replace(site.config, client=settings.client)
        assert run(spark.sparkContext, uri, "a1", config) == 0
    result = read_json(result_uri(uri, "a1"))
    assert result is not None
    assert (result["outcome"], result["rows"]) == ("committed", 1000)
    work = Path(site.work_uri.removeprefix("file://"))
    written = [f for folder in (work, site.warehouse) for f in folder.rglob("*") if f.is_file()]
    assert written
    assert not [file for file in written if token.encode() in file.read_bytes()]
