"""Secrets in every setting that takes one; then all that commands write is searched for them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from sluice.client import connect
from sluice.config import ClientConfig, ServerConfig
from sluice.formats.types.types import schema_from_arrow
from sluice.model import TableDescriptor, TablePath
from sluice.server.cluster import EmbeddedCluster
from tests.support.harness.contents import contents
from tests.support.harness.leaks import leaks
from tests.support.network.repeating_server import FORGED, RepeatingServer
from tests.support.network.users import TOKENS, write_users

pytestmark = pytest.mark.slow

TABLE = TablePath("shop", "orders")
CLIENT_TOKEN = TOKENS["ada"][1]
SETTINGS = {
    "ICEBERG_TOKEN": "planted-4801-catalog",
    "ICEBERG_CREDENTIAL": "lake:Planted/4802+credential",
    "ICEBERG_S3__SECRET_ACCESS_KEY": "Planted/Lake+4803&more",
    "ICEBERG_S3__ACCESS_KEY_ID": "PLANTEDKEYID4804",
    "ICEBERG_S3__SESSION_TOKEN": "planted-4805/session=",
    "ICEBERG_HEADER__X_AUTH": 'planted "4806" header',
    "ICEBERG_JDBC__PASSWORD": "Planted-4807-jdbc",
    "CLIENT_FS_S3__SECRET_KEY": "Planted/Remote+4808",
}
"""By variable, without SLUICE_DATALAKE_ or SLUICE_."""
IN_ADDRESS = "Planted-4809-address"
IN_STORAGE = "planted/4810/of-the-environment"
PLANTED = (*SETTINGS.values(), "Planted/4802+credential", IN_ADDRESS, IN_STORAGE, CLIENT_TOKEN)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    config = ServerConfig(
        str(tmp_path / "data"),
        listen="grpc://127.0.0.1:0",
        users_file=str(write_users(tmp_path / "users")),
    )
    with EmbeddedCluster(config) as started:
        with connect(ClientConfig(started.address, token=CLIENT_TOKEN)) as client:
            rows = pa.table({"id": pa.array(range(3), pa.int64())})
            schema = schema_from_arrow(rows.schema)
            options = {"table.datalake.enabled": "true", "table.datalake.freshness": "1s"}
            client.admin.create_database(TABLE.database)
            client.admin.create_table(
                TABLE, TableDescriptor(schema, bucket_count=1, properties=options)
            )
            with client.log_writer(TABLE) as writer:
                writer.write(rows)
        yield started


def environment(cluster: EmbeddedCluster, server: RepeatingServer) -> dict[str, str]:
    found = {
        "ICEBERG_TYPE": "rest",
        "ICEBERG_URI": server.address,
        "ICEBERG_WAREHOUSE": "s3://bucket/lake",
        "ICEBERG_OLD__URI": f"jdbc:postgresql://bob:{IN_ADDRESS}@127.0.0.1/lake",
        **SETTINGS,
    }
    named = {
        f"SLUICE_{'' if name.startswith('CLIENT_') else 'DATALAKE_'}{name}": value
        for name, value in found.items()
    }
    return {
        **os.environ,
        **named,
        "SLUICE_CLIENT_BOOTSTRAP": cluster.address,
        "SLUICE_CLIENT_TOKEN": CLIENT_TOKEN,
        "AWS_SECRET_ACCESS_KEY": IN_STORAGE,
        "AWS_ACCESS_KEY_ID": "PLANTEDKEYID4811",
        "AWS_ENDPOINT_URL": server.address,
        "COLUMNS": "300",
    }


STORAGE = ["doctor", "--work-uri", "s3://bucket/work"]


@pytest.mark.parametrize("status", [400, pytest.param(500, marks=pytest.mark.long)])
def test_a_round_that_a_catalog_and_a_storage_refuse(
    cluster: EmbeddedCluster, tmp_path: Path, status: int
) -> None:
    """They repeat each secret in each encoding, with control characters around it."""
    home = tmp_path / "home"
    home.mkdir()
    written: dict[str, str] = {}
    with RepeatingServer(*PLANTED, status=status) as server:
        settings = {**environment(cluster, server), "XDG_STATE_HOME": str(home)}
        for words in (
            ["tier", str(TABLE), "--wait", "60s"],
            ["--debug", "tier", str(TABLE), "--wait", "60s"],
            ["status"],
            ["status", str(TABLE)],
            ["status", "--format", "json"],
            ["history", str(TABLE)],
            STORAGE,
            ["maintain", str(TABLE)],
        ):
            ran = subprocess.run(
                [sys.executable, "-m", "sluice.cli.main", *words],
                env=settings, capture_output=True, text=True, timeout=300,
            )  # fmt: skip
            name = " ".join(words)
            written[f"{name}: stdout"], written[f"{name}: stderr"] = ran.stdout, ran.stderr
        assert server.requests
        commands = {one: one for one in server.commands}
    for name in (f"tier {TABLE} --wait 60s: stderr", f"{' '.join(STORAGE)}: stdout"):
        assert "I got" in written[name], "the words of the server are repeated"
        assert "***" in written[name]
    stored = {str(path): held.decode("utf-8", "replace") for path, held in contents(tmp_path)}
    assert leaks(written | stored, PLANTED) == []
    assert leaks(commands, PLANTED) == [], "a command line is not secret"
    for name, text in written.items():
        assert [char for char in FORGED if char in text and not char.isprintable()] in (
            [],
            ["\n"],
        ), name
        assert not any(line.startswith("Injected") for line in text.splitlines()), name
    assert leaks({"proof": f"x {IN_ADDRESS}"}, PLANTED) == [("proof", IN_ADDRESS)]
