"""Full scans of a bucket by the client: whole and of one moment, or given up with a word."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluice.client import Client, KvScanner, connect
from sluice.client.connection.addresses import Address
from sluice.config import ClientConfig, ServerConfig
from sluice.errors import (
    InvalidScanRequest,
    NonPrimaryKeyTable,
    ScanRestarted,
    SchemaNotExist,
    TableNotExist,
    TooManyScanners,
    UnsupportedVersion,
)
from sluice.model import Column, Schema, TableBucket, TableDescriptor, TablePath
from sluice.model import types as t
from sluice.server.cluster import EmbeddedCluster
from sluice.server.tablet.kv.scan_manager import ScannerManager
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from tests.support.network import proxy as faults
from tests.support.network.own_ports import OwnPorts
from tests.support.network.proxy import Answer, Fault, Proxy
from tests.support.tables.keyed_orders import (
    PATH,
    Row,
    changes_of,
    create,
    keys,
    replayed,
    rows,
    tuples,
)

ORDERS = [(number, f"item {number}", number) for number in range(100)]
SMALL = 200
"""Bytes of a batch of a few rows."""


class StandingClock:
    """All time stands until the test moves it."""

    def __init__(self) -> None:
        self.ms = 1_750_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return self.ms / 1000

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody sleeps here")


class Site:
    """A server with a table, and clients of it."""

    def __init__(self, folder: Path, scheme: str) -> None:
        self.clock = StandingClock()
        self._config: dict[str, Any] = {
            "data_dir": str(folder / "data"),
            "kv_snapshot_interval_ms": 0,
            "kv_scanner_expiration_interval_ms": 3_600_000,
            "kv_scanner_max_per_bucket": 2,
        }
        self._ports = OwnPorts(scheme)
        self.address = self._ports.address
        self.start()
        self.writer = self.client()
        self.writer.admin.create_database(PATH.database)

    def start(self) -> None:
        config = ServerConfig(listen=self._ports.listen(), **self._config)
        self.cluster = EmbeddedCluster(config, self.clock)
        assert self.cluster.start() == self.address

    def restart(self) -> None:
        """Stops it and starts it on the same port."""
        self.cluster.stop()
        self.start()

    def close(self) -> None:
        self.cluster.stop(0)
        self._ports.close()

    def client(self, address: str = "", **settings: Any) -> Client:
        settings = {"scan_max_bytes": SMALL, **settings}
        return connect(ClientConfig(bootstrap=address or self.address, **settings))

    def put(self, *orders: Row) -> None:
        with self.writer.kv_writer(PATH) as writer:
            writer.upsert(rows(*orders))

    def bucket(self, number: int = 0) -> TableBucket:
        return TableBucket(self.writer.admin.table_info(PATH).table_id, None, number)

    @property
    def scanners(self) -> ScannerManager:
        assert self.cluster._parts is not None
        return self.cluster._parts.scanners

    def snapshots_open(self) -> int:
        """RocksDB's own count."""
        assert self.cluster._parts is not None
        with self.cluster._parts._kv.leading(self.bucket()) as tablet:
            return tablet.snapshots_open()

    @contextmanager
    def scan(self, **settings: Any) -> Iterator[KvScanner]:
        with self.client(**settings) as client, client.scan_kv(PATH, self.bucket()) as scan:
            yield scan


@pytest.fixture(params=["grpc", "fluss"])
def site(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    site = Site(tmp_path, request.param)
    yield site
    site.writer.close()
    site.close()


def read(scan: KvScanner) -> list[Row]:
    return [row for batch in scan.batches() for row in tuples(batch)]


# -- rows


def test_all_rows_come_once_in_small_batches_and_in_large_ones(site: Site) -> None:
    create(site.writer)
    site.put(*ORDERS)
    for settings in ({}, {"scan_max_bytes": 1 << 20}, {"scan_max_bytes": 1}):
        with site.scan(**settings) as scan:
            assert scan.log_offset == 100
            assert scan.info.path == PATH
            assert read(scan) == ORDERS
            assert read(scan) == []
    assert site.scanners.open_scans == site.snapshots_open() == 0


def test_an_empty_bucket_has_an_offset_and_no_batch(site: Site) -> None:
    create(site.writer)
    with site.scan() as scan:
        assert (scan.log_offset, read(scan)) == (0, [])
    site.put(*ORDERS[:2])
    with site.writer.kv_writer(PATH) as writer:
        writer.delete(keys(0, 1))
    with site.scan() as scan:
        assert (scan.log_offset, read(scan)) == (4, [])


def test_a_scan_and_the_changelog_behind_it_make_the_table(site: Site) -> None:
    create(site.writer)
    site.put(*ORDERS)
    with site.scan() as scan:
        site.put((3, "other", -3), (200, "new", 0))
        with site.writer.kv_writer(PATH) as writer:
            writer.delete(keys(4))
        found = read(scan)
        assert found == ORDERS
        reader = site.writer.log_reader(PATH)
        behind = changes_of(reader.read(site.bucket(), scan.log_offset))
    upserts = [("+I", row) for row in found]
    whole = {row[0]: row for row in read_again(site)}
    assert replayed(upserts + behind) == whole
    assert whole[3] == (3, "other", -3)
    assert 4 not in whole


def read_again(site: Site) -> list[Row]:
    with site.scan() as scan:
        return read(scan)


def test_a_limit_bounds_the_rows(site: Site) -> None:
    create(site.writer)
    site.put(*ORDERS)
    with site.client() as client:
        for limit in (1, 9, 100, 1000):
            with client.scan_kv(PATH, site.bucket(), limit=limit) as scan:
                assert read(scan) == ORDERS[:limit]
        for limit in (0, -1):
            with pytest.raises(InvalidScanRequest, match="use 1 row or more"):
                client.scan_kv(PATH, site.bucket(), limit=limit)
    assert site.snapshots_open() == 0


def test_rows_of_older_schemas_come_in_that_of_the_table(site: Site) -> None:
    create(site.writer)
    site.put((1, "a", 1))
    with site.client() as client:
        before = client.scan_kv(PATH, site.bucket())
        site.writer.admin.add_columns(PATH, [Column("note", t.STRING, -1)])
        with site.writer.kv_writer(PATH) as writer:
            writer.upsert(rows((2, "b", 2)).append_column("note", pa.array(["x"])))
        with client.scan_kv(PATH, site.bucket()) as scan:
            assert read(scan) == [(1, "a", 1, None), (2, "b", 2, "x")]
        with before as scan, pytest.raises(SchemaNotExist):
            read(scan)


def test_what_cannot_be_scanned_says_why(site: Site) -> None:
    create(site.writer)
    log = TablePath(PATH.database, "log")
    schema = Schema((Column("id", t.BIGINT, 0),), (), 0)
    site.writer.admin.create_table(log, TableDescriptor(schema))
    with site.client() as client:
        with pytest.raises(NonPrimaryKeyTable, match="read its log"):
            client.scan_kv(log, site.bucket())
        with pytest.raises(TableNotExist, match="does not belong to table"):
            client.scan_kv(PATH, TableBucket(99, None, 0))
        scan = client.scan_kv(PATH, site.bucket())
        with pytest.raises(RuntimeError, match="inside a with block"):
            next(scan.batches())
        with scan:
            pass
        with pytest.raises(RuntimeError, match="inside a with block"):
            scan.log_offset  # noqa: B018


# -- sessions


def until(happened: Callable[[], bool]) -> None:
    waiting = threading.Event()
    for _ in range(6_000):
        if happened():
            return
        waiting.wait(0.01)
    raise AssertionError("it did not happen in a minute")


def expired(site: Site) -> bool:
    """Whether the scan has expired, now that it is late; a call under way may keep it once more."""
    site.clock.ms += 600_001
    return site.scanners.expire() > 0


def test_who_leaves_early_leaves_nothing_behind(site: Site) -> None:
    create(site.writer)
    site.put(*ORDERS)
    with site.scan() as scan:
        batches = scan.batches()
        assert next(batches).num_rows < 20
    until(lambda: site.scanners.open_scans == 0)
    assert site.snapshots_open() == 0
    with pytest.raises(RuntimeError, match="inside a with block"):
        next(batches)


@pytest.mark.parametrize("how", ["expired", "restarted", "closed"])
def test_a_lost_session_is_said_and_no_row_of_another_moment_comes(site: Site, how: str) -> None:
    create(site.writer)
    site.put(*ORDERS)
    with site.scan() as scan:
        batches = scan.batches()
        found = tuples(next(batches))
        if how == "expired":
            until(lambda: expired(site))
        elif how == "restarted":
            site.restart()
        else:
            assert site.cluster._parts is not None
            with site.cluster._parts._replicas.exclusive(site.bucket()):
                site.cluster._parts._kv._lost(site.bucket())
        with site.client() as client, client.kv_writer(PATH) as writer:
            writer.upsert(rows(*[(number, "other", -1) for number in range(100)]))
        with pytest.raises(ScanRestarted, match="Discard the .* and start a new scan") as lost:
            for batch in batches:
                found += tuples(batch)
    assert found == ORDERS[: len(found)]
    assert len(found) < len(ORDERS)
    assert lost.value.details == {
        "rows": len(found),
        "log_offset": 100,
        "bucket": str(site.bucket()),
    }
    assert lost.value.retryable
    assert [row[1] for row in read_again(site)] == ["other"] * 100


def test_a_slow_consumer_keeps_his_scan(site: Site) -> None:
    create(site.writer)
    orders = [(number, "x", number) for number in range(20_000)]  # so many keep it for minutes
    site.put(*orders)

    def called() -> bool:
        """Whether the session was used since the clock was moved."""
        return site.clock.monotonic_s() in site.scanners._sessions._used_s.values()

    with site.scan(scan_keep_alive_ms=20) as scan:
        batches = scan.batches()
        found = tuples(next(batches))
        for _ in range(3):
            site.clock.ms += 590_000
            until(called)
            assert site.scanners.expire() == 0
        assert site.scanners.open_scans == 1
        scan._prefetch._batch_bytes = 1 << 20  # the rest in few batches
        for batch in batches:
            found += tuples(batch)
    assert sorted(found) == orders
    assert site.snapshots_open() == 0


def test_a_consumer_that_is_too_slow_for_his_server_is_told(site: Site) -> None:
    create(site.writer)
    site.put(*ORDERS)
    with site.scan(scan_keep_alive_ms=3_600_000) as scan:
        batches = scan.batches()
        next(batches)
        until(lambda: expired(site))
        with pytest.raises(ScanRestarted, match="ScannerExpired: .* it was idle"):
            list(batches)


def test_a_scan_waits_until_another_one_has_ended(site: Site) -> None:
    create(site.writer)
    site.put(*ORDERS)
    with site.client(retry_timeout_ms=1) as hasty, site.scan() as first, site.scan():
        with pytest.raises(TooManyScanners), hasty.scan_kv(PATH, site.bucket()):
            raise AssertionError("two are as many as may be")
        found: list[Row] = []
        with site.client(retry_timeout_ms=120_000) as client:
            third = client.scan_kv(PATH, site.bucket())

            def scan() -> None:
                with third:
                    found.extend(read(third))

            thread = threading.Thread(target=scan)
            thread.start()
            assert read(first) == ORDERS
            thread.join(60)
            assert found == ORDERS


# -- answers that break on the way


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[tuple[Site, Proxy, str]]:
    site = Site(tmp_path, "fluss")
    reply: Any = site.writer._connection.call_coordinator(
        apis.GET_METADATA, pb.MetadataRequest(), lambda reply: reply
    )
    ports = [reply.coordinator_server.port, *(node.port for node in reply.tablet_servers)]
    with Proxy(ports) as proxy:
        yield site, proxy, f"fluss://127.0.0.1:{proxy.ports[Address.parse(site.address).port]}"
    site.writer.close()
    site.close()


def passed(client: Any, answer: Answer) -> bool:
    """No fault at all."""
    client.sendall(answer.frame)
    return True


@pytest.mark.parametrize("fault", [faults.close, faults.cut, faults.error(1)])
@pytest.mark.parametrize("at", ["first", "middle", "last"])
def test_an_answer_that_is_lost_is_asked_for_again(
    proxied: tuple[Site, Proxy, str], fault: Fault, at: str
) -> None:
    site, proxy, address = proxied
    create(site.writer)
    site.put(*ORDERS)
    with site.scan() as scan:
        calls = len(list(scan.batches()))
    before = {"first": 0, "middle": calls // 2, "last": calls - 1}[at]
    proxy.plan(apis.SCAN_KV, *[passed] * before, fault)
    with site.scan(address=address) as scan:
        assert read(scan) == ORDERS
    assert proxy.planned == 0
    assert site.scanners.open_scans == site.snapshots_open() == 0


def without_scans(client: Any, answer: Answer) -> bool:
    """The answer to ApiVersions of a Fluss that does not know ScanKv."""
    reply = pb.ApiVersionsResponse.FromString(answer.body)
    kept = [api for api in reply.api_versions if api.api_key != apis.SCAN_KV.key]
    reply = pb.ApiVersionsResponse(api_versions=kept, server_type=reply.server_type)
    client.sendall(Answer(answer.request_id, reply.SerializeToString()).frame)
    return True


def test_a_server_without_the_call_is_an_unsupported_version(
    proxied: tuple[Site, Proxy, str],
) -> None:
    site, proxy, address = proxied
    create(site.writer)
    proxy.plan_always(apis.API_VERSIONS, without_scans)
    with pytest.raises(UnsupportedVersion, match="ScanKv"), site.scan(address=address):
        raise AssertionError("it has no scans")
