"""The client over Fluss's own protocol when answers break on the way, by a proxy before a cluster.

Each ends in a typed error or a clean retry; and so do leaders that move.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluice.client import Client, connect
from sluice.client.connection.addresses import Address
from sluice.config import ClientConfig, ServerConfig
from sluice.errors import (
    CorruptMessage,
    DatabaseAlreadyExist,
    FlussError,
    NetworkError,
    RecordTooLarge,
    RequestTimeOut,
    UnknownServerError,
    UnsupportedVersion,
)
from sluice.formats.types.types import schema_from_arrow
from sluice.model import TableBucket, TableDescriptor, TablePath
from sluice.server.cluster import EmbeddedCluster
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from tests.support.network import proxy as faults
from tests.support.network.proxy import Fault, Proxy

PATH = TablePath("shop", "orders")
SCHEMA = pa.schema([("id", pa.int64())])


@dataclass
class Site:
    client: Client
    proxy: Proxy

    def append(self, first: int, count: int) -> None:
        with self.client.log_writer(PATH) as writer:
            writer.write(pa.table({"id": range(first, first + count)}, schema=SCHEMA))

    def rows(self) -> list[int]:
        reader = self.client.log_reader(PATH)
        bucket = TableBucket(reader.info.table_id, None, 0)
        return [i for r in reader.read(bucket) for i in r.batch["id"].to_pylist()]


@pytest.fixture
def site(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    """Deadlines are short only where a test waits for one."""
    callspec = getattr(request.node, "callspec", None)
    hangs = callspec is not None and callspec.params.get("fault") is faults.hang
    config = ServerConfig(data_dir=str(tmp_path / "data"), listen="fluss://127.0.0.1:0")
    with EmbeddedCluster(config) as cluster:
        with connect(cluster.address) as direct:
            direct.admin.create_database("shop")
            direct.admin.create_table(PATH, TableDescriptor(schema_from_arrow(SCHEMA)))
            reply: Any = direct._connection.call_coordinator(
                apis.GET_METADATA, pb.MetadataRequest(), lambda reply: reply
            )
        ports = [reply.coordinator_server.port, *(node.port for node in reply.tablet_servers)]
        with Proxy(ports) as proxy:
            address = f"fluss://127.0.0.1:{proxy.ports[Address.parse(cluster.address).port]}"
            settings = ClientConfig(address, request_timeout_ms=1_000 if hangs else 120_000)
            with connect(settings) as client:
                yield Site(client, proxy)


PASSING = {
    "hang": faults.hang,
    "close": faults.close,
    "cut": faults.cut,
    "network error": faults.error(1),
    "not leader": faults.error(12),
    "no leader": faults.error(44),
    "unknown bucket": faults.error(21),
    "failure that passes": faults.failure(1, "the pipeline broke"),
}
LASTING = {
    "two gigabytes": (faults.two_gigabytes, RecordTooLarge),
    "other id": (faults.other_id, CorruptMessage),
    "garbage": (faults.garbage, RecordTooLarge),
    "nonsense": (faults.nonsense, CorruptMessage),
    "other frame": (faults.other_frame, CorruptMessage),
    "failure": (faults.failure(-1, "the pipeline broke"), UnknownServerError),
}


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_a_read_goes_on_after_a_fault_that_passes(site: Site, fault: Fault) -> None:
    site.append(0, 1000)
    site.proxy.plan(apis.FETCH_LOG, fault, fault)
    assert site.rows() == list(range(1000))
    assert site.proxy.planned == 0


@pytest.mark.parametrize(("fault", "expected"), LASTING.values(), ids=LASTING)
def test_a_read_ends_with_a_typed_error_and_the_client_lives_on(
    site: Site, fault: Fault, expected: type[FlussError]
) -> None:
    site.append(0, 1000)
    site.proxy.plan(apis.FETCH_LOG, fault)
    started = time.monotonic()
    with pytest.raises(expected, match=r"FetchLog|the pipeline broke"):
        site.rows()
    assert time.monotonic() - started < 60, "it waited for the deadline of a call"
    assert site.rows() == list(range(1000))


@pytest.mark.parametrize("all_servers", [True, False])
def test_a_server_of_another_version_is_refused_and_its_replacement_is_served(
    site: Site, all_servers: bool
) -> None:
    """What it offers is asked anew: it may have been upgraded meanwhile."""
    assert "shop" in site.client.admin.list_databases()
    if all_servers:
        site.proxy.drop()
    site.proxy.plan_always(apis.API_VERSIONS, faults.other_version)
    for _ in range(2):
        started = time.monotonic()
        with pytest.raises(UnsupportedVersion, match="another version|offers versions 1 to 3"):
            site.append(0, 10)
        assert time.monotonic() - started < 60, "it waited for the deadline of a call"
    site.proxy.mend()
    site.proxy.drop()
    site.append(0, 1000)
    assert site.rows() == list(range(1000))


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_an_append_whose_answer_is_lost_is_stored_once(site: Site, fault: Fault) -> None:
    site.append(0, 10)
    site.proxy.plan(apis.PRODUCE_LOG, fault, fault)
    site.append(10, 1000)
    assert site.proxy.planned == 0
    assert site.rows() == list(range(1010))


@pytest.mark.parametrize(
    ("fault", "expected"),
    [(faults.hang, RequestTimeOut), (faults.close, NetworkError), (faults.cut, NetworkError)],
)
def test_a_write_of_unknown_outcome_is_not_sent_again(
    site: Site, fault: Fault, expected: type[FlussError]
) -> None:
    site.client.admin.list_databases()  # all that goes before a call has gone before
    site.proxy.plan(apis.CREATE_DATABASE, fault)
    with pytest.raises(expected, match="CreateDatabase to fluss://"):
        site.client.admin.create_database("new")
    patient = replace(site.client.config, request_timeout_ms=120_000)
    with connect(patient) as client, pytest.raises(DatabaseAlreadyExist):
        client.admin.create_database("new")


@pytest.mark.parametrize(
    "fault", [faults.hang, faults.close, faults.cut, faults.error(65), faults.error(1)]
)
@pytest.mark.parametrize("api", [apis.API_VERSIONS, apis.GET_METADATA, apis.LIST_DATABASES])
def test_a_handshake_or_a_question_is_repeated(site: Site, api: Any, fault: Fault) -> None:
    site.proxy.plan(api, fault, fault)
    assert "shop" in site.client.admin.list_databases()
    assert site.proxy.planned == 0


@pytest.mark.parametrize("fault", [faults.error(65)])
def test_a_coordinator_that_is_not_the_leader_is_asked_again_even_to_write(
    site: Site, fault: Fault
) -> None:
    site.proxy.plan(apis.CREATE_DATABASE, fault)
    with pytest.raises(DatabaseAlreadyExist):  # the proxy broke the answer, not the request
        site.client.admin.create_database("new")
    assert site.proxy.planned == 0
