"""Protocols of a round: what it needs from the cluster, the lake and the executors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from sluice.iceberg_rules.layout import Layout
from sluice.model import Claim, LakeSnapshotInfo, Partition, TableBucket, TableInfo, TablePath
from sluice.rounds.values.expiry import Expired, ExpiryRule
from sluice.rounds.values.history import LakeHistory
from sluice.rounds.values.lake_files import (
    DataFile,
    LiveFiles,
    PlannedCommit,
    WrittenCompaction,
    WrittenDeletes,
)
from sluice.rounds.values.limits import TimeLeft
from sluice.rounds.values.offsets import MetadataFiles
from sluice.rounds.values.types import (
    LakePart,
    LakeSnapshot,
    LogRecords,
    Split,
    SplitFailure,
    SplitResult,
)

if TYPE_CHECKING:  # Airflow's tasks import this module at their start
    import pyarrow as pa


class Cluster(Protocol):
    """The Fluss cluster, as a round uses it."""

    def table_info(self, path: TablePath) -> TableInfo:
        """The table's metadata.

        :raises TableNotExist: the table was dropped.
        """

    def partitions(self, path: TablePath) -> list[Partition]:
        """The existing partitions; empty for a table without partition keys."""

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
        """Stores the complete offsets map and returns its path (``fluss-offsets``)."""

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

        :raises FencedTieringEpoch, InvalidCoordinator, TableNotExist: the claim is no longer valid.
        """

    def still_claimed(self, claim: Claim) -> bool:
        """Sends a heartbeat for the claim; returns whether the coordinator still accepts it."""

    def lake_layout(self) -> Layout:
        """The layout of the lake tables that the cluster's version makes.

        :raises FlussError: the coordinator does not answer.
        """

    def compaction_requested_ms(self, claim: Claim) -> int | None:
        """When a compaction of the table was requested, epoch milliseconds; None: it was not.

        :raises FlussError: the table's status cannot be read.
        """


class Lake(Protocol):
    """The lake catalog."""

    @property
    def where(self) -> str:
        """The warehouse or the catalog's name, for messages."""

    @property
    def options(self) -> Mapping[str, str]:
        """The catalog's properties: ``datalake.iceberg.*`` without that prefix."""

    def load(self, path: TablePath) -> LakeTable | None:
        """The table, or None if the catalog has none of that name.

        :raises LakeNotWritable: the catalog or the storage cannot be read.
        """

    def create(self, info: TableInfo, layout: Layout = Layout.CLEAN) -> LakeTable:
        """Creates it exactly as Fluss would (docs/fluss/iceberg.md#tables).

        :raises LakeNotWritable: the catalog or the storage refuses.
        """


class LakeTable(MetadataFiles, Protocol):
    """One lake table, as the driver uses it."""

    location: str
    uuid: str
    """The lake table's UUID; a table that is dropped and created again gets another one."""

    @property
    def layout(self) -> Layout:
        """Whether it has Fluss's system columns, once its columns were compared."""

    def add_missing_columns(self, info: TableInfo, *, as_read: bool = False) -> Sequence[str]:
        """Adds columns that Fluss has added; checks all columns, identifier fields and the spec.

        :param as_read: the table was loaded just now: its metadata need not be read again.
        :returns: what others have changed in the lake since the last round, for users.
        :raises LakeTableMismatch: names what differs and how.
        """

    def check_layout(self, info: TableInfo) -> None:
        """Compares its columns and partition fields, as they were read last, with those of Fluss.

        :raises LakeTableMismatch: names what differs and how; or the lake table has the rows of
            another Fluss table.
        """

    def newest_tiering_snapshot(self, *, as_read: bool = False) -> LakeSnapshot | None:
        """Newest snapshot of commit user ``__fluss_lake_tiering`` among the ancestors of main.

        :param as_read: in the metadata that was read last.
        """

    def find_tiering_snapshot(
        self, summary: Mapping[str, str], since: int = 0
    ) -> LakeSnapshot | None:
        """Newest tiering snapshot in main's ancestry whose summary contains all these entries.

        :param since: a sequence number; only newer snapshots count. 0: all of them.
        """

    def is_ancestor(self, snapshot_id: int) -> bool:
        """Whether a snapshot is main's current snapshot or one of its known ancestors."""

    def writer_factory(self, write_id: str, splits: Sequence[Split]) -> SplitWriterFactory:
        """A picklable factory of writers for these splits; file names contain ``write_id``."""

    def has_rows(self, partition_values: Sequence[str]) -> bool:
        """Whether the lake has rows of a partition, in any bucket."""

    def partitions_with_rows(
        self, partitions: Sequence[tuple[str, ...]], base: LakeSnapshot | None
    ) -> list[tuple[str, ...]]:
        """Those of the partitions that have rows in the lake.

        :raises LakeCommitRefused: ``base`` is not the newest tiering snapshot. A rollback hides
            rows and can be undone.
        """

    def live_files(self, splits: Sequence[Split]) -> LiveFiles:
        """The live data files of the buckets of these splits, in main as of now.

        :raises LakeNotWritable: the metadata cannot be read.
        """

    def commit(
        self,
        files: Sequence[DataFile],
        base: LakeSnapshot | None,
        summary: Mapping[str, str],
        replaced: Sequence[LakePart] = (),
        positions: PlannedCommit | None = None,
    ) -> LakeSnapshot:
        """Adds the files (none: an empty commit) if ``base`` is still the newest tiering snapshot.

        Equality deletes apply to the rows of earlier commits, never to those of this one. The same
        commit deletes all files of the parts ``replaced``, and moves the tag ``sluice-tiered``
        to its snapshot.

        :param positions: the state of the lake in which rows were looked up, and files compacted.
        :raises LakeNotWritable: the lake cannot be read or written; nothing was committed.
        :raises LakeTableMismatch: another table has the name by now; nothing was committed.
        :raises LakeFilesChanged: since then, other writers have added data files, or removed one
            whose rows the commit deletes by position or has compacted; nothing was committed.
        :raises LakeCommitRefused: another tiering snapshot came in between, or Iceberg's checks
            failed; nothing was committed.
        :raises LakeCommitOutcomeUnknown: the commit may have succeeded; check with
            :meth:`find_tiering_snapshot`.
        """

    def rewrite(
        self,
        files: Sequence[DataFile],
        base: LakeSnapshot | None,
        summary: Mapping[str, str],
        planned: PlannedCommit,
    ) -> None:
        """Puts files in the place of those that contain the same rows, if ``base`` is the newest.

        The new snapshot is no tiering snapshot, and readers of appended rows ignore it.

        :raises LakeNotWritable: a file cannot be read; nothing was committed.
        :raises LakeTableMismatch: another table has the name by now; nothing was committed.
        :raises LakeFilesChanged: other writers have changed files or rows; nothing was committed.
        :raises LakeCommitRefused: another writer was faster, as far as the catalog's answer shows.
        :raises LakeCommitOutcomeUnknown: the commit may have succeeded.
        """

    def tag(self, snapshot_id: int) -> None:
        """Moves the tag ``sluice-tiered`` to a snapshot, which keeps it from expiry.

        Does nothing if a newer tiering snapshot exists, because that one has the tag.

        :raises LakeNotWritable: the tag could not be moved. The snapshot stays as it is.
        """

    def history(self, registered_id: int | None = None) -> LakeHistory:
        """All snapshots of the table, and the ancestry of main.

        :param registered_id: the snapshot that Fluss has registered, if it must be known how it
            descends from an ancestor of main; None: it need not be known. Earlier metadata files
            are read for it, one after another, so ordinary rounds leave it out.
        :raises LakeNotWritable: the metadata cannot be read.
        """

    def expire_by(self, rule: ExpiryRule) -> Expired:
        """Expires the snapshots that the rule chooses, and deletes the files of them alone.

        The rule sees exactly the state that the expiry replaces: if another writer commits in
        between, it chooses again. No branch or tag moves.

        :raises LakeNotWritable: the lake cannot be read, or refuses to expire snapshots.
        :raises LakeCommitRefused: other writers were faster each time. Nothing was changed.
        :raises LakeCommitOutcomeUnknown: the snapshots may have expired. No file was deleted.
        """

    def set_main(self, snapshot_id: int, expected: int | None) -> None:
        """Sets main to an existing snapshot, if main is still at the expected one.

        :raises LakeCommitRefused: main has moved, or the snapshot has expired; nothing was changed.
        :raises LakeCommitOutcomeUnknown: main may have been set; check :meth:`history`.
        """

    def delete_files(self, paths: Sequence[str]) -> None:
        """Deletes files of this round that no snapshot references."""


class SplitWriter(Protocol):
    """Writes one split's rows to data files, on an executor."""

    def write(self, records: LogRecords) -> None:
        """Writes the rows of one log batch.

        :raises LakeNotWritable: the storage refuses, or is full.
        """

    def close(self) -> tuple[DataFile, ...]:
        """Finishes the last file and returns all files.

        :raises LakeNotWritable: the storage refuses a file, as one that is full.
        """

    def compact(self, own: Sequence[DataFile], time_left: TimeLeft) -> WrittenCompaction:
        """Rewrites the files of the split's compaction, with its own rows; call after ``close``.

        If that fails or would take too long, it says why, and leaves nothing behind.

        :param own: the files with the split's own rows.
        :raises ClaimLost: the round was cancelled.
        """

    def abort(self) -> None:
        """Deletes all files of this writer."""


@runtime_checkable
class KeyedWriter(SplitWriter, Protocol):
    """Writes one split of a table with a primary key: rows and equality deletes."""

    def upsert(self, rows: pa.Table) -> None:
        """Writes rows with the table's columns, ``_log_offset`` and ``_commit_timestamp``.

        :raises LakeNotWritable: the storage refuses, or is full.
        """

    def delete(self, keys: pa.Table) -> None:
        """Deletes the rows of earlier commits with these keys.

        :raises LakeNotWritable: the storage refuses, or is full.
        """

    def close_deletes(self) -> WrittenDeletes:
        """Looks up the rows of the deleted keys, and finishes the files that delete them.

        Without a look-up in the split, or if it would cost too much, they are equality deletes.
        Nothing is looked up in files that ``compact`` has rewritten.

        :raises LakeNotWritable: the storage refuses, or is full.
        """


class SplitWriterFactory(Protocol):
    """Makes writers; is pickled and sent to executors."""

    def __call__(self, split: Split, task: int = 0) -> SplitWriter:
        """Makes a writer; ``task`` distinguishes repeated executions of one split."""


class LogSource(Protocol):
    """Reads the log of a bucket, on an executor."""

    def read(self, split: Split) -> Iterator[LogRecords]:
        """Batches in offset order from start to stop, empty ones included.

        For a part of a window (``Split.part``), the first and the last batch are complete, also if
        they contain offsets before the start or after the stop.

        :raises LogOffsetOutOfRange: the log no longer holds the start offset.
        """


class BucketRows(Protocol):
    """All rows of one bucket as of one offset of its log."""

    @property
    def log_offset(self) -> int:
        """The rows include all changes below this offset of the bucket's log."""

    @property
    def note(self) -> str:
        """A note for users about the source of the rows; usually empty."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in the table's current schema.

        :raises FlussError: the rest cannot be read; discard the rows that were yielded before.
        """


@runtime_checkable
class KeyedSource(LogSource, Protocol):
    """Reads a bucket of a table with a primary key: its changelog, and its rows at one offset."""

    def rows(self, split: Split) -> AbstractContextManager[BucketRows]:
        """The initial rows of a split, from its KV snapshot or from a scan.

        :raises KvSnapshotNotExist: the snapshot was deleted.
        :raises UnsupportedVersion: the split needs a scan, and the cluster does not support scans.
        """


SplitRunner = Callable[[Sequence[Split]], Iterator[SplitResult | SplitFailure]]
"""Runs splits on threads or Spark executors and yields their outcomes as they arrive."""

RunnerFactory = Callable[[TableInfo, SplitWriterFactory], SplitRunner]
"""Makes the runner of one round from its table and its writers."""
