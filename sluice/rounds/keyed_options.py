"""With what a round begins a bucket of a table with a primary key that was never tiered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from sluice.model import BucketSnapshot, TableBucket, TableInfo
from sluice.rounds.types import CHANGES_MEMORY_BYTES, KeyedSplitOptions, Split, StartMode

_NONE: Mapping[TableBucket, BucketSnapshot] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class KeyedRoundOptions:
    """What whoever starts a round knows of such buckets, and may spend on their changes."""

    snapshots: Mapping[TableBucket, BucketSnapshot] = field(default_factory=lambda: _NONE)
    """KV snapshots that a lease holds for this round. Leased before the logs' ends were asked."""
    memory_bytes: int = CHANGES_MEMORY_BYTES
    """Of each split, for gathering the changes of its window; beyond, they go to disk."""
    spill_dir: str = ""
    """Where on an executor; empty: the system's place for temporary files."""

    def split_options(
        self, info: TableInfo, start_mode: StartMode = StartMode.INCREMENTAL
    ) -> KeyedSplitOptions:
        """What a split needs to know of a table with a primary key."""
        return KeyedSplitOptions(
            info.schema.primary_key,
            start_mode,
            memory_bytes=self.memory_bytes,
            spill_dir=self.spill_dir,
        )

    def first_split(
        self, info: TableInfo, bucket: TableBucket, values: tuple[str, ...], start: int, stop: int
    ) -> Split:
        """The first split of a bucket: its snapshot and the log after it, else its whole log.

        A log that has lost its beginning says nothing of rows that changed last in there: without
        a snapshot, such a bucket is scanned.

        :param start: where its log begins.
        """
        snapshot = self.snapshots.get(bucket)
        if snapshot is not None:
            keyed = replace(
                self.split_options(info, StartMode.KV_SNAPSHOT), snapshot_id=snapshot.snapshot_id
            )
            offset = snapshot.log_offset
            return Split(bucket, values, offset, max(offset, stop), keyed=keyed)
        if start == 0:
            return Split(
                bucket, values, 0, stop, keyed=self.split_options(info, StartMode.FULL_LOG)
            )
        return Split(bucket, values, stop, stop, keyed=self.split_options(info, StartMode.SCAN))


NO_KEYED_OPTIONS = KeyedRoundOptions()
