"""The values of one round: splits, files, results. All frozen and picklable: executors use them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

import pyarrow as pa

from sluice.model import TableBucket

COMMIT_USER_KEY = "commit-user"
COMMIT_USER = "__fluss_lake_tiering"
"""What Fluss's own tiering calls itself too: its snapshots and ours are of one line."""
CHANGES_MEMORY_BYTES = 256 * 1024 * 1024
"""What gathering the changes of one bucket may take, unless one says otherwise."""
WRITE_ID_KEY = "sluice.write-id"
"""In the summary of a snapshot: which try of which round has written it."""


@dataclass(frozen=True, slots=True)
class LogRecords:
    """Rows of one log batch, in the table's current schema, with what the lake wants to know."""

    batch: pa.RecordBatch
    base_offset: int
    """Offset of the first row; row i has ``base_offset + i``."""
    next_offset: int
    """The next offset to read: an empty batch has no rows and yet takes an offset."""
    timestamp_ms: int
    """Commit timestamp of the batch, epoch milliseconds."""
    size_bytes: int
    """Bytes of the encoded batch."""
    change_types: pa.UInt8Array | None = None
    """Of a table with a primary key, what each row says; None for a log table, which only grows.
    See ``ChangeType``."""


@dataclass(frozen=True, slots=True)
class SplitLimit:
    """Where the copy of a split ends early, at the end of the batch that reaches it."""

    deadline_ms: int
    """Epoch milliseconds by the driver's clock."""
    round_ms: int
    """The whole time of the round: no split takes longer, whatever its executor's clock says."""
    max_bytes: int | None = None
    """Encoded bytes of its batches; None: no limit."""


class StartMode(Enum):
    """Where the rows of a primary-key bucket come from in one split."""

    INCREMENTAL = "the log from the split's start; the lake holds everything before it"
    FULL_LOG = "the complete log, from offset 0"
    KV_SNAPSHOT = "a KV snapshot, then the log after it"
    SCAN = "a scan of the bucket's rows, then the log after it"


@dataclass(frozen=True, slots=True)
class KeyedSplitOptions:
    """What a split of a table with a primary key needs besides."""

    columns: tuple[str, ...]
    """The primary key."""
    start_mode: StartMode = StartMode.INCREMENTAL
    snapshot_id: int | None = None
    """The KV snapshot to begin with, which a lease holds."""
    memory_bytes: int = CHANGES_MEMORY_BYTES
    """What gathering the changes of the window may take; beyond, they go to disk."""
    spill_dir: str = ""
    """Where on an executor; empty: the system's place for temporary files."""


@dataclass(frozen=True, slots=True)
class Split:
    """One bucket's part of a round: its log from ``start_offset`` to below ``stop_offset``.

    ``start_offset`` -2 means the earliest offset there is. Windows end on batch boundaries.
    """

    bucket: TableBucket
    partition_values: tuple[str, ...]
    start_offset: int
    stop_offset: int
    limit: SplitLimit | None = None
    """None: it is copied to its stop, however long that takes."""
    keyed: KeyedSplitOptions | None = None
    """None: of a log table, whose rows are copied as they are."""

    @property
    def weight(self) -> int:
        """About how much there is to copy: offsets, and the rows that stand for earlier ones."""
        if self.keyed is not None and self.keyed.start_mode is not StartMode.INCREMENTAL:
            return self.stop_offset
        return self.stop_offset - max(0, self.start_offset)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file that an executor has written and closed."""

    path: str
    rows: int
    size_bytes: int
    partition: tuple[str, ...]
    """One text per field of the lake's partition spec, as Iceberg writes it in a path."""
    deletes: bool = False
    """Whether it is one of equality deletes: its rows are keys, whose rows of earlier commits go.
    """


@dataclass(frozen=True, slots=True)
class SplitResult:
    """What one split brought: files, and the next offset to read."""

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
    """``time`` or ``bytes`` where that limit ended it before the split's stop."""
    deletes: int = 0
    """Keys in its files of equality deletes."""
    notes: tuple[str, ...] = ()
    """What a person should know of how it was copied."""


@dataclass(frozen=True, slots=True)
class SplitFailure:
    """Why a split failed, as a result of its task.

    An executor returns failures and does not raise: a raised exception reaches the driver as text,
    inside another exception, without its class and attributes.
    """

    bucket: TableBucket
    kind: str
    """Class name of the deepest useful cause."""
    reason: str
    retryable: bool


@dataclass(frozen=True, slots=True)
class LakeSnapshot:
    """A snapshot of the lake table, newest first in ancestry, as the round needs it."""

    snapshot_id: int
    sequence_number: int
    summary: Mapping[str, str]
