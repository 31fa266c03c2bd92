"""What else rounds must do on every catalog: beside other writers, after a death, and in a race."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial

import pyarrow as pa
import pytest

from sluice.catalog_options import CATALOG_NAME
from sluice.client.tiering.log_source import ClientLogSource
from sluice.driver.threads import ThreadRunner
from sluice.lake.iceberg.lake import IcebergLake
from sluice.model import Claim, Column, Schema, TableDescriptor, TableInfo, TablePath
from sluice.model import types as t
from sluice.rounds.records.result import RoundResult
from sluice.rounds.round.round import run_round
from sluice.rounds.values.attempt import RoundPorts
from sluice.rounds.values.ports import SplitRunner, SplitWriterFactory
from sluice.rounds.values.progress import NoProgress, Progress
from tests.support.catalogs.foreign_writer import foreign_writer
from tests.support.catalogs.iceberg_client import opened
from tests.support.catalogs.rounds import RoundSite
from tests.support.catalogs.spark_round import spark_round
from tests.support.tables.keyed_stock import DUE

_FIELDS = (Column("id", t.BIGINT, 0),)


class Meanwhile(NoProgress):
    """Does something once when a phase of a round begins."""

    def __init__(self, phase: str, act: Callable[[], object]) -> None:
        self._phase, self._act = phase, act

    def phase(self, name: str) -> None:
        if name == self._phase:
            self._phase = ""
            self._act()


class Killed(Exception):
    """Stands for the death of the driver."""


def numbers_table(
    site: RoundSite, properties: dict[str, str] | None = None, custom: dict[str, str] | None = None
) -> TablePath:
    """A log table with one column.

    :param custom: custom properties, such as those of the lake table.
    """
    path = site.new_path("numbers")
    described = TableDescriptor(
        Schema(_FIELDS, highest_field_id=0),
        bucket_count=2,
        properties=DUE | (properties or {}),
        custom_properties=custom or {},
    )
    site.client.admin.create_table(path, described)
    return path


def fill(site: RoundSite, path: TablePath, start: int, count: int) -> None:
    with site.client.log_writer(path) as writer:
        writer.write(pa.table({"id": pa.array(range(start, start + count), pa.int64())}))


def check(site: RoundSite, path: TablePath, count: int, *others: int) -> None:
    """Each number is in the lake once, and Fluss knows about all of them.

    :param others: numbers that another writer has added.
    """
    assert [row[0] for row in site.rows(path, "id")] == sorted([*others, *range(count)])
    registered = site.client.admin.lake_snapshot(path)
    assert registered is not None
    assert sum(registered.offsets.values()) == count


def foreign_commit(site: RoundSite, path: TablePath) -> None:
    """Another writer's commit, which adds no rows."""
    with opened(site.jvm, site.reader_options, CATALOG_NAME) as client:
        client.load(str(path)).newAppend().commit()


def foreign_commits(site: RoundSite) -> None:
    """Other writers add and delete rows between two rounds, and during one."""
    path = numbers_table(site)
    fill(site, path, 0, 10)
    site.tier(path)
    present: list[int] = []

    def act(number: int) -> None:
        """Adds two rows, and the next time deletes one of them."""
        with foreign_writer(site, path) as other:
            if number % 2:
                present.extend([-2 * number, -2 * number - 1])
                other.append(present[-2:])
            else:
                other.delete([present.pop()])

    for number in (1, 2):
        act(number)
        fill(site, path, 10 * number, 10)
        assert site.tier(path).rows == 10
    for number, phase in enumerate(("copy", "prepare", "lake_commit", "fluss_commit"), 3):
        fill(site, path, 10 * number, 10)
        during = Meanwhile(phase, partial(act, number))
        assert site.tier(path, progress=during).rows == 10
    foreign_commit(site, path)
    assert site.tier(path).outcome == "nothing_new"
    check(site, path, 70, *present)


def killed(site: RoundSite, path: TablePath, phase: str) -> None:
    """A round whose driver dies as a phase begins."""

    def die() -> None:
        raise Killed

    with pytest.raises(Killed):
        site.tier(path, progress=Meanwhile(phase, die))


def files_of_a_killed_driver(site: RoundSite) -> TablePath:
    """A table with files of a driver that died before its commit, once another has committed."""
    path = numbers_table(site)
    fill(site, path, 0, 5)
    site.tier(path)
    fill(site, path, 5, 5)
    killed(site, path, "lake_commit")
    site.tier(path)
    return path


def recovery(site: RoundSite) -> None:
    """A driver dies between its two commits; the second time, another writer commits then."""
    path = numbers_table(site)
    rows = 0
    for foreign in (False, True, False):  # the first time it is the table's first round
        fill(site, path, rows, 5)
        killed(site, path, "fluss_commit")
        if foreign:
            foreign_commit(site, path)
        fill(site, path, rows + 5, 5)
        rows += 10
        result = site.tier(path)
        assert (result.recovered_snapshot_id is not None, result.rows) == (True, 5)
        check(site, path, rows)


def race(site: RoundSite) -> None:
    """Two tries of one round commit at the same time; then another writer commits, too."""
    path = numbers_table(site)
    fill(site, path, 0, 5)
    site.tier(path)
    rows = 5
    for foreign in (False, True):
        fill(site, path, rows, 5)
        rows += 5
        _race_once(site, path, foreign=foreign)
        check(site, path, rows)


def _race_once(site: RoundSite, path: TablePath, *, foreign: bool) -> None:
    claim = site.client.tiering.claim([path])
    assert claim is not None

    def other() -> None:
        result = _attempt(site, claim, "other", NoProgress())
        assert (result.outcome, result.rows) == ("committed", 5)
        if foreign:
            foreign_commit(site, path)

    mine = _attempt(site, claim, "mine", Meanwhile("lake_commit", other))
    assert mine.outcome == "already_landed"
    site.client.tiering.finished(claim)


def _attempt(site: RoundSite, claim: Claim, name: str, progress: Progress) -> RoundResult:
    """One try of a round, with a catalog of its own."""

    def runner(info: TableInfo, writers: SplitWriterFactory) -> SplitRunner:
        return ThreadRunner(ClientLogSource(site.config.client, claim.path, info), writers, 2)

    lake = IcebergLake(site.jvm.gateway, site.config.datalake.iceberg, site.config.tiering)
    with closing(lake):
        return run_round(
            claim, RoundPorts(site.client.tiering, lake, runner), name, progress=progress
        )


def at_once(site: RoundSite) -> None:
    """Two processes create the lake table at the same moment."""
    path = numbers_table(site)
    fill(site, path, 0, 5)
    info = site.client.admin.table_info(path)
    start = threading.Barrier(2)
    failed: list[BaseException] = []

    def create() -> None:
        lake = IcebergLake(site.jvm.gateway, site.config.datalake.iceberg)
        try:
            with suppress(threading.BrokenBarrierError):
                start.wait(60)
            lake.create(info)
        except BaseException as error:
            failed.append(error)
        finally:
            lake.close()

    threads = [threading.Thread(target=create) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failed
    assert site.tier(path).rows == 5
    check(site, path, 5)


def partitions(site: RoundSite) -> None:
    """A partitioned table, with a partition that is dropped and made again."""
    path = site.new_path("days")
    fields = (Column("day", t.STRING, 0), Column("id", t.BIGINT, 1))
    described = TableDescriptor(
        Schema(fields, highest_field_id=1), partition_keys=("day",), properties=DUE
    )
    site.client.admin.create_table(path, described)

    def fill_day(day: str, *ids: int) -> None:
        site.client.admin.create_partition(path, {"day": day}, ignore_if_exists=True)
        rows = {"day": [day] * len(ids), "id": pa.array(ids, pa.int64())}
        with site.client.log_writer(path) as writer:
            writer.write(pa.table(rows))

    fill_day("mon", 1, 2)
    fill_day("a-b_c", 3)
    assert site.tier(path).rows == 3
    site.client.admin.drop_partition(path, {"day": "mon"})
    fill_day("mon", 7)
    assert site.tier(path).rows == 1
    assert site.rows(path, "day", "id") == [("a-b_c", 3), ("mon", 7)]


def executors(site: RoundSite) -> None:
    """spark-submit, whose executors write with the keys of the driver's plan."""
    path = numbers_table(site)
    fill(site, path, 0, 5)
    site.tier(path)
    fill(site, path, 5, 50)
    folder = site.folder / str(path)
    result = spark_round(site, path, folder)
    assert isinstance(result, RoundResult), (result, (folder / "spark-submit.log").read_text())
    assert (result.rows, result.copied_by) == (50, "executors")
    check(site, path, 55)
