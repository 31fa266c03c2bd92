"""The values of a round: splits, files, results. Frozen and picklable, because executors use
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from sluice.model import Reason, TableBucket
from sluice.rounds.values.lake_files import (
    NO_COMPACTION,
    NO_DELETES,
    Compaction,
    DataFile,
    PositionLookup,
    WrittenCompaction,
    WrittenDeletes,
)

if TYPE_CHECKING:  # as in ports.py
    import pyarrow as pa

COMMIT_USER_KEY = "commit-user"
COMMIT_USER = "__fluss_lake_tiering"
"""Commit user of tiering snapshots, shared with Fluss's own tiering service: both form one line."""
CHANGES_MEMORY_BYTES = 256 * 1024 * 1024
"""Default memory for gathering the changes of one bucket."""
WRITE_ID_KEY = "sluice.write-id"
"""Key in a snapshot summary: which attempt of which round wrote the snapshot."""


@dataclass(frozen=True, slots=True)
class LogRecords:
    """Rows of one log batch in the table's current schema, with their offsets and timestamp."""

    batch: pa.RecordBatch
    base_offset: int
    """Offset of the first row; row i has ``base_offset + i``."""
    next_offset: int
    """The next offset to read; an empty batch has no rows, but occupies an offset."""
    timestamp_ms: int
    """Commit timestamp of the batch, epoch milliseconds."""
    size_bytes: int
    """Size of the encoded batch."""
    change_types: pa.UInt8Array | None = None
    """For a table with a primary key: the change type of each row (``ChangeType``). None for a log
    table."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets of a bucket's log from ``start`` to below ``stop``."""

    bucket: TableBucket
    start: int
    stop: int

    def holds(self, bucket: TableBucket, offset: int) -> bool:
        """Whether an offset of a bucket is in the range."""
        return self.bucket == bucket and self.start <= offset < self.stop

    def __str__(self) -> str:
        return f"bucket {self.bucket.name}: offsets {self.start} to {self.stop - 1}"


@dataclass(frozen=True, slots=True)
class LakePart:
    """The rows of a lake table in one partition, or in one bucket of it."""

    partition_values: tuple[str, ...]
    bucket: int | None = None
    """None: all buckets."""
    seen_main: int | None = field(default=None, compare=False)
    """The snapshot of main that a user saw: a commit that removes files is refused if other writers
    have changed rows since. None: it is not."""


@dataclass(frozen=True, slots=True)
class SplitLimit:
    """A limit at which the copy of a split ends early, after the batch that reaches it."""

    deadline_ms: int
    """Epoch milliseconds by the driver's clock."""
    round_ms: int
    """Duration of the round: no split takes longer, whatever its executor's clock shows."""
    max_bytes: int | None = None
    """Encoded bytes of log batches; None: no limit."""


class StartMode(Enum):
    """Where the rows of a primary-key bucket come from in one split."""

    INCREMENTAL = "the log from the split's start; the lake holds everything before it"
    FULL_LOG = "the complete log, from offset 0"
    KV_SNAPSHOT = "a KV snapshot, then the log after it"
    SCAN = "a scan of the bucket's rows, then the log after it"


@dataclass(frozen=True, slots=True)
class KeyedSplitOptions:
    """Additional options of a split of a table with a primary key."""

    columns: tuple[str, ...]
    """The columns of the primary key."""
    start_mode: StartMode = StartMode.INCREMENTAL
    snapshot_id: int | None = None
    """The leased KV snapshot, for ``StartMode.KV_SNAPSHOT``."""
    scan_reason: str = "it has no KV snapshot"
    """Why the bucket is scanned, for ``StartMode.SCAN``."""
    memory_bytes: int = CHANGES_MEMORY_BYTES
    """Bytes of memory for gathering changes; larger amounts are spilled to disk."""
    spill_dir: str = ""
    """Folder for spill files on an executor; empty: the system's temporary folder."""
    lookup: PositionLookup | None = None
    """How rows of deleted keys are found in the lake; None: the split writes equality deletes."""


@dataclass(frozen=True, slots=True)
class SplitPart:
    """A split that is one of several parts of a bucket's window.

    It copies the batches whose first offset is in its range. Batch boundaries are not known when
    the window is divided: so a part leaves out the batch that began before its start offset, and
    its last batch may end after its stop offset.
    """

    number: int
    """0 for the first part, which begins exactly at its start offset."""
    window_stop: int
    """The stop offset of the bucket's window, at which the last part ends exactly."""
    from_earliest: bool = False
    """Whether the window starts at the earliest offset, so that it may start later than planned."""


@dataclass(frozen=True, slots=True)
class Split:
    """One bucket's part of a round: its log from ``start_offset`` to below ``stop_offset``.

    ``start_offset`` -2 means the earliest offset of the log. Splits end on batch boundaries.
    """

    bucket: TableBucket
    partition_values: tuple[str, ...]
    start_offset: int
    stop_offset: int
    limit: SplitLimit | None = None
    """None: the split is copied up to its stop offset, however long that takes."""
    keyed: KeyedSplitOptions | None = None
    """None: the split is of a log table, whose rows are copied unchanged."""
    skipped: tuple[OffsetRange, ...] = ()
    """Batches that cannot be read, which a user told a round to leave out, in order."""
    earliest_offset: int = 0
    """For a start offset of -2: the earliest offset of the log when the round was planned."""
    part: SplitPart | None = None
    """None: the split is the complete window of its bucket."""
    compaction: Compaction | None = None
    """Which data files of the bucket the split rewrites; None: none."""
    copies: bool = True
    """Whether it copies its window. A log table's files are rewritten by a split that does not."""

    @property
    def is_idle(self) -> bool:
        """Whether it has no window: it can only rewrite files."""
        is_first = self.keyed is not None and self.keyed.start_mode is not StartMode.INCREMENTAL
        return not is_first and self.start_offset == self.stop_offset

    @property
    def first_offset(self) -> int:
        """The start offset; for a start at the earliest offset, what that was in the plan."""
        return max(self.earliest_offset, self.start_offset)

    @property
    def weight(self) -> int:
        """An estimate of the rows to copy: offsets, and rows of a snapshot or scan."""
        if self.keyed is not None and self.keyed.start_mode is not StartMode.INCREMENTAL:
            return self.stop_offset
        return self.stop_offset - self.first_offset

    @property
    def cost(self) -> int:
        """The weight, a tenth of the rows whose keys are read, and half of those rewritten."""
        lookup = self.keyed.lookup if self.keyed is not None else None
        rows = 0 if lookup is None else sum(file.rows for file in lookup.files.files)
        rewritten = 0 if self.compaction is None else self.compaction.rows
        return self.weight + rows // 10 + rewritten // 2

    @property
    def part_number(self) -> int:
        """The number of the part; 0 for a complete window."""
        return 0 if self.part is None else self.part.number

    @property
    def file_suffix(self) -> str:
        """The end of file names: different for each partition, part of a window and look-up.

        Clean-up compares names without their folders. So no two files of a round share one.
        """
        partition = self.bucket.partition_id
        ending = "" if partition is None else f"-p{partition}"
        if self.part is not None:
            return f"{ending}-part{self.part.number}"
        if not self.copies:
            since = 0 if self.compaction is None else self.compaction.since
            return f"{ending}-rewrite{since}"
        lookup = self.keyed.lookup if self.keyed is not None else None
        return f"{ending}-again{lookup.number}" if lookup is not None and lookup.number else ending


@dataclass(frozen=True, slots=True)
class SplitResult:
    """The result of one split: its files, and the next offset to read."""

    bucket: TableBucket
    files: tuple[DataFile, ...]
    next_offset: int
    rows: int
    """Rows in its data files."""
    bytes_read: int
    max_timestamp_ms: int
    """Largest commit timestamp seen, epoch milliseconds; -1 if no batch was read."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Seconds per phase on the executor: read, write."""
    limit_reached: str = ""
    """``time`` or ``bytes`` if that limit ended the copy early; else empty."""
    deleted: WrittenDeletes = NO_DELETES
    """How the earlier rows of its keys are deleted; its files are among ``files``."""
    notes: tuple[str, ...] = ()
    """Notes for users about how the split was copied."""
    part_number: int = 0
    """Which part of its bucket's window was copied; 0 for a complete window."""
    begin_offset: int | None = None
    """The first offset of the copied batches; None: not known, or nothing was read."""
    compacted: WrittenCompaction = NO_COMPACTION
    """What it has rewritten. The new files are among ``files``, in place of its own rows."""
    is_rewrite: bool = False
    """Whether the split copied nothing."""

    @property
    def all_files(self) -> tuple[DataFile, ...]:
        """Its files, and those that it keeps beside positions and rewritten files."""
        return (*self.files, *self.deleted.spare, *self.compacted.spare)


@dataclass(frozen=True, slots=True)
class SplitFailure:
    """Why a split failed, as a result of its task.

    An executor returns failures and does not raise: a raised exception reaches the driver as text,
    inside another exception, without its class and attributes.
    """

    bucket: TableBucket
    reason: Reason
    unreadable_offset: int | None = None
    """The base offset of the batch that cannot be read, if that is the reason."""
    part_number: int = 0
    """Which part of its bucket's window failed; 0 for a complete window."""
    is_rewrite: bool = False
    """Whether the split was to rewrite files alone."""


@dataclass(frozen=True, slots=True)
class LakeSnapshot:
    """A snapshot of the lake table: its id, sequence number and summary."""

    snapshot_id: int
    sequence_number: int
    summary: Mapping[str, str]
    main_summary: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """The summary of main's newest snapshot when this one was found. Empty: not known."""


class RepairMode(Enum):
    """How a round repairs a lake that is behind Fluss, or buckets that cannot be copied."""

    RETIER = "retier"
    """Copy the missing offsets from the logs; the next round copies the new rows."""
    ADOPT = "adopt"
    """Accept main as what Fluss has registered: only the tiering snapshot has expired."""
    ACCEPT_GAP = "accept-gap"
    """Continue where the logs begin; the lake will lack what they have lost."""
    SKIP = "skip"
    """Leave out one batch that cannot be read."""
    REBUILD = "rebuild"
    """Read buckets of a primary-key table again, and replace their files."""


BUCKET_MODES = frozenset({RepairMode.ACCEPT_GAP, RepairMode.SKIP, RepairMode.REBUILD})
