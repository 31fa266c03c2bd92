"""A catalog that hides earlier snapshots and tags (Nessie): what its property does not prove."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sluice.catalog_options import CATALOG_NAME
from sluice.errors import LakeRolledBack, LakeTableMismatch
from sluice.lake.iceberg.catalog.java import java_map
from sluice.lake.iceberg.snapshots.tiering_note import PROPERTY
from tests.support.catalog_servers.iam_s3 import IamS3
from tests.support.catalogs.foreign_writer import foreign_writer
from tests.support.catalogs.iceberg_client import IcebergClient, opened
from tests.support.catalogs.jdbc import sqlite
from tests.support.catalogs.nessie import nessie
from tests.support.catalogs.operations import check, fill, foreign_commit, killed, numbers_table
from tests.support.catalogs.rounds import RoundSite, round_site

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def site(store: IamS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoundSite]:
    folder = tmp_path_factory.mktemp("rounds")
    with nessie(store) as catalog, round_site(catalog, folder) as running:
        yield running


@pytest.fixture
def client(site: RoundSite) -> Iterator[IcebergClient]:
    with opened(site.jvm, site.reader_options, CATALOG_NAME) as running:
        yield running


def replace(client: IcebergClient, path: str) -> None:
    """CREATE OR REPLACE TABLE, with the properties of the old table, as Spark does it."""
    table = client.load(path)
    builder = client.catalog.buildTable(client._name(path), table.schema())
    builder = builder.withPartitionSpec(table.spec()).withSortOrder(table.sortOrder())
    transaction = builder.withProperties(table.properties()).replaceTransaction()
    transaction.newAppend().commit()
    transaction.commitTransaction()


def test_a_table_that_was_replaced_has_lost_its_rows(site: RoundSite, client: Any) -> None:
    path = numbers_table(site)
    fill(site, path, 0, 10)
    site.tier(path)
    replace(client, str(path))
    assert client.load(str(path)).properties().containsKey(PROPERTY)
    assert site.rows(path, "id") == []
    fill(site, path, 10, 10)
    with pytest.raises(LakeRolledBack, match="sluice repair"):
        site.tier(path)
    assert site.rows(path, "id") == []
    assert "by a property: the catalog keeps no tags" in site.command("repair", str(path))
    site.command("repair", str(path), "--yes")  # they are gone, so copying them is no risk
    assert site.tier(path).rows == 10
    check(site, path, 20)


def test_it_has_sequence_numbers_whatever_format_is_asked_for(site: RoundSite, client: Any) -> None:
    """Iceberg's first format has none, and the property could not be judged by them."""
    name = client._name("shop.first")
    client.create("shop.second")  # and the namespace
    schema = client.load("shop.second").schema()
    asked = java_map(site.jvm.gateway, {"format-version": "1"})
    client.catalog.buildTable(name, schema).withProperties(asked).create().newAppend().commit()
    table = client.load("shop.first")
    assert table.operations().current().formatVersion() == 2
    assert table.currentSnapshot().sequenceNumber() == 1


def test_a_first_round_that_nothing_proves_is_not_copied_again(
    site: RoundSite, client: Any
) -> None:
    """Its driver dies before it registers. Fluss's own tiering sets no property, for one."""
    path = numbers_table(site)
    fill(site, path, 0, 10)
    killed(site, path, "fluss_commit")
    client.load(str(path)).updateProperties().remove(PROPERTY).commit()
    foreign_commit(site, path)
    with pytest.raises(LakeTableMismatch, match="commits that the catalog hides"):
        site.tier(path)
    assert len(site.rows(path, "id")) == 10
    assert "Tier to another lake" in site.command("repair", str(path))


def test_another_writer_adds_and_deletes_rows(site: RoundSite) -> None:
    path = numbers_table(site)
    fill(site, path, 0, 10)
    site.tier(path)
    with foreign_writer(site, path) as other:
        other.append([-1, -2])
        other.delete([-1, 3])
    fill(site, path, 10, 10)
    assert site.tier(path).rows == 10
    kept = [-2, *(one for one in range(20) if one != 3)]
    assert [row[0] for row in site.rows(path, "id")] == kept


def test_another_writer_deletes_all_rows(site: RoundSite) -> None:
    """One commit behind it tells the table apart from a replaced one, two do not."""
    path, other_path = numbers_table(site), numbers_table(site)
    for each in (path, other_path):
        fill(site, each, 0, 10)
        site.tier(each)
        with foreign_writer(site, each) as other:
            other.delete_all()
        fill(site, each, 10, 10)
    assert site.tier(path).rows == 10
    assert [row[0] for row in site.rows(path, "id")] == [*range(10, 20)]
    foreign_commit(site, other_path)
    with pytest.raises(LakeRolledBack, match="sluice repair"):
        site.tier(other_path)


def test_another_writer_deletes_all_rows_by_key(site: RoundSite) -> None:
    """The deleted rows still count, so it is not taken for a replaced table."""
    path = numbers_table(site)
    fill(site, path, 0, 10)
    site.tier(path)
    with foreign_writer(site, path) as other:
        other.delete(range(10))
    foreign_commit(site, path)
    fill(site, path, 10, 10)
    assert site.tier(path).rows == 10
    assert [row[0] for row in site.rows(path, "id")] == [*range(10, 20)]


def test_the_property_of_another_table_proves_nothing(site: RoundSite, client: Any) -> None:
    path, other = numbers_table(site), numbers_table(site)
    for each in (path, other):
        fill(site, each, 0, 10)
        site.tier(each)
    table = client.load(str(path))
    note = client.load(str(other)).properties().get(PROPERTY)
    table.updateProperties().set(PROPERTY, note).commit()
    foreign_commit(site, path)
    fill(site, path, 10, 10)
    with pytest.raises(LakeRolledBack):
        site.tier(path)
    assert len(site.rows(path, "id")) == 10
    # The rows may all be there, so nothing copies them again.
    told = site.command("repair", str(path))
    assert "or the catalog hides them" in told
    assert "by a property: the catalog keeps no tags" not in told, "it is of another table"
    assert "\nadopt" in told
    assert "\nretier" not in told
    assert "nothing was changed" in told
    site.command("repair", str(path), "--by", "adopt", "--yes")
    check(site, path, 20)


def test_a_catalog_that_keeps_tags_has_the_property_once(store: IamS3, tmp_path: Any) -> None:
    with (
        sqlite(store) as catalog,
        round_site(catalog, tmp_path) as site,
        opened(site.jvm, site.reader_options, CATALOG_NAME) as client,
    ):
        path = numbers_table(site)
        for number, is_noted in enumerate([True, False, False]):
            fill(site, path, 10 * number, 10)
            site.tier(path)
            properties = client.load(str(path)).properties()
            assert bool(properties.containsKey(PROPERTY)) is is_noted
        check(site, path, 30)
