"""Spark driver that tiers two rows of a table of its own: spark-submit rehearse_start.py.

`sluice warm` runs it so that Java writes an archive of the classes that a round needs. It loads
what ``tier_tables.py`` loads, and needs no cluster.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import SparkContext

from sluice.driver.lakes.open_lake import open_lake
from sluice.driver.spark.round import SparkRunner, config_of
from sluice.driver.without_pandas import leave_pandas_out
from sluice.iceberg_rules.layout import Layout
from sluice.model import (
    Claim,
    Column,
    LakeSnapshotInfo,
    Partition,
    Schema,
    TableBucket,
    TableDescriptor,
    TableInfo,
    TablePath,
)
from sluice.model import types as t
from sluice.rounds.round.round import run_round
from sluice.rounds.values.attempt import RoundPorts
from sluice.rounds.values.ports import SplitRunner, SplitWriterFactory
from sluice.rounds.values.types import LogRecords, Split

PATH = TablePath("sluice", "rehearsal")
ROUNDS = 2
"""The second one finds the table in the lake, as usual."""


@dataclass(frozen=True)
class OneRowEach:
    """Log of a bucket with one row at each offset."""

    def read(self, split: Split) -> Iterator[LogRecords]:
        for offset in range(split.first_offset, split.stop_offset):
            batch = pa.record_batch({"id": pa.array([offset], pa.int64())})
            yield LogRecords(batch, offset, offset + 1, 0, 8)


class Rehearsal:
    """A cluster with one table, whose log grows by a row each round."""

    def __init__(self) -> None:
        descriptor = TableDescriptor(
            Schema((Column("id", t.BIGINT, 0),), (), 0),
            bucket_count=1,
            properties={"table.datalake.enabled": "true"},
        )
        self._info = TableInfo(PATH, 1, 1, descriptor, 0, 0)
        self._registered: LakeSnapshotInfo | None = None
        self._offsets: Mapping[TableBucket, int] = {}
        self.rows = 0

    def table_info(self, path: TablePath) -> TableInfo:  # noqa: ARG002  (there is one table)
        return self._info

    def partitions(self, path: TablePath) -> list[Partition]:  # noqa: ARG002
        return []

    def lake_layout(self) -> Layout:
        return Layout.CLEAN

    def latest_offsets(self, *_: Any) -> dict[int, int]:
        return {0: self.rows}

    def earliest_offsets(self, *_: Any) -> dict[int, int]:
        return {0: 0}

    def lake_snapshot(self, path: TablePath) -> LakeSnapshotInfo | None:  # noqa: ARG002
        return self._registered

    def prepare_lake_snapshot(self, *values: Any) -> str:
        self._offsets = dict(values[-1])
        return "rehearsed"

    def commit_lake_snapshot(self, *values: Any, **_: Any) -> None:
        self._registered = LakeSnapshotInfo(1, values[1], self._offsets)

    def compaction_requested_ms(self, claim: Claim) -> None:
        """No compaction is requested."""

    def still_claimed(self, claim: Claim) -> bool:  # noqa: ARG002
        return True


def _rehearse(context: SparkContext) -> Sequence[int]:
    config = config_of(context, None, {})
    cluster = Rehearsal()

    def runner(_: TableInfo, writers: SplitWriterFactory) -> SplitRunner:
        return SparkRunner(context, OneRowEach(), writers, lambda: 0)

    written = []
    gateway, hadoop = context._gateway, context._jsc.hadoopConfiguration()
    with open_lake(config, gateway, hadoop) as lake:
        for number in range(1, ROUNDS + 1):
            cluster.rows = number
            claim = Claim(1, PATH, number, 1)
            result = run_round(claim, RoundPorts(cluster, lake, runner), str(number))
            written.append(result.rows)
    return written


def main() -> int:
    leave_pandas_out()
    context = SparkContext.getOrCreate()
    try:
        return 0 if _rehearse(context) == [1] * ROUNDS else 1
    finally:
        context.stop()


if __name__ == "__main__":
    sys.exit(main())
