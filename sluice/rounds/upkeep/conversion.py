"""The conversion of equality deletes to positions: what became of it, and who does it.

The driver itself converts, its threads, or executors. A work item converts one bucket, and can be
pickled. It returns an error as a value, because an exception would lose its type on its way from an
executor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sluice.model import Reason
from sluice.rounds.values.lake_files import DataFile, StoredKeys, StoredMarks

REFUSED_MAX = 4
"""A conversion is tried so many times, if other writers are faster."""


@dataclass(frozen=True, slots=True)
class ConvertedBucket:
    """Positions of one bucket, in place of equality deletes."""

    keys: tuple[StoredKeys, ...]
    """The equality deletes that the positions replace."""
    files: tuple[DataFile, ...] = ()
    replaced: tuple[StoredMarks, ...] = ()
    """Earlier positions that the new files contain, too."""
    rows: int = 0
    """Deleted rows that were found, those that other positions delete included."""
    bytes_read: int = 0
    """Bytes of key columns, and of delete files."""


@dataclass(slots=True)
class Conversion:
    """What became of the equality deletes of a table."""

    buckets: int = 0
    """Buckets whose equality deletes are gone, or fewer."""
    files_removed: int = 0
    """Equality delete files that became positions."""
    rows: int = 0
    """Rows that they delete."""
    useless_removed: int = 0
    """Equality delete files that applied to nothing, and are removed."""
    files_written: int = 0
    bytes_read: int = 0
    commits: int = 0
    refused: int = 0
    """Commits that other writers were faster than."""
    left: dict[str, str] = field(default_factory=dict)
    """Why buckets still have equality deletes, by their place in the table. A compaction removes
    them."""
    is_complete: bool = False
    """Whether it has converted all equality deletes that it began with."""

    @property
    def is_given_up(self) -> bool:
        """Whether others were faster so often that equality deletes are left."""
        return self.refused >= REFUSED_MAX

    def add(self, converted: Sequence[ConvertedBucket]) -> None:
        """Counts what one commit has converted."""
        self.buckets += len(converted)
        self.files_removed += sum(len(one.keys) for one in converted)
        self.rows += sum(one.rows for one in converted)
        self.files_written += sum(len(one.files) for one in converted)
        self.bytes_read += sum(one.bytes_read for one in converted)
        self.commits += 1


@dataclass(frozen=True, slots=True)
class NotConverted:
    """Why one bucket still has its equality deletes. Nothing is left of the attempt."""

    reason: Reason
    storage_refuses: bool = False
    """Whether the storage refuses to write: the other buckets would fail, too."""


Converted = ConvertedBucket | NotConverted


class BucketWork(Protocol):
    """One bucket to convert. Picklable."""

    def convert(self, task: int = 0) -> Converted:
        """Converts it, with as much memory as the item names.

        :param task: a number that is unique to this execution. File names contain it, so that a
            lost executor and its successor never write the same file.
        """


class ConversionRunner(Protocol):
    """Runs work items. Memory: ``at_once`` times the memory of one item."""

    at_once: int
    """Buckets that are converted at the same time."""

    def __call__(self, works: Sequence[BucketWork]) -> Sequence[Converted]:
        """Runs all items, and returns their outcomes in the same order.

        :raises SparkJobFailed: Spark gave up. Files that were written stay, and no snapshot
            references them: a later maintenance deletes them.
        """


class InTurn:
    """Converts one bucket after the other."""

    at_once = 1

    def __call__(self, works: Sequence[BucketWork]) -> Sequence[Converted]:
        return [work.convert() for work in works]
