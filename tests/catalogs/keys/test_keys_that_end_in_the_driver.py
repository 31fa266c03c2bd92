"""Keys of some seconds end while the driver itself works with Iceberg's own FileIO."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from sluice.catalog_options import CATALOG_NAME
from sluice.clock import SystemClock
from sluice.driver.lakes.jvm import Jvm
from sluice.errors import LakeNotWritable
from sluice.lake.iceberg.catalog.java import lake_errors
from sluice.lake.iceberg.catalog.loaded_table import LakeOptions, LoadedTable
from sluice.lake.iceberg.commit.new_files import to_iceberg_files
from sluice.lake.iceberg.lake import IcebergLake
from sluice.model import TablePath
from sluice.rounds.values.lake_files import DataFile
from tests.support.catalog_servers.iam_s3 import IamS3
from tests.support.catalogs.iceberg_client import IcebergClient, opened
from tests.support.catalogs.oauth_rest import RestSettings, rest_server
from tests.support.catalogs.operations import Meanwhile, check, fill, numbers_table
from tests.support.catalogs.rounds import RoundSite
from tests.support.catalogs.servers import LIFE_S
from tests.support.catalogs.vending import Vending
from tests.support.statuses.lease_parts import ManualClock

pytestmark = pytest.mark.long


@pytest.fixture
def client(vending: RoundSite) -> Iterator[IcebergClient]:
    with opened(vending.jvm, vending.reader_options, CATALOG_NAME) as client:
        yield client


@pytest.fixture
def lake(vending: RoundSite) -> Iterator[IcebergLake]:
    with closing(IcebergLake(vending.jvm.gateway, vending.config.datalake.iceberg)) as lake:
        yield lake


@contextmanager
def slow_metadata(store: IamS3, delay_s: float) -> Iterator[None]:
    """Delays each request for metadata. The block must last longer than its first keys."""
    began_s = time.monotonic()
    store.delay_metadata(delay_s)
    try:
        yield
    finally:
        store.delay_metadata(0)
    assert time.monotonic() - began_s > LIFE_S


def test_before_the_footers_of_new_files_are_read(vending: RoundSite) -> None:
    path = numbers_table(vending)
    fill(vending, path, 0, 5)
    wait = Meanwhile("lake_commit", lambda: time.sleep(LIFE_S))
    assert vending.tier(path, progress=wait).rows == 5
    check(vending, path, 5)


def test_while_the_footers_of_new_files_are_read(
    vending: RoundSite, store: IamS3, lake: IcebergLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluice.lake.iceberg.commit.new_files._BATCH_FILES", 8)
    path = numbers_table(vending)
    fill(vending, path, 0, 5)
    vending.tier(path)
    table = lake.load(path)
    assert table is not None
    stored = next(one for one in table.stored_files() if one.name.endswith(".parquet"))
    file = DataFile(stored.path, 1, stored.size_bytes, ())
    began_s = time.monotonic()
    store.delay(1)
    try:
        gateway, spec = vending.jvm.gateway, table._parts.spec()
        found = to_iceberg_files(gateway, table._loaded, [file] * 60, spec)
    finally:
        store.delay(0)
    assert time.monotonic() - began_s > LIFE_S
    assert len(found.data) == 60


def test_valid_keys_stay_in_use_if_the_catalog_gives_no_new_ones(
    store: IamS3, s3_jvm: Jvm, caplog: pytest.LogCaptureFixture
) -> None:
    life_ms = 600_000
    settings = RestSettings(vending=Vending.CREDENTIALS, key_life_s=life_ms // 1000)
    with rest_server(store, settings) as server, opened(s3_jvm, server.options) as client:
        clock = ManualClock()
        clock.ms = SystemClock().now_ms()  # the store gives keys by its own clock
        path = TablePath("shop", "orders")
        java = client.create(str(path))
        asked = []

        def load() -> Any:
            asked.append(clock.ms)
            return client.load(str(path))

        options = LakeOptions(server.options, clock=clock)
        loaded = LoadedTable(s3_jvm.gateway, path, java, load, options)
        assert client.drop(str(path))
        clock.ms += life_ms * 8 // 10
        assert not loaded.renew()
        assert "the keys of lake table shop.orders stay in use: NoSuchTable" in caplog.text
        assert not loaded.renew()
        assert len(asked) == 1, "it is not asked again at once"
        clock.ms += life_ms
        with pytest.raises(LakeNotWritable, match="read it: NoSuchTable"), lake_errors("read it"):
            loaded.renew()


def test_while_references_are_read(vending: RoundSite, store: IamS3, lake: IcebergLake) -> None:
    path = numbers_table(vending)
    for start in range(0, 50, 5):
        fill(vending, path, start, 5)
        vending.tier(path)
    table = lake.load(path)
    assert table is not None
    wanted = next(one.name for one in table.stored_files() if one.name.endswith(".parquet"))
    references = table.references({wanted, "not-there.parquet"})
    with slow_metadata(store, 0.6):
        assert references.read() == {wanted}
    assert len(references.metadata_names) == 20, "a list and a manifest of each round"


def test_while_earlier_metadata_files_are_read(
    client: IcebergClient, store: IamS3, lake: IcebergLake
) -> None:
    """A file that cannot be read is skipped, so the way to a snapshot would seem to be lost."""
    path = TablePath("shop", "expired")
    client.create(str(path))
    ids = []
    for _ in range(12):
        java = client.load(str(path))  # with new keys
        java.newAppend().commit()
        ids.append(java.currentSnapshot().snapshotId())
        if len(ids) > 1:
            java.expireSnapshots().expireSnapshotId(ids[-2]).cleanExpiredFiles(False).commit()
    table = lake.load(path)
    assert table is not None
    with slow_metadata(store, 0.6):
        history = table.history(ids[0])
    assert {*history.snapshots} == {ids[-1]}
    assert {*history.expired} == {*ids[:-1]}
