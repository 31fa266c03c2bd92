"""A real Fluss behind a proxy that breaks its answers: typed errors or retries, and no row is lost.

What a fault breaks is the answer, not the request: once it is lifted all must be there, once.
"""

from __future__ import annotations

import os
import signal
import socket
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pytest

from sluice.client import Client, connect
from sluice.config import ClientConfig
from sluice.errors import (
    CorruptMessage,
    DatabaseAlreadyExist,
    FlussError,
    NetworkError,
    RecordTooLarge,
    RequestTimeOut,
    UnsupportedVersion,
)
from sluice.formats.types.types import schema_from_arrow
from sluice.model import TableBucket, TableDescriptor, TablePath
from sluice.wire import apis
from tests.support.fluss.checkpoints import wait_for_checkpoint
from tests.support.fluss.real_fluss import RealFluss, RealFlussNotStarted
from tests.support.fluss.table_creation import create_table
from tests.support.harness.findings import finding
from tests.support.network import proxy as faults
from tests.support.network.proxy import Fault, Proxy

pytestmark = [pytest.mark.real_fluss, pytest.mark.slow]

SCHEMA = pa.schema([("id", pa.int64())])
PASSING = {
    "hang": faults.hang,
    "close": faults.close,
    "cut": faults.cut,
    "leader that moves": faults.error(12),
}
LASTING = {
    "two gigabytes": (faults.two_gigabytes, RecordTooLarge),
    "other id": (faults.other_id, CorruptMessage),
    "other frame": (faults.other_frame, CorruptMessage),
    "garbage": (faults.garbage, RecordTooLarge),
}


@dataclass
class Site:
    client: Client
    proxy: Proxy
    path: TablePath

    def append(self, first: int, count: int) -> None:
        with self.client.log_writer(self.path) as writer:
            writer.write(pa.table({"id": range(first, first + count)}, schema=SCHEMA))

    def rows(self) -> list[int]:
        reader = self.client.log_reader(self.path)
        bucket = TableBucket(reader.info.table_id, None, 0)
        return [i for r in reader.read(bucket) for i in r.batch["id"].to_pylist()]


@pytest.fixture(scope="module")
def fluss(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealFluss]:
    with RealFluss(tmp_path_factory.mktemp("fluss"), lake=False) as running:
        yield running


@pytest.fixture
def site(fluss: RealFluss, request: pytest.FixtureRequest) -> Iterator[Site]:
    """A table of its own, and a client that sees no server but through the proxy."""
    callspec = getattr(request.node, "callspec", None)
    hangs = callspec is not None and callspec.params.get("fault") is faults.hang
    path = TablePath(f"db_{uuid.uuid4().hex[:10]}", "t")
    with connect(fluss.bootstrap) as direct:
        direct.admin.create_database(path.database)
        create_table(direct, path, TableDescriptor(schema_from_arrow(SCHEMA), bucket_count=1))
    with Proxy([fluss.coordinator_port, fluss.tablet_port]) as proxy:
        address = f"fluss://127.0.0.1:{proxy.ports[fluss.coordinator_port]}"
        timeout_ms = 3_000 if hangs else 30_000
        with connect(ClientConfig(address, request_timeout_ms=timeout_ms)) as client:
            yield Site(client, proxy, path)


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_reading_and_writing_go_on_over_a_fault_that_passes(site: Site, fault: Fault) -> None:
    site.append(0, 1000)
    site.proxy.plan(apis.FETCH_LOG, fault, fault)
    assert site.rows() == list(range(1000))
    assert site.proxy.planned == 0
    site.proxy.plan(apis.PRODUCE_LOG, fault, fault)
    site.append(1000, 1000)
    assert site.proxy.planned == 0
    assert site.rows() == list(range(2000))


@pytest.mark.parametrize("api", [apis.API_VERSIONS, apis.GET_METADATA, apis.LIST_DATABASES])
@pytest.mark.parametrize("fault", list(PASSING.values())[:3], ids=list(PASSING)[:3])
def test_questions_are_repeated(site: Site, api: apis.Api, fault: Fault) -> None:
    site.proxy.plan(api, fault, fault)
    assert site.path.database in site.client.admin.list_databases()
    assert site.proxy.planned == 0


@pytest.mark.parametrize(("fault", "expected"), LASTING.values(), ids=LASTING)
def test_a_fault_that_lasts_is_a_typed_error_and_all_goes_on_once_it_is_lifted(
    site: Site, fault: Fault, expected: type[FlussError]
) -> None:
    site.append(0, 1000)
    site.proxy.plan(apis.FETCH_LOG, fault)
    with pytest.raises(expected, match="FetchLog"):
        site.rows()
    assert site.rows() == list(range(1000))
    site.proxy.plan(apis.PRODUCE_LOG, fault)
    with pytest.raises(expected, match="ProduceLog"):
        site.append(1000, 10)
    assert site.rows() == list(range(1010))  # stored, though the answer was lost
    site.append(1010, 10)
    assert site.rows() == list(range(1020))


@pytest.mark.parametrize(
    ("fault", "expected"),
    [(faults.hang, RequestTimeOut), (faults.close, NetworkError), (faults.cut, NetworkError)],
    ids=["hang", "close", "cut"],
)
def test_a_change_of_unknown_outcome_is_made_once(
    site: Site, fault: Fault, expected: type[FlussError]
) -> None:
    name = f"{site.path.database}_new"
    site.proxy.plan(apis.CREATE_DATABASE, fault)
    with pytest.raises(expected, match="CreateDatabase to fluss://"):
        site.client.admin.create_database(name)
    with pytest.raises(DatabaseAlreadyExist):
        site.client.admin.create_database(name)


@pytest.mark.parametrize("all_servers", [True, False])
def test_another_version_is_refused_until_it_is_replaced(site: Site, all_servers: bool) -> None:
    assert site.path.database in site.client.admin.list_databases()
    if all_servers:
        site.proxy.drop()
    site.proxy.plan_always(apis.API_VERSIONS, faults.other_version)
    with pytest.raises(UnsupportedVersion, match="another version|offers versions"):
        site.append(0, 10)
    site.proxy.mend()
    site.proxy.drop()
    site.append(0, 1000)
    assert site.rows() == list(range(1000))


def test_a_leader_that_is_gone_during_a_fetch_and_comes_again(site: Site, fluss: RealFluss) -> None:
    """What it really takes: the leader dies while its log is being read, and is elected anew."""
    for part in range(10):
        site.append(part * 1000, 1000)
    wait_for_checkpoint(fluss, site.client, site.path)
    reader = site.client.log_reader(site.path)
    rows = reader.read(TableBucket(reader.info.table_id, None, 0))
    site.proxy.plan(apis.FETCH_LOG, *[faults.error(12)] * 2)
    found = next(rows).batch["id"].to_pylist()
    fluss.kill_tablet()
    fluss.start_tablet()
    for records in rows:
        found += records.batch["id"].to_pylist()
    assert found == list(range(10_000))
    site.append(10_000, 10)
    assert site.rows() == list(range(10_010))


@pytest.mark.long
def test_a_port_that_was_taken_meanwhile_is_named_and_the_server_starts_later(
    fluss: RealFluss,
) -> None:
    for kill, start, port in (
        (fluss.kill_tablet, fluss.start_tablet, fluss.tablet_port),
        (fluss.kill_coordinator, fluss.start_coordinator, fluss.coordinator_port),
    ):
        kill()
        with (
            socket.create_server(("127.0.0.1", port)),
            pytest.raises(RealFlussNotStarted, match=f"another process uses port {port} of the "),
        ):
            start()
        start()


@pytest.mark.long
def test_servers_end_although_their_watchdog_has_died(fluss: RealFluss) -> None:
    watchdog = fluss._watchdog
    assert watchdog is not None
    os.kill(watchdog.pid, signal.SIGKILL)
    watchdog.wait(30)
    fluss.kill_tablet()
    fluss.start_tablet()
    assert fluss._watchdog is not watchdog
    fluss._watchdog.kill()  # type: ignore[union-attr]
    fluss.stop()
    with finding(), pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", fluss.coordinator_port), 10)
    fluss.start()
