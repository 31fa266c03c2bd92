"""Creates and drops the partitions of tables that are partitioned by time.

It keeps no state: each check compares the catalog with the clock. A table that the lake has, too,
loses no partition with rows that the lake lacks; Fluss drops such a partition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import structlog

from sluice.clock import Clock
from sluice.errors import (
    BucketMaxNum,
    LakeSnapshotNotExist,
    PartitionMaxNum,
    PartitionNotExists,
    SluiceError,
    TableNotExist,
)
from sluice.failpoints import failpoint
from sluice.model import Partition, TableBucket, TableInfo, bucket_count_in
from sluice.server.coordinator.catalog.auto_partition_rules import AutoPartitions, auto_partitions
from sluice.server.coordinator.catalog.catalog import Catalog
from sluice.server.coordinator.catalog.descriptor_rules import PARTITIONS_MAX
from sluice.server.coordinator.catalog.entries import TableEntry
from sluice.server.coordinator.tiering.lake_snapshots import LakeSnapshots
from sluice.server.ticker import Ticker

_log = structlog.get_logger("sluice.partitions")


class AutoPartitioner:
    """Checks all tables at each interval, and a new table at once."""

    def __init__(
        self,
        catalog: Catalog,
        lake: LakeSnapshots,
        drop_within: Callable[[Mapping[TableBucket, int], Callable[[], object]], bool],
        drop_data: Callable[[TableInfo, int | None], None],
        clock: Clock,
    ) -> None:
        """:param drop_within: as ``LogManager.drop_within``: it keeps appends out meanwhile.

        :param drop_data: deletes what is stored of a dropped table or partition.
        """
        self._catalog = catalog
        self._lake = lake
        self._drop_within = drop_within
        self._drop_data = drop_data
        self._clock = clock
        self._ticker = Ticker("auto-partitions", self.check)

    def start(self, check_interval_ms: int) -> None:
        """Creates missing partitions, so that clients find them, and starts the checks.

        The first check comes after an interval: an expired partition can wait, a start cannot.
        """
        for entry in self._catalog.tables():
            self.create_missing(entry.info)
        self._ticker.start(check_interval_ms)

    def stop(self) -> None:
        self._ticker.stop()

    def check(self) -> None:
        """Drops the expired partitions of all tables, and creates missing ones."""
        for entry in self._catalog.tables():
            if self._ticker.is_stopping:
                return
            self._guarded(entry.info, partial(self._drop_expired, entry))
            self.create_missing(entry.info)

    def create_missing(self, info: TableInfo) -> None:
        """Creates the partitions of a table that must exist now. Logs errors; a check retries."""
        self._guarded(info, partial(self._create, info))

    # -- inside

    def _create(self, info: TableInfo, rules: AutoPartitions) -> None:
        for value in rules.wanted(self._clock.now_ms(), PARTITIONS_MAX):
            try:
                created = self._catalog.create_partition(
                    info.path, (value,), ignore_if_exists=True, table_id=info.table_id
                )
            except (PartitionMaxNum, BucketMaxNum) as error:
                _log.warning("partition not created", table=str(info.path), reason=str(error))
                return
            if created:
                _log.info("partition created", table=str(info.path), partition=value)
                failpoint("server.auto_partition.created")

    def _drop_expired(self, entry: TableEntry, rules: AutoPartitions) -> None:
        now_ms, info = self._clock.now_ms(), entry.info
        expired = [
            partition
            for partition in entry.partitions.values()
            if rules.expired(now_ms, partition.values[rules.key])
        ]
        expired.sort(key=lambda partition: partition.values)
        kept = [partition for partition in expired if not self._drop(info, partition)]
        if kept:
            _log.warning(
                "expired partitions are kept, because the lake lacks rows of them",
                table=str(info.path),
                partitions=len(kept),
                oldest=kept[0].name,
            )

    def _drop(self, info: TableInfo, partition: Partition) -> bool:
        """Drops a partition; returns False if it stays, because the lake lacks rows of it.

        Another partition that has got its name meanwhile is left alone.

        :raises UnknownServerError: the registered offsets cannot be read.
        """
        drop = partial(
            self._catalog.drop_partition,
            info.path,
            partition.values,
            info.table_id,
            partition.partition_id,
        )
        try:
            if not self._drop_within(self._tiered(info, partition), drop):
                return False
        except PartitionNotExists:
            return True
        failpoint("server.auto_partition.dropped")
        try:
            self._drop_data(info, partition.partition_id)
        except (SluiceError, OSError) as error:
            _log.error(
                "data of a dropped partition is left; the next start deletes it",
                table=str(info.path),
                partition=partition.name,
                error=str(error),
            )
            return True
        _log.info("expired partition dropped", table=str(info.path), partition=partition.name)
        return True

    def _tiered(self, info: TableInfo, partition: Partition) -> dict[TableBucket, int]:
        """The offsets that the buckets of a partition may lose: those below are in the lake."""
        if not self._catalog.require_partitioned(info.path, info.table_id).info.datalake_enabled:
            return {}
        try:
            offsets = self._lake.get(info).offsets
        except LakeSnapshotNotExist:
            offsets = {}
        buckets = (
            TableBucket(info.table_id, partition.partition_id, number)
            for number in range(bucket_count_in(info, partition))
        )
        return {bucket: offsets.get(bucket, 0) for bucket in buckets}

    def _guarded(self, info: TableInfo, change: Callable[[AutoPartitions], None]) -> None:
        """Changes a table that is partitioned by time; an error of one table is no other's."""
        try:
            descriptor = info.descriptor
            rules = auto_partitions(descriptor.properties, descriptor.partition_keys)
            if rules is not None:
                change(rules)
        except TableNotExist:
            return  # dropped meanwhile
        except SluiceError as error:
            _log.error(
                "partitions not checked; will be retried", table=str(info.path), error=str(error)
            )
