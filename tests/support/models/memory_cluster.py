"""A model of the Fluss side of a round: one table, its logs, its epochs and its lake snapshots.

It follows docs/fluss/tiering.md#heartbeat-checks and docs/fluss/lake-snapshots.md#commit, and is
small enough to be verified by reading. A claim is valid for one tiering epoch and one coordinator
epoch. A commit appends an entry, drops entries by the retention hint, and deletes their offsets
files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa

from sluice.errors import (
    CorruptRecord,
    FencedTieringEpoch,
    InvalidCoordinator,
    KvSnapshotNotExist,
    LogOffsetOutOfRange,
    PartitionNotExists,
    StorageError,
    TableNotExist,
)
from sluice.iceberg_rules.layout import Layout
from sluice.model import (
    BucketSnapshot,
    Claim,
    LakeSnapshotInfo,
    Partition,
    TableBucket,
    TableInfo,
    TablePath,
)
from sluice.rounds.values.types import LogRecords, Split


@dataclass(frozen=True)
class RegisteredSnapshot:
    """An entry of Fluss's list of lake snapshots."""

    snapshot_id: int
    offsets_path: str


@dataclass(frozen=True)
class MemorySnapshot:
    """Implements BucketRows: all rows of a bucket at one offset of its log."""

    log_offset: int
    content: pa.RecordBatch
    note: str = ""

    def batches(self) -> Iterator[pa.RecordBatch]:
        middle = self.content.num_rows // 2
        yield self.content.slice(0, middle)
        yield self.content.slice(middle)


class MemoryCluster:
    """One table in memory. Implements Cluster, and LogSource for its executors. Not thread-safe."""

    def __init__(self, info: TableInfo, partitions: Sequence[Partition] = ()) -> None:
        self.info: TableInfo | None = info
        self.partitions_by_id = {p.partition_id: p for p in partitions}
        self.logs: dict[TableBucket, list[LogRecords]] = {}
        self.starts: dict[TableBucket, int] = {}
        self.unreadable: set[tuple[TableBucket, int]] = set()
        """Batches that fail their checksum: bucket and base offset."""
        self.snapshots: dict[tuple[TableBucket, int], MemorySnapshot] = {}
        """KV snapshots by bucket and id."""
        self.registered: list[RegisteredSnapshot] = []
        self.offsets_files: dict[str, dict[TableBucket, int]] = {}
        self._prepared = 0
        self.tiering_epoch = 0
        self.coordinator_epoch = 1
        self.commits: list[tuple[int, dict[TableBucket, int], int]] = []
        """(snapshot id, offsets sent along, earliest snapshot id to keep) of every commit."""
        self.compaction_request_ms: int | None = None
        """When a compaction was requested."""
        self.layout = Layout.CLEAN
        """Of the lake tables that its version makes."""

    # ---- what a test does to it ----

    def begin_round(self) -> Claim:
        """Assigns the table, which ends every earlier claim."""
        self.tiering_epoch += 1
        info = self._table()
        return Claim(info.table_id, info.path, self.tiering_epoch, self.coordinator_epoch)

    def fail_over(self) -> None:
        """Another coordinator takes over: its epoch rises, the tiering epochs start again."""
        self.coordinator_epoch += 1
        self.tiering_epoch = 0

    def append(
        self,
        bucket: TableBucket,
        batch: pa.RecordBatch,
        timestamp_ms: int = 0,
        change_types: pa.UInt8Array | None = None,
    ) -> None:
        """Appends one log batch; an empty one uses one offset.

        :param change_types: the change type of each row, for a table with a primary key.
        """
        base = self._end(bucket)
        following = base + max(1, batch.num_rows)
        self.logs.setdefault(bucket, []).append(
            LogRecords(batch, base, following, timestamp_ms, batch.nbytes, change_types)
        )

    def put_snapshot(self, bucket: TableBucket, rows: pa.RecordBatch) -> BucketSnapshot:
        """Adds a KV snapshot with these rows, at the current end of the log."""
        number = len(self.snapshots) + 1
        self.snapshots[bucket, number] = MemorySnapshot(self._end(bucket), rows)
        return BucketSnapshot(bucket, number, self._end(bucket))

    def truncate_before(self, bucket: TableBucket, offset: int) -> None:
        """Applies retention: deletes batches that end at or before the offset."""
        kept = [r for r in self.logs.get(bucket, ()) if r.next_offset > offset]
        self.starts[bucket] = kept[0].base_offset if kept else self._end(bucket)
        self.logs[bucket] = kept

    def lose_from(self, bucket: TableBucket, offset: int) -> None:
        """Simulates a power loss: batches that end after the offset are lost."""
        self.logs[bucket] = [r for r in self.logs[bucket] if r.next_offset <= offset]

    def create_again(self, table_id: int) -> None:
        """Drops the table and creates another one of the same name."""
        self.info = replace(self._table(), table_id=table_id)
        self.logs.clear()
        self.starts.clear()
        self.registered.clear()

    def drop_partition(self, partition_id: int) -> None:
        """Drops a partition; its logs stay, so that a test can compare them."""
        self.partitions_by_id.pop(partition_id, None)

    def add_partition(self, partition: Partition) -> None:
        self.partitions_by_id[partition.partition_id] = partition

    def drop_table(self) -> None:
        self.info = None

    # ---- the Cluster port ----

    def table_info(self, path: TablePath) -> TableInfo:
        if self.info is None or self.info.path != path:
            raise TableNotExist(f"table {path} does not exist")
        return self.info

    def partitions(self, path: TablePath) -> list[Partition]:
        self._table()
        return list(self.partitions_by_id.values())

    def lake_layout(self) -> Layout:
        return self.layout

    def latest_offsets(
        self, path: TablePath, table_id: int, partition_id: int | None, buckets: Sequence[int]
    ) -> dict[int, int]:
        self.check_exists(TableBucket(table_id, partition_id, 0))
        return {n: self._end(TableBucket(table_id, partition_id, n)) for n in buckets}

    def earliest_offsets(
        self, path: TablePath, table_id: int, partition_id: int | None, buckets: Sequence[int]
    ) -> dict[int, int]:
        self.check_exists(TableBucket(table_id, partition_id, 0))
        return {n: self.starts.get(TableBucket(table_id, partition_id, n), 0) for n in buckets}

    def lake_snapshot(self, path: TablePath) -> LakeSnapshotInfo | None:
        if not self.registered:
            return None
        latest = self.registered[-1]  # the last of the list, whatever its id
        if latest.offsets_path not in self.offsets_files:
            raise StorageError(f"offsets file {latest.offsets_path} is gone")
        offsets = self.offsets_files[latest.offsets_path]
        return LakeSnapshotInfo(self._table().table_id, latest.snapshot_id, dict(offsets))

    def prepare_lake_snapshot(
        self, table_id: int, path: TablePath, offsets: Mapping[TableBucket, int]
    ) -> str:
        if self.info is None or self.info.table_id != table_id:
            raise TableNotExist(f"no table has the id {table_id}: was it dropped?")
        self._prepared += 1  # names are never used twice, though files go
        number = self._prepared
        name = f"mem:/lake/{path.database}/{path.table}-{table_id}/metadata/{number}.offsets"
        self.offsets_files[name] = dict(offsets)
        return name

    def commit_lake_snapshot(
        self,
        claim: Claim,
        snapshot_id: int,
        offsets_path: str,
        offsets: Mapping[TableBucket, int],
        max_timestamps_ms: Mapping[TableBucket, int],
        earliest_snapshot_id_to_keep: int,
    ) -> None:
        self._check(claim)
        self.commits.append((snapshot_id, dict(offsets), earliest_snapshot_id_to_keep))
        self.retain(snapshot_id, offsets_path, earliest_snapshot_id_to_keep)

    def retain(self, snapshot_id: int, offsets_path: str, earliest_to_keep: int) -> None:
        """Appends an entry and drops those before the one to keep, with their offsets files."""
        entries = [*self.registered, RegisteredSnapshot(snapshot_id, offsets_path)]
        ids = [entry.snapshot_id for entry in entries]
        first = ids.index(earliest_to_keep) if earliest_to_keep in ids else 0
        self.registered = entries[first:]
        kept = {entry.offsets_path for entry in self.registered}  # a commit may have been repeated
        for entry in entries[:first]:
            if entry.offsets_path not in kept:
                self.offsets_files.pop(entry.offsets_path, None)

    def compaction_requested_ms(self, claim: Claim) -> int | None:
        return self.compaction_request_ms

    def still_claimed(self, claim: Claim) -> bool:
        try:
            self._check(claim)
        except (FencedTieringEpoch, InvalidCoordinator, TableNotExist):
            return False
        return True

    # ---- the LogSource port ----

    def read(self, split: Split) -> Iterator[LogRecords]:
        """Batches that overlap the window. :raises PartitionNotExists: it was dropped."""
        self.check_exists(split.bucket)
        start = split.start_offset
        first = self.starts.get(split.bucket, 0)
        if 0 <= start < first:
            raise LogOffsetOutOfRange(f"bucket {split.bucket}: {start} is before {first}")
        for records in self.logs.get(split.bucket, ()):
            if records.next_offset > start and records.base_offset < split.stop_offset:
                base = records.base_offset
                if (split.bucket, base) in self.unreadable:
                    bucket = f"bucket {split.bucket.name}"
                    raise CorruptRecord.of_batch(bucket, base, "wrong checksum")
                yield records

    # ---- the KeyedSource port ----

    @contextmanager
    def rows(self, split: Split) -> Iterator[MemorySnapshot]:
        """The rows of the split's snapshot. :raises PartitionNotExists: it was dropped."""
        self.check_exists(split.bucket)
        assert split.keyed is not None
        found = self.snapshots.get((split.bucket, split.keyed.snapshot_id or 0))
        if found is None:
            raise KvSnapshotNotExist(f"bucket {split.bucket}: no {split.keyed}")
        yield found

    def check_exists(self, bucket: TableBucket) -> None:
        """What a tablet server checks.

        :raises TableNotExist, PartitionNotExists: the bucket was dropped.
        """
        if self.info is None or self.info.table_id != bucket.table_id:
            raise TableNotExist(f"no table has the id {bucket.table_id}: was it dropped?")
        if bucket.partition_id is not None and bucket.partition_id not in self.partitions_by_id:
            raise PartitionNotExists(f"partition {bucket.partition_id} does not exist")

    def _table(self) -> TableInfo:
        if self.info is None:
            raise TableNotExist("the table was dropped")
        return self.info

    def _end(self, bucket: TableBucket) -> int:
        log = self.logs.get(bucket)
        return log[-1].next_offset if log else self.starts.get(bucket, 0)

    def _check(self, claim: Claim) -> None:
        if claim.coordinator_epoch != self.coordinator_epoch:
            raise InvalidCoordinator(f"coordinator epoch is {self.coordinator_epoch}")
        if self.info is None or self.info.table_id != claim.table_id:
            raise TableNotExist(f"table id {claim.table_id} does not exist")
        if claim.tiering_epoch != self.tiering_epoch:
            raise FencedTieringEpoch(f"tiering epoch is {self.tiering_epoch}")
