"""What a round needs of its cluster, its lake and its executors; nothing here does anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

import pyarrow as pa

from sluice.model import Claim, LakeSnapshotInfo, Partition, TableBucket, TableInfo, TablePath
from sluice.rounds.history import LakeHistory
from sluice.rounds.types import (
    DataFile,
    LakeSnapshot,
    LogRecords,
    Split,
    SplitFailure,
    SplitResult,
)


class Cluster(Protocol):
    """The Fluss side of a round."""

    def table_info(self, path: TablePath) -> TableInfo:
        """:raises TableNotExist: if it was dropped."""

    def partitions(self, path: TablePath) -> list[Partition]:
        """Partitions there are now; empty for a table without partition keys."""

    def latest_offsets(
        self, path: TablePath, table_id: int, partition_id: int | None, buckets: Sequence[int]
    ) -> dict[int, int]:
        """End offset (exclusive) of each bucket's log."""

    def earliest_offsets(
        self, path: TablePath, table_id: int, partition_id: int | None, buckets: Sequence[int]
    ) -> dict[int, int]:
        """Start offset of each bucket's log."""

    def lake_snapshot(self, path: TablePath) -> LakeSnapshotInfo | None:
        """The latest lake snapshot that Fluss has registered; None if there is none yet."""

    def prepare_lake_snapshot(
        self, table_id: int, path: TablePath, offsets: Mapping[TableBucket, int]
    ) -> str:
        """Stores the complete offsets map and answers its path (``fluss-offsets``)."""

    def commit_lake_snapshot(
        self,
        claim: Claim,
        snapshot_id: int,
        offsets_path: str,
        offsets: Mapping[TableBucket, int],
        max_timestamps_ms: Mapping[TableBucket, int],
        earliest_snapshot_id_to_keep: int,
    ) -> None:
        """Registers a lake snapshot.

        :raises FencedTieringEpoch, InvalidCoordinator, TableNotExist: the round is not wanted.
        """

    def still_claimed(self, claim: Claim) -> bool:
        """Heartbeats for the claim and answers whether the coordinator still holds it valid."""


class Lake(Protocol):
    """The lake catalog."""

    @property
    def where(self) -> str:
        """Its warehouse or name, for messages."""

    def load(self, path: TablePath) -> LakeTable | None:
        """The table, or None if the catalog has none of that name."""

    def create(self, info: TableInfo) -> LakeTable:
        """Creates it exactly as Fluss would (docs/fluss/iceberg.md#tables).

        :raises LakeNotWritable: if catalog or storage refuse.
        """


class LakeTable(Protocol):
    """One table of the lake, driver side."""

    location: str
    uuid: str
    """The lake's own: another one for a table that was dropped and created again."""

    def check(self, info: TableInfo) -> None:
        """Compares columns, identifier fields, partition spec; adds columns that Fluss has added.

        :raises LakeTableMismatch: names what differs and how.
        """

    def newest_tiering_snapshot(self) -> LakeSnapshot | None:
        """Newest snapshot of commit user ``__fluss_lake_tiering`` among the ancestors of main."""

    def find_tiering_snapshot(self, summary: Mapping[str, str]) -> LakeSnapshot | None:
        """Newest of our ancestors whose summary holds all of these; None if there is none."""

    def is_ancestor(self, snapshot_id: int) -> bool:
        """Whether that snapshot is the current main snapshot or a known ancestor of it."""

    def writer_factory(
        self, info: TableInfo, write_id: str, splits: Sequence[Split]
    ) -> SplitWriterFactory:
        """A picklable maker of writers for these splits; ``write_id`` goes into file names."""

    def has_rows(self, partition_values: Sequence[str]) -> bool:
        """Whether the lake has rows of that partition, in whatever bucket."""

    def partitions_with_rows(
        self, partitions: Sequence[tuple[str, ...]], base: LakeSnapshot | None
    ) -> list[tuple[str, ...]]:
        """Those of the partitions that the lake has rows of while ``base`` is our newest snapshot.

        :raises LakeCommitRefused: it is not: a rollback hides rows, and may be undone.
        """

    def commit(
        self,
        files: Sequence[DataFile],
        base: LakeSnapshot | None,
        summary: Mapping[str, str],
        replaced: Sequence[tuple[str, ...]] = (),
    ) -> LakeSnapshot:
        """Adds the files (none: an empty commit) if ``base`` is still our newest snapshot.

        Files of equality deletes reach the rows of earlier commits, never those of this one. All
        rows that the lake has of the partitions ``replaced`` go in the same commit, and the tag
        ``sluice-tiered`` moves to its snapshot.

        :raises LakeCommitRefused: another tiering snapshot came in between; nothing was committed.
        :raises LakeCommitOutcomeUnknown: the commit may have succeeded; check with
            :meth:`find_tiering_snapshot`.
        """

    def tag(self, snapshot_id: int) -> None:
        """Moves the tag ``sluice-tiered`` there, so that expiry leaves the snapshot alone.

        Nothing happens where it is not our newest one any more: that one has the tag.
        """

    def history(self) -> LakeHistory:
        """All snapshots that the table has, and how main came about.

        :raises LakeNotWritable: the metadata cannot be read.
        """

    def set_main(self, snapshot_id: int, expected: int | None) -> None:
        """Sets main to a snapshot that is there, if it is still at the expected one.

        :raises LakeCommitRefused: main has moved, or the snapshot is gone; nothing was changed.
        :raises LakeCommitOutcomeUnknown: it may have landed; look.
        """

    def write_metadata_file(self, name: str, content: bytes) -> str:
        """Writes a small file into the table's metadata folder and answers its location.

        :raises LakeNotWritable: the storage refuses, or is full.
        """

    def read_metadata_file(self, location: str, bytes_max: int) -> bytes | None:
        """At most that many bytes of such a file; None if it is gone.

        :raises LakeNotWritable: the storage cannot be read.
        """

    def delete_files(self, paths: Sequence[str]) -> None:
        """Deletes files of one's own that the lake has definitely refused."""


class SplitWriter(Protocol):
    """Writes one split's rows to data files, on an executor."""

    def write(self, records: LogRecords) -> None:
        """Takes the rows of one log batch.

        :raises LakeNotWritable: the storage refuses, or is full.
        """

    def close(self) -> tuple[DataFile, ...]:
        """Finishes the last file and answers all of them."""

    def abort(self) -> None:
        """Deletes what this writer has written."""


@runtime_checkable
class KeyedWriter(SplitWriter, Protocol):
    """Writes one split of a table with a primary key: rows, and keys whose earlier rows go."""

    def upsert(self, rows: pa.Table) -> None:
        """Takes rows: the table's columns, ``__offset`` and ``__timestamp``.

        :raises LakeNotWritable: the storage refuses, or is full.
        """

    def delete(self, keys: pa.Table) -> None:
        """Takes keys, by the columns of the primary key: rows of earlier commits go.

        :raises LakeNotWritable: the storage refuses, or is full.
        """


class SplitWriterFactory(Protocol):
    """Makes writers; travels to executors by pickle."""

    def __call__(self, split: Split, task: int = 0) -> SplitWriter:
        """``task`` tells executions of one split apart (a lost executor's and its successor's)."""


class LogSource(Protocol):
    """Reads a bucket's log, on an executor."""

    def read(self, split: Split) -> Iterator[LogRecords]:
        """Batches in offset order from start to stop, empty ones included.

        :raises LogOffsetOutOfRange: the log no longer holds the start offset.
        """


class BucketRows(Protocol):
    """All rows of one bucket as they were at one offset of its log."""

    @property
    def log_offset(self) -> int:
        """They hold what the bucket's log has below this."""

    @property
    def note(self) -> str:
        """Empty, or what a person should know of where they come from."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in the table's current schema.

        :raises FlussError: they cannot be read on; what was yielded is then part of nothing.
        """


@runtime_checkable
class KeyedSource(LogSource, Protocol):
    """Reads a bucket of a table with a primary key: its changelog, and its rows at one offset."""

    def rows(self, split: Split) -> AbstractContextManager[BucketRows]:
        """The rows that the split begins with: of its KV snapshot, or of a scan.

        :raises KvSnapshotNotExist: the snapshot is gone.
        :raises UnsupportedVersion: the cluster cannot scan, and there is no snapshot to be read.
        """


SplitRunner = Callable[[Sequence[Split]], Iterator[SplitResult | SplitFailure]]
"""Runs splits somewhere (threads, Spark executors) and yields outcomes as they come."""

RunnerFactory = Callable[[TableInfo, SplitWriterFactory], SplitRunner]
"""Makes the runner of one round, once its table and its writers are known."""
