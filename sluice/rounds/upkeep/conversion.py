"""Who converts the equality deletes of buckets: the driver itself, its threads, or executors.

A work item converts one bucket, and can be pickled. It returns an error as a value, because an
exception would lose its type on its way from an executor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sluice.model import Reason
from sluice.rounds.upkeep.maintenance import ConvertedBucket


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
