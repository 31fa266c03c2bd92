"""A table is dropped and created again while it is in use, with keys that are due."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyarrow import fs

from sluice.clock import SystemClock
from sluice.driver.lakes.jvm import Jvm
from sluice.errors import LakeNotWritable, LakeTableMismatch
from sluice.lake.iceberg.catalog.java import lake_errors
from sluice.lake.iceberg.catalog.loaded_table import LakeOptions, LoadedTable
from sluice.lake.storage.table_storage import RENEW_AFTER
from sluice.model import TablePath
from tests.support.catalog_servers.aws_bundle import jars_with_s3
from tests.support.catalog_servers.catalog import Catalog
from tests.support.catalog_servers.iam_s3 import IamS3
from tests.support.catalogs.iceberg_client import opened
from tests.support.catalogs.oauth_rest import RestSettings, rest_server
from tests.support.catalogs.operations import Meanwhile, fill, numbers_table
from tests.support.catalogs.rounds import round_site
from tests.support.catalogs.vending import Vending
from tests.support.statuses.lease_parts import ManualClock

pytestmark = pytest.mark.long
LIFE_S = 600
ROUND_LIFE_S = 20
PATH = TablePath("shop", "orders")


@pytest.mark.parametrize("due", [False, True])
def test_it_is_not_taken_for_the_first_one(store: IamS3, s3_jvm: Jvm, due: bool) -> None:
    settings = RestSettings(vending=Vending.CREDENTIALS, key_life_s=LIFE_S)
    with rest_server(store, settings) as server, opened(s3_jvm, server.options) as client:
        clock = ManualClock()
        clock.ms = SystemClock().now_ms()  # the store gives keys by its own clock
        options = LakeOptions(server.options, clock=clock)
        java = client.create(str(PATH))
        loaded = LoadedTable(s3_jvm.gateway, PATH, java, lambda: client.load(str(PATH)), options)
        first = loaded.files.newest()
        clock.ms += LIFE_S * 1000
        assert loaded.renew(), "keys of the same table are taken"
        second = loaded.files.newest()
        assert second.read_ms > first.read_ms

        assert client.drop(str(PATH))
        client.create(str(PATH))
        if not due:
            with (
                pytest.raises(LakeNotWritable, match="UUID does not match"),
                lake_errors("read the table"),
            ):
                loaded.refresh()
            return
        clock.ms += LIFE_S * 1000
        before = loaded.java
        for act in (loaded.refresh, loaded.renew):
            with pytest.raises(LakeTableMismatch, match="dropped and created again: its uuid was"):
                act()
        assert loaded.java is before
        assert loaded.files.newest() is second, "keys of another table may be for another place"


def test_the_files_of_a_first_round_do_not_get_into_it(store: IamS3, tmp_path: Path) -> None:
    """No snapshot of either table shows the difference: neither has one."""
    settings = RestSettings(vending=Vending.CREDENTIALS, key_life_s=ROUND_LIFE_S)
    with (
        rest_server(store, settings) as server,
        round_site(Catalog(server.options, jars_with_s3()), tmp_path) as site,
        opened(site.jvm, server.options) as client,
    ):
        path = numbers_table(site)
        fill(site, path, 0, 5)

        def swap() -> None:
            old = client.load(str(path))
            schema, spec = old.schema(), old.spec()
            client.drop(str(path))
            name = site.jvm.gateway.jvm.org.apache.iceberg.catalog.TableIdentifier.parse(str(path))
            client.catalog.buildTable(name, schema).withPartitionSpec(spec).create()
            time.sleep(ROUND_LIFE_S * RENEW_AFTER)

        with pytest.raises(LakeTableMismatch, match="dropped and created again"):
            site.tier(path, progress=Meanwhile("lake_commit", swap))
        new = client.load(str(path))
        assert new.currentSnapshot() is None
        below = fs.FileSelector(new.location().removeprefix("s3://"), recursive=True)
        found = store.file_system().get_file_info(below)
        assert not [one.path for one in found if one.path.endswith(".parquet")]
