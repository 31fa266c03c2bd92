"""What keeps a lake table healthy on every catalog: in its rounds, and by commands."""

from __future__ import annotations

import json

from sluice.catalog_options import CATALOG_NAME, sql_names
from sluice.lake.iceberg.catalog.java import java_errors
from sluice.model import TablePath
from tests.support.catalogs.iceberg_client import opened
from tests.support.catalogs.operations import (
    check,
    files_of_a_killed_driver,
    fill,
    foreign_commit,
    numbers_table,
)
from tests.support.catalogs.rounds import RoundSite
from tests.support.tables.keyed_stock import Stock, stock_table

_ROUNDS_MAX = 40


class Refused(Exception):
    """Sluice says that it does not do this, and why."""


def compaction(site: RoundSite) -> None:
    """A round compacts its table when one asks for it, also small files of earlier rounds."""
    path = numbers_table(site)
    for start in (0, 10, 20, 30):
        fill(site, path, start, 10)
        site.tier(path)
    site.client.statuses.request_compaction(path)
    fill(site, path, 40, 10)
    result = site.tier(path)
    assert result.rows == 10
    assert 2 <= result.files_compacted <= 4, "one of a bucket's own may stay"
    check(site, path, 50)


def expiry(site: RoundSite) -> None:
    """Rounds expire old snapshots of their table, as its properties say, and delete their files."""
    path = numbers_table(
        site,
        {"table.datalake.auto-expire-snapshot": "true"},
        {"iceberg.history.expire.max-snapshot-age-ms": "1"},
    )
    rows, expired, manifests = 0, 0, set[str]()
    while not expired:
        assert rows < _ROUNDS_MAX, "nothing has expired"
        fill(site, path, rows, 1)
        rows += 1
        shown = _manifest_lists(site, path)
        if rows > 2 and len(shown) == 1:  # the catalog shows one snapshot
            raise Refused(site.command("maintain", str(path)))
        manifests |= shown
        result = site.tier(path, max_round_ms=1)  # a snapshot stays for the length of two rounds
        if result.notes:
            raise Refused(*result.notes)
        expired = result.snapshots_expired
    left = _manifest_lists(site, path)
    assert len(left) == rows - expired
    with opened(site.jvm, site.reader_options, CATALOG_NAME) as client:
        io = client.load(str(path)).io()
        assert not any(io.newInputFile(file).exists() for file in manifests - left)
    check(site, path, rows)


def _manifest_lists(site: RoundSite, path: TablePath) -> set[str]:
    """The files of the snapshots that the table has; none before its first round."""
    if site.client.admin.lake_snapshot(path) is None:
        return set()
    with opened(site.jvm, site.reader_options, CATALOG_NAME) as client:
        return {one.manifestListLocation() for one in client.load(str(path)).snapshots()}


def maintain(site: RoundSite) -> None:
    """Equality deletes of earlier rounds become positions."""
    path = site.new_path("stock")
    site.client.admin.create_table(path, stock_table())
    stock = Stock(site.client, path, lambda query: [])
    stock.put({key: key for key in range(40)})
    site.tier(path)
    stock.put({key: -key for key in range(0, 40, 3)})
    stock.delete(4, 5)
    assert site.tier(path, position_lookup_bytes=0).deletes_as.startswith("equality deletes")
    done = site.command("maintain", str(path), "--yes", "--format", "json")
    [report] = json.loads(done)["tables"]
    assert report["before"]["equality_files"] > 0
    assert (report["after"]["equality_files"], report["notes"]) == (0, [])
    assert site.rows(path, "day", "id", "item", "n") == sorted(
        (*key, *row) for key, row in stock.held.items()
    )
    stock.put({1: 1})
    assert site.tier(path).outcome == "committed"


def clean(site: RoundSite) -> None:
    """The files of a driver that died before its commit are deleted, once another has committed."""
    path = files_of_a_killed_driver(site)
    [done] = json.loads(site.command("clean", str(path), "--yes", "--format", "json"))["tables"]
    if done["kept"]:
        raise Refused(*(one["reason"] for one in done["kept"]))
    dead = {one["path"] for one in done["dead"]}
    assert dead
    assert dead == set(done["removed"])
    with opened(site.jvm, site.reader_options, CATALOG_NAME) as client:
        io = client.load(str(path)).io()
        assert not any(io.newInputFile(file).exists() for file in dead)
    check(site, path, 10)


def doctor(site: RoundSite) -> None:
    """`sluice doctor` opens the catalog and writes a file as a round does."""
    path = numbers_table(site)
    fill(site, path, 0, 5)
    site.tier(path)
    seen = site.command("doctor")
    assert "Iceberg's client has opened the catalog" in seen
    assert "Sluice and Iceberg's client have written, read and deleted a file in" in seen
    assert f"table {path}" in seen


def repair(site: RoundSite) -> None:
    """A table is healthy, also behind another writer; a lake that was rolled back is restored."""
    path = numbers_table(site)
    ids = []
    for start in (0, 5):
        fill(site, path, start, 5)
        ids.append(site.tier(path).lake_snapshot_id)
    foreign_commit(site, path)
    assert "nothing to repair" in site.command("repair", str(path))
    with opened(site.jvm, site.reader_options, CATALOG_NAME) as client, java_errors():
        client.load(str(path)).manageSnapshots().rollbackTo(ids[0]).commit()
    assert len(site.rows(path, "id")) == 5
    site.command("repair", str(path), "--yes")
    fill(site, path, 10, 5)
    site.tier(path)
    check(site, path, 15)


def sql(site: RoundSite) -> None:
    """`sluice sql` reads the table by the name of the catalog that the docs give."""
    path = numbers_table(site)
    fill(site, path, 0, 10)
    site.tier(path)
    lake = sql_names(site.catalog.options)[0]
    query = f"SELECT count(*) AS n, sum(id) AS s FROM `{lake}`.{path}"
    assert site.command("sql", query, "--format", "csv").splitlines()[-1] == "10,45"
