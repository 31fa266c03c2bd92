"""Tables with a primary key, changed at random, and the model that their lake must equal.

The model is fed only from what was acknowledged. It knows a bucket's rows at every log offset where
a flush ended, so it can say what a lake that is registered up to some offset has to hold, also
where a round was cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from sluice.client.client import Client
from sluice.config import Config, TieringConfig
from sluice.formats.keys.bucketing import bucket_hashes, numbered
from sluice.model import Column, Schema, TableBucket, TableDescriptor
from sluice.model import types as t
from sluice.rounds.records.result import RoundResult
from tests.faults.scenes.scene import Scene
from tests.support.harness.findings import finding
from tests.support.lake.lake_checker import LakeChecker, Report
from tests.support.tables.server_files import Bucket, read_logs

BUCKETS = 2
REGIONS = ("eu", "us")
IDS = 80
"""Of one partition: at most some 50 in each bucket."""
SCHEMA = Schema(
    (
        Column("region", t.STRING.not_null(), 0),
        Column("id", t.BIGINT.not_null(), 1),
        Column("name", t.STRING, 2),
        Column("amount", t.INT, 3),
    ),
    ("region", "id"),
    3,
)
TYPES = {"region": pa.string(), "id": pa.int64(), "name": pa.string(), "amount": pa.int32()}
EXTRA = Column("extra", t.BIGINT, -1)

Row = tuple[Any, ...]
"""name, amount, extra"""
Rows = dict[int, Row]
"""By id, of one partition or bucket."""


def compaction_of(region: str) -> str:
    """Rewrites the data files of a region without their deleted rows, and removes its deletes."""
    return (
        "CALL lake.system.rewrite_data_files(table => '{name}',"
        f" where => 'region = \"{region}\"', options => map('delete-file-threshold', '1',"
        " 'remove-dangling-deletes', 'true', 'min-input-files', '2'))"
    )


class KeyedScene(Scene):
    """A table of orders by region and id, on a server process, with its lake."""

    image = "FULL"
    version = 2
    """Of the lake table's format."""
    max_round_bytes = 0
    changes_memory_bytes = TieringConfig().changes_memory_bytes
    position_lookup_bytes = TieringConfig().position_lookup_bytes

    def described(self, freshness: str) -> TableDescriptor:
        return TableDescriptor(
            SCHEMA,
            partition_keys=("region",),
            bucket_count=BUCKETS,
            properties={
                "table.datalake.enabled": "true",
                "table.datalake.freshness": freshness,
                "table.changelog.image": self.image,
                "table.datalake.auto-compaction": str(self.auto_compaction).lower(),
            },
            custom_properties=(
                {"iceberg.format-version": str(self.version)} if self.version != 2 else {}
            ),
        )

    def create(self) -> None:
        with self.client() as client:
            client.admin.create_database(self.path.database, ignore_if_exists=True)
            client.admin.create_table(self.path, self.described("100ms"))
            for region in REGIONS:
                client.admin.create_partition(self.path, {"region": region})

    def config(self) -> Config:
        config = super().config()
        limits = replace(
            config.tiering,
            max_round_bytes=self.max_round_bytes,
            changes_memory_bytes=self.changes_memory_bytes,
            position_lookup_bytes=self.position_lookup_bytes,
        )
        return replace(config, tiering=limits)

    def logs(self, folder: Path) -> dict[Bucket, pa.Table]:
        """Without added columns."""
        return read_logs(folder, pa.schema(list(TYPES.items())), keyed=True)

    def checker(self, partitions: dict[int, str]) -> LakeChecker:
        name, key = f"lake.{self.path}", ("region", "id")
        return LakeChecker(self.sql, name, self.table_folder, partitions, key, ("region",))

    def check(self, rows: int | None = None) -> Report:
        """The lake is what the changelogs say up to its offsets, and everything agrees."""
        report = self.report()
        with finding():
            assert report.damage == {}
            assert rows in (None, report.rows)
        return report


class KeyedTable:
    """A table, what was acknowledged of it, and what its lake held after the last whole round."""

    def __init__(self, scene: KeyedScene, random: Random, seen: Counter[str]) -> None:
        self.scene, self.random, self.seen = scene, random, seen
        self.extra = False
        self.rows: dict[str, Rows] = {}
        """What each partition that is there holds."""
        self.ids: dict[str, list[int]] = {region: [] for region in REGIONS}
        """The partition ids that each region has had, the oldest first."""
        self.states: dict[TableBucket, dict[int, Rows]] = {}
        """A bucket's rows at the log offsets where flushes ended."""
        self.lake: dict[str, Rows] = {region: {} for region in REGIONS}
        self.gone: set[tuple[str, int]] = set()
        """Keys that the lake has held, and whose rows were deleted in the table since."""
        self.only_deletes = True
        self._tiered: set[int | None] = set()
        with scene.client() as client:
            for region in REGIONS:
                self._begin(client, region)

    # -- changes

    def write(self, flushes: int = 1, region: str = "") -> None:
        """Random changes, of one region or of all; acknowledged when it returns."""
        with self.scene.client() as client:
            for _ in range(flushes):
                chosen = region or self.random.choice(sorted(self.rows))
                self._flush(client, chosen, [self._change() for _ in range(20)])

    def change_every_second(self, region: str) -> None:
        """Of the rows that a region has."""
        numbers = sorted(self.rows[region])[::2]
        with self.scene.client() as client:
            self._flush(client, region, [(i, {"name": "newer", "amount": i}) for i in numbers])

    def delete_some(self) -> bool:
        """Only deletes, of rows that are there. Whether there were any."""
        region = max(self.rows, key=lambda name: len(self.rows[name]))
        ids = self.random.sample(sorted(self.rows[region]), k=min(5, len(self.rows[region])))
        with self.scene.client() as client:
            self._flush(client, region, [(number, None) for number in ids])
        return bool(ids)

    def _change(self) -> tuple[int, dict[str, Any] | None]:
        """An id, and the columns that it gets; None deletes it."""
        number = self.random.randrange(IDS)
        kind = self.random.random()
        if kind < 0.25:
            return number, None
        values = {
            "name": self.random.choice([None, "x" * self.random.randrange(30), f"row {number}"]),
            "amount": self.random.randrange(1000),
            "extra": self.random.choice([None, self.random.randrange(2**60)]),
        }
        if not self.extra:
            del values["extra"]
        if kind < 0.4:
            values = {"amount": values["amount"]}
        return number, values

    def _flush(
        self, client: Client, region: str, changes: Sequence[tuple[int, dict[str, Any] | None]]
    ) -> None:
        """Sends changes in their order, one batch a bucket where they write the same columns."""
        names: tuple[str, ...] | None = None
        written = []
        for number, values in changes:
            names = names if values is None else tuple(values)
            written.append((names, (number, values)))
        for names, run in groupby(written, key=itemgetter(0)):
            self._put(client, region, [change for _, change in run], names)

    def _put(
        self,
        client: Client,
        region: str,
        changes: Sequence[tuple[int, dict[str, Any] | None]],
        names: tuple[str, ...] | None,
    ) -> None:
        """Changes of the same columns, to their acknowledgement; then the model has them too."""
        whole = names is None or len(names) > 1
        columns = None if whole else ["region", "id", *(names or ())]
        with client.kv_writer(self.scene.path, columns) as writer:
            for number, values in changes:
                key = {"region": region, "id": number}
                if values is None:
                    writer.delete(_table([key]))
                else:
                    writer.upsert(_table([key | values]))
            writer.flush()
        for number, values in changes:
            self._apply(region, number, values, whole)
        self._remember(client, region)

    def _apply(self, region: str, number: int, values: dict[str, Any] | None, whole: bool) -> None:
        rows, old = self.rows[region], self.rows[region].get(number)
        if values is None:
            self._forget(region, number, whole)
            return
        self.only_deletes = False
        if (region, number) in self.gone:
            self.seen["re-insert"] += 1
            self.gone.discard((region, number))
        name, amount, extra = (None, None, None) if whole or old is None else old
        rows[number] = (
            values.get("name", name),
            values.get("amount", amount),
            values.get("extra", extra),
        )

    def _forget(self, region: str, number: int, whole: bool) -> None:
        """Deletes a row; a delete of some columns makes these null, and goes on where all are."""
        rows = self.rows[region]
        if number not in rows:
            self.seen["delete of an unknown key"] += 1
            return
        if not whole:
            name, _, extra = rows[number]
            if (name, extra) != (None, None):
                rows[number] = (name, None, extra)
                self.seen["partial delete"] += 1
                self.only_deletes = False
                return
        del rows[number]
        if number in self.lake[region]:
            self.gone.add((region, number))

    def _remember(self, client: Client, region: str) -> None:
        """What each bucket of a region holds at the present end of its log."""
        info = client.admin.table_info(self.scene.path)
        table_id, partition_id = info.table_id, self.ids[region][-1]
        rows = self.rows[region]
        ids = pa.record_batch({"id": pa.array(sorted(rows), pa.int64())})
        hashes = bucket_hashes(ids, info)
        assert hashes is not None
        buckets = numbered(hashes, info.bucket_count)
        ends = client.admin.list_offsets(self.scene.path, partition_id=partition_id)
        for number, end in ends.items():
            held = {i: rows[i] for i, of in zip(sorted(rows), buckets, strict=True) if of == number}
            bucket = TableBucket(table_id, partition_id, number)
            self.states.setdefault(bucket, {0: {}})[end] = held
            assert len(held) <= 50

    # -- partitions and columns

    def _begin(self, client: Client, region: str) -> None:
        ids = {p.name: p.partition_id for p in client.admin.partitions(self.scene.path)}
        self.ids[region].append(ids[region])
        self.rows[region] = {}
        self._remember(client, region)

    def create_again(self, region: str) -> None:
        """Drops a partition and creates it, with other rows."""
        with self.scene.client() as client:
            client.admin.drop_partition(self.scene.path, {"region": region})
            client.admin.create_partition(self.scene.path, {"region": region})
            self.gone = {key for key in self.gone if key[0] != region}
            self._begin(client, region)
            self._flush(client, region, [(i, {"name": "again", "amount": i}) for i in range(5)])
        self.seen["partition created again"] += 1
        self.only_deletes = False

    def add_column(self) -> None:
        with self.scene.client() as client:
            client.admin.add_columns(self.scene.path, [EXTRA])
        self.extra = True
        self.seen["column added"] += 1

    # -- the lake

    @finding()
    def check(self, result: RoundResult) -> None:
        """The lake, read by Spark, is the model at the offsets that Fluss has registered."""
        with self.scene.client() as client:
            registered = client.admin.lake_snapshot(self.scene.path)
        offsets = {} if registered is None else dict(registered.offsets)
        before = {region: self.lake[region] for region in REGIONS}
        tiered = {bucket.partition_id for bucket in offsets}
        first = {region for region in REGIONS if self.ids[region][-1] in tiered - self._tiered}
        self._tiered |= tiered
        self.lake = {region: self._expected(region, offsets) for region in REGIONS}
        with finding(Exception):
            found = self._read()
        assert {r: {i: row[0] for i, row in rows.items()} for r, rows in found.items()} == self.lake
        self._look_at(result, found, before, first)

    def _expected(self, region: str, offsets: dict[TableBucket, int]) -> Rows:
        """Of the newest of its partitions that was ever tiered."""
        for partition_id in reversed(self.ids[region]):
            tiered = {b: end for b, end in offsets.items() if b.partition_id == partition_id}
            if tiered:
                rows: Rows = {}
                for bucket, end in tiered.items():
                    states = self.states[bucket]
                    assert end in states, f"{bucket} is registered up to {end}: {sorted(states)}"
                    rows |= states[end]
                return rows
        return self.lake[region]

    def _read(self) -> dict[str, dict[int, tuple[Row, int, int]]]:
        """Rows by region and id, each with its bucket and offset."""
        extra = "extra" if self.extra and self._has_extra() else "NULL"
        found: dict[str, dict[int, tuple[Row, int, int]]] = {region: {} for region in REGIONS}
        if not self.scene.table_folder.exists():
            return found
        # a clean table does not say where its rows were
        where = "__bucket, __offset" if self.scene.lake["layout"] == "legacy" else "0, 0"
        query = f"SELECT region, id, name, amount, {extra}, {where} FROM {{t}}"
        for region, number, name, amount, more, bucket, offset in self.scene.sql(query):
            assert number not in found[region], f"{region} {number} is there twice"
            found[region][number] = ((name, amount, more), bucket, offset)
        return found

    def _has_extra(self) -> bool:
        """The lake has the column once a round has seen it."""
        return "extra" in {row.col_name for row in self.scene.sql("DESCRIBE {t}")}

    def _look_at(
        self,
        result: RoundResult,
        found: dict[str, dict[int, tuple[Row, int, int]]],
        before: dict[str, Rows],
        first: set[str],
    ) -> None:
        """Counts what this round was an example of.

        :param first: the regions whose present partition had never been tiered.
        """
        if result.forced:
            self.seen["window cut"] += 1
        if result.outcome == "committed":
            self.seen[f"{self.scene.image} image"] += 1
            if self.only_deletes and any(len(self.lake[r]) < len(before[r]) for r in REGIONS):
                self.seen["deletes only"] += 1
        for region in first:
            by_bucket: dict[int, set[bool]] = {}
            for _, bucket, offset in found[region].values():
                by_bucket.setdefault(bucket, set()).add(offset < 0)
            if any(len(kinds) == 2 for kinds in by_bucket.values()):
                self.seen["snapshot overlapping the log"] += 1
        if not result.forced:
            self.only_deletes = True


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    types = TYPES | {"extra": pa.int64()}
    return pa.Table.from_pylist(rows, pa.schema([(name, types[name]) for name in rows[0]]))
