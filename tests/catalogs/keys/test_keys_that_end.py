"""A round of three minutes with keys of one minute, on executors: the driver renews them."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluice.client.connection.addresses import Address
from sluice.model import Column, Schema, TableDescriptor
from sluice.model import types as t
from sluice.rounds.records.result import RoundResult
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from tests.support.catalog_servers.aws_bundle import jars_with_s3
from tests.support.catalog_servers.catalog import Catalog
from tests.support.catalog_servers.iam_s3 import IamS3
from tests.support.catalogs.oauth_rest import RestSettings, rest_server
from tests.support.catalogs.rounds import RoundSite, round_site
from tests.support.catalogs.spark_round import spark_round
from tests.support.catalogs.vending import Vending
from tests.support.network.proxy import Answer, Proxy
from tests.support.tables.keyed_stock import DUE

pytestmark = pytest.mark.long
LIFE_S = 60
ROUND_S = 180
BATCHES = 60
ROWS = 500
FETCH_S = ROUND_S / BATCHES


def slowly(client: socket.socket, answer: Answer) -> bool:
    """Each answer comes late, as from a cluster that has much to do."""
    time.sleep(FETCH_S)
    client.sendall(answer.frame)
    return True


@contextmanager
def slow_cluster(site: RoundSite) -> Iterator[str]:
    """The address of a proxy before the site's cluster that delays log data."""
    reply: Any = site.client._connection.call_coordinator(
        apis.GET_METADATA, pb.MetadataRequest(), lambda reply: reply
    )
    ports = [reply.coordinator_server.port, *(node.port for node in reply.tablet_servers)]
    with Proxy(ports) as proxy:
        proxy.plan_always(apis.FETCH_LOG, slowly)
        address = Address.parse(site.config.client.bootstrap)
        yield f"fluss://127.0.0.1:{proxy.ports[address.port]}"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", [Vending.CONFIG, Vending.CREDENTIALS])
def test_keys_end_during_a_round(store: IamS3, tmp_path: Path, how: Vending) -> None:
    settings = RestSettings(vending=how, key_life_s=LIFE_S, below=("", "/data"))
    with rest_server(store, settings) as server:
        catalog = Catalog(server.options, jars_with_s3())
        with round_site(catalog, tmp_path, listen="fluss://127.0.0.1:0") as site:
            path = site.new_path("slow")
            fields = (Column("id", t.BIGINT, 0),)
            described = TableDescriptor(Schema(fields, highest_field_id=0), properties=DUE)
            site.client.admin.create_table(path, described)
            for start in range(0, BATCHES * ROWS, ROWS):
                with site.client.log_writer(path) as writer:
                    ids = pa.array(range(start, start + ROWS), pa.int64())
                    writer.write(pa.table({"id": ids}))
            began_s = time.monotonic()
            with slow_cluster(site) as bootstrap:
                result = spark_round(
                    site,
                    path,
                    tmp_path,
                    bootstrap=bootstrap,
                    client__fetch_max_bytes_per_bucket="1",
                    tiering__row_group_rows=str(ROWS),
                    tiering__max_round_ms="600000",
                )
            said = (tmp_path / "spark-submit.log").read_text()
            assert isinstance(result, RoundResult), said[-3000:]
            assert time.monotonic() - began_s > ROUND_S * 0.9
            assert result.rows == BATCHES * ROWS
            assert result.copied_by == "executors"
            assert result.files >= 3, "a file ends before its keys do"
            rows = [row[0] for row in site.rows(path, "id")]
            assert sorted(rows) == [*range(BATCHES * ROWS)]
        keys = {one["key"] for one in store.requests() if "/data/" in one["path"]}
        given = {one.keys.access_key for one in server.vendor.given}
        assert len(keys & given) >= 3
        secrets = [one.keys.secret_key for one in server.vendor.given]
        for file in (tmp_path / "work").rglob("*"):
            assert not file.name.startswith("keys-"), "the driver has deleted it"
            assert file.is_dir() or not any(s in file.read_text() for s in secrets), file
        assert not any(secret in said for secret in secrets)
