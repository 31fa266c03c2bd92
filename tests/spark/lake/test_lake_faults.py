"""Commits whose answer is lost, on real Iceberg: what landed stays whole and is found again."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from py4j.java_gateway import CallbackServerParameters
from py4j.protocol import Py4JJavaError

from sluice.driver.lakes.jvm import Jvm
from sluice.driver.local import tier_once
from sluice.errors import LakeCommitOutcomeUnknown, TableNotDue
from sluice.lake.iceberg.commit.table_commits import TableCommits
from sluice.lake.iceberg.commit.tagged_update import TaggedUpdate
from sluice.lake.iceberg.deletes import position_deletes
from sluice.lake.iceberg.lake import IcebergLake
from sluice.lake.iceberg.table import IcebergTable
from sluice.model import TablePath
from sluice.model import types as t
from sluice.rounds.records.result import RoundResult
from tests.spark.conftest import STOCK, LocalStock, Site

pytestmark = pytest.mark.spark
PATH = TablePath("shop", "orders")


@pytest.fixture
def mortal() -> Iterator[Jvm]:
    """A JVM of one test, whose callbacks may raise Java's own exceptions."""
    with Jvm(os.environ.get("SLUICE_TIERING_JARS", "")) as running:
        gateway = running.gateway
        gateway.start_callback_server(
            CallbackServerParameters(
                port=0,
                daemonize=True,
                daemonize_connections=True,
                propagate_java_exceptions=True,
            )
        )
        server = gateway.java_gateway_server
        port = gateway.get_callback_server().get_listening_port()
        server.resetCallbackClient(server.getCallbackClient().getAddress(), port)
        yield running


def tier(site: Site, jvm: Jvm) -> RoundResult:
    deadline = time.monotonic() + 120
    while True:
        try:
            return tier_once(site.config, PATH, jvm=jvm)
        except TableNotDue:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def fill(site: Site, first: int, count: int) -> None:
    site.append(PATH, pa.table({"id": pa.array(range(first, first + count), pa.int64())}))


def assert_rows(site: Site, count: int) -> None:
    seen = site.rows("SELECT count(*), count(DISTINCT id), sum(id) FROM lake.shop.orders")
    assert tuple(seen[0]) == (count, count, sum(range(count)))


class _Update:
    """An update that does something before or after its commit."""

    def __init__(self, update: Any, jvm: Jvm, *, land: bool) -> None:
        self._update, self._jvm, self._land = update, jvm, land

    def __getattr__(self, name: str) -> Any:
        return getattr(self._update, name)

    def commit(self) -> None:
        if self._land:
            self._update.commit()
        self._jvm.kill()
        if not self._land:
            self._update.commit()


@pytest.mark.parametrize("land", [True, False], ids=["landed", "not-landed"])
def test_a_jvm_that_dies_around_the_commit_loses_and_doubles_no_row(
    site: Site, mortal: Jvm, monkeypatch: pytest.MonkeyPatch, land: bool
) -> None:
    site.create(PATH, {"id": t.BIGINT}, bucket_count=1)
    fill(site, 0, 100)
    tier(site, site.jvm)
    fill(site, 100, 50)
    new_update = TableCommits._new_update

    def deadly(table: TableCommits, *arguments: Any) -> Any:
        return _Update(new_update(table, *arguments), mortal, land=land)

    with monkeypatch.context() as patch:
        patch.setattr(TableCommits, "_new_update", deadly)
        with pytest.raises(LakeCommitOutcomeUnknown, match="JVM does not answer"):
            tier(site, mortal)
    assert len(list(site.warehouse.rglob("*.parquet"))) == 2  # nothing was deleted
    fill(site, 150, 7)
    result = tier(site, site.jvm)
    assert (result.recovered_snapshot_id is not None) is land
    assert result.rows == (7 if land else 57)
    assert_rows(site, 157)


class _LosesAnswers:
    """Iceberg's TableOperations; the first commit lands, and is answered as a conflict.

    So do catalogs whose client sends a request again after its answer was lost.
    """

    def __init__(self, jvm: Any, real: Any) -> None:
        self._jvm, self._real = jvm, real
        self.commits = 0

    def commit(self, base: Any, metadata: Any) -> None:
        self._real.commit(base, metadata)
        self.commits += 1
        if self.commits == 1:
            cause = self._jvm.java.lang.RuntimeException("conflict")
            raise Py4JJavaError(
                "conflict", self._jvm.org.apache.iceberg.exceptions.CommitFailedException(cause)
            )

    def current(self) -> Any:
        return self._real.current()

    def refresh(self) -> Any:
        return self._real.refresh()

    def io(self) -> Any:
        return self._real.io()

    def encryption(self) -> Any:
        return self._real.encryption()

    def metadataFileLocation(self, name: str) -> Any:  # noqa: N802
        return self._real.metadataFileLocation(name)

    def locationProvider(self) -> Any:  # noqa: N802
        return self._real.locationProvider()

    def temp(self, metadata: Any) -> Any:
        return self._real.temp(metadata)

    def newSnapshotId(self) -> Any:  # noqa: N802
        return self._real.newSnapshotId()

    def requireStrictCleanup(self) -> bool:  # noqa: N802
        return True

    class Java:
        implements = ("org.apache.iceberg.TableOperations",)


@pytest.fixture
def lossy(mortal: Jvm, monkeypatch: pytest.MonkeyPatch) -> list[_LosesAnswers]:
    """Tables loaded from now on lose the answer to their first commit."""
    made: list[_LosesAnswers] = []
    make = IcebergLake._table

    def wrap(lake: IcebergLake, path: TablePath, table: Any) -> IcebergTable:
        operations = _LosesAnswers(mortal.gateway.jvm, table.operations())
        made.append(operations)
        iceberg = mortal.gateway.jvm.org.apache.iceberg
        return make(lake, path, iceberg.BaseTable(operations, str(path)))

    monkeypatch.setattr(IcebergLake, "_table", wrap)
    return made


def test_a_retry_that_meets_its_own_snapshot_takes_it_for_landed(
    site: Site, mortal: Jvm, lossy: list[_LosesAnswers]
) -> None:
    site.create(PATH, {"id": t.BIGINT}, bucket_count=1)
    fill(site, 0, 100)
    result = tier(site, mortal)
    assert lossy[0].commits >= 1
    assert (result.outcome, result.rows) == ("committed", 100)
    assert_rows(site, 100)  # its files and its manifests are there
    fill(site, 100, 5)
    assert tier(site, mortal).outcome == "committed"
    assert_rows(site, 105)
    registered = site.client.admin.lake_snapshot(PATH)
    assert registered is not None
    newest = site.rows("SELECT snapshot_id FROM lake.shop.orders.refs WHERE name = 'main'")
    assert newest[0][0] == registered.snapshot_id


@pytest.mark.slow
@pytest.mark.parametrize(
    "form",
    ["position files", "merged", "vectors", pytest.param("equality", marks=pytest.mark.long)],
)
def test_a_commit_with_deletes_that_lost_its_answer_has_landed(
    stock: LocalStock,
    mortal: Jvm,
    form: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Iceberg's checks of positions, made again, would meet the files of this very commit."""
    stock.create(version=3 if form == "vectors" else 2)
    stock.put({key: key for key in range(40)})
    stock.tier()
    stock.put({key: -key for key in range(4)})
    stock.tier()
    config = stock.site.config
    if form == "merged":
        monkeypatch.setattr(position_deletes, "MERGED_FROM", 1)
    if form == "equality":
        config = replace(config, tiering=replace(config.tiering, position_lookup_bytes=0))
    made: list[_LosesAnswers] = request.getfixturevalue("lossy")
    stock.put({key: 100 + key for key in range(2, 8)})
    result = tier_once(config, STOCK, jvm=mortal, now=True)
    assert result.outcome == "committed"
    assert result.deletes_as.startswith("equality" if form == "equality" else "positions")
    assert [one.commits for one in made] == [1]
    stock.assert_equal()


def test_unused_manifests_of_a_commit_are_deleted(site: Site, jvm: Jvm) -> None:
    """Those that the commit has merged into one, and those of a commit that came too late."""
    site.create(PATH, {"id": t.BIGINT}, bucket_count=1)
    fill(site, 0, 1)
    tier(site, jvm)
    properties = "ALTER TABLE lake.shop.orders SET TBLPROPERTIES"
    site.rows(f"{properties} ('commit.manifest.min-count-to-merge' = '2')")
    folder = site.warehouse / "shop" / "orders" / "metadata"

    def manifests() -> set[str]:
        return {path.name for path in folder.glob("*.avro")}

    for number in range(1, 4):
        before = manifests()
        fill(site, number, 1)
        tier(site, jvm)
        one_list, one_manifest = sorted(manifests() - before, key=lambda name: name[:4] != "snap")
        assert one_list.startswith("snap-")
        assert one_manifest.endswith("-m1.avro"), "m0 was merged into m1"
    assert_rows(site, 4)

    real, others = TaggedUpdate.commit, []

    def late(update: TaggedUpdate) -> None:
        if not others:
            others.append(manifests())
            site.rows(f"{properties} ('a' = 'b')")
        real(update)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TaggedUpdate, "commit", late)
        fill(site, 4, 1)
        assert tier(site, jvm).outcome == "committed"
    assert len(manifests() - others[0]) == 2
    assert_rows(site, 5)
