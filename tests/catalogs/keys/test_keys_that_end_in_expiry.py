"""The files of expired snapshots are deleted with keys by prefix, which end meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sluice.clock import SystemClock
from sluice.driver.lakes.jvm import Jvm
from sluice.lake.iceberg.catalog.loaded_table import LakeOptions, LoadedTable
from sluice.lake.iceberg.upkeep.snapshot_expiry import expire_snapshots
from sluice.model import TablePath
from sluice.rounds.values.expiry import Expired, ExpiryRule
from tests.support.catalog_servers.iam_s3 import IamS3
from tests.support.catalogs.iceberg_client import IcebergClient, opened
from tests.support.catalogs.servers import vended_by_prefix

pytestmark = pytest.mark.long
LIFE_S = 12
SNAPSHOTS = 61
MONTH_MS = 30 * 86_400_000


@pytest.fixture
def client(store: IamS3, s3_jvm: Jvm) -> Iterator[IcebergClient]:
    with vended_by_prefix(store, LIFE_S) as catalog, opened(s3_jvm, catalog.options) as client:
        yield client


def expire(client: IcebergClient, jvm: Jvm, store: IamS3, name: str, delay_s: float) -> Expired:
    """Expires all snapshots of a table but the newest.

    :param delay_s: of each request for metadata, from the commit on.
    """
    java = client.load(name)
    path = TablePath(*name.split("."))
    loaded = LoadedTable(jvm.gateway, path, java, lambda: client.load(name), LakeOptions({}))
    main = int(java.currentSnapshot().snapshotId())
    rule = ExpiryRule(SystemClock().now_ms() + MONTH_MS, 1, main, frozenset({main}))

    @contextmanager
    def then_slow() -> Iterator[None]:
        yield
        store.delay_metadata(delay_s)

    try:
        return expire_snapshots(jvm.gateway, loaded, path, rule, then_slow)
    finally:
        store.delay_metadata(0)


def filled(client: IcebergClient, name: str) -> list[str]:
    """Makes a table of many snapshots; returns the paths of their manifest lists."""
    client.create(name)
    for _ in range(SNAPSHOTS):
        client.load(name).newAppend().commit()  # with new keys
    snapshots = client.load(name).snapshots()
    return [str(one.manifestListLocation()).removeprefix("s3://") for one in snapshots]


def kept(store: IamS3, paths: list[str]) -> list[str]:
    found = store.file_system().get_file_info(paths)
    return [one.path for one in found if one.is_file]


def test_keys_end_while_files_are_deleted(client: IcebergClient, s3_jvm: Jvm, store: IamS3) -> None:
    """Each file takes some requests, with the keys that its deletion began with."""
    lists = filled(client, "shop.many")
    before = len(store.requests())
    done = expire(client, s3_jvm, store, "shop.many", 0.4)
    assert (done.snapshots, done.files, done.notes) == (SNAPSHOTS - 1, SNAPSHOTS - 1, ())
    assert len(kept(store, lists)) == 1
    seen = [one for one in store.requests()[before:] if one["method"] == "DELETE"]
    assert len({one["key"] for one in seen}) > 1, "keys were renewed meanwhile"


def test_one_file_cannot_be_deleted(client: IcebergClient, s3_jvm: Jvm, store: IamS3) -> None:
    lists = filled(client, "shop.one")
    guarded = lists[3]
    store.keep(guarded.rpartition("/")[2])
    try:
        done = expire(client, s3_jvm, store, "shop.one", 0)
    finally:
        store.keep("")
    assert {*kept(store, lists)} == {guarded, lists[-1]}
    assert (done.snapshots, done.files) == (SNAPSHOTS - 1, SNAPSHOTS - 2)
    [note] = done.notes
    count = SNAPSHOTS - 1
    assert note.startswith(f"1 of {count} files of expired lake snapshots could not be deleted: ")
    assert guarded in note
    assert "ACCESS_DENIED" in note
