"""Keys of some seconds end while the driver itself works with Iceberg's own FileIO."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from sluice.catalog_options import CATALOG_NAME
from sluice.lake.iceberg_catalog import IcebergLake
from sluice.model import TablePath
from sluice.testing.catalogs.aws_bundle import jars_with_s3
from sluice.testing.catalogs.catalog import Catalog
from sluice.testing.catalogs.iam_s3 import IamS3
from tests.support.catalogs.iceberg_client import IcebergClient, opened
from tests.support.catalogs.oauth_rest import RestSettings, rest_server
from tests.support.catalogs.operations import Meanwhile, check, fill, numbers_table
from tests.support.catalogs.rounds import RoundSite, round_site
from tests.support.catalogs.vending import Vending

pytestmark = pytest.mark.long
LIFE_S = 8


@pytest.fixture(scope="module")
def site(store: IamS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoundSite]:
    settings = RestSettings(
        vending=Vending.CREDENTIALS, key_life_s=LIFE_S, below=("", "/data", "/metadata")
    )
    with rest_server(store, settings) as server:
        catalog = Catalog(server.options, jars_with_s3())
        with round_site(catalog, tmp_path_factory.mktemp("rounds")) as running:
            yield running


@pytest.fixture
def client(site: RoundSite) -> Iterator[IcebergClient]:
    with opened(site.jvm, site.reader_options, CATALOG_NAME) as client:
        yield client


@pytest.fixture
def lake(site: RoundSite) -> Iterator[IcebergLake]:
    with closing(IcebergLake(site.jvm.gateway, site.config.datalake.iceberg)) as lake:
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


def test_before_the_footers_of_new_files_are_read(site: RoundSite) -> None:
    path = numbers_table(site)
    fill(site, path, 0, 5)
    wait = Meanwhile("lake_commit", lambda: time.sleep(LIFE_S))
    assert site.tier(path, progress=wait).rows == 5
    check(site, path, 5)


def test_while_references_are_read(site: RoundSite, store: IamS3, lake: IcebergLake) -> None:
    path = numbers_table(site)
    for start in range(0, 50, 5):
        fill(site, path, start, 5)
        site.tier(path)
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
