"""What a round needs to tier a table with a primary key: KV snapshots, memory and a spill
folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from sluice.model import BucketSnapshot, TableBucket, TableInfo
from sluice.rounds.values.limits import LookupBudget
from sluice.rounds.values.types import CHANGES_MEMORY_BYTES, KeyedSplitOptions, Split, StartMode

_NONE: Mapping[TableBucket, BucketSnapshot] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class KeyedRoundOptions:
    """KV snapshots and resources for one round of a table with a primary key."""

    snapshots: Mapping[TableBucket, BucketSnapshot] = field(default_factory=lambda: _NONE)
    """KV snapshots leased for this round, before the end offsets of the logs were requested."""
    memory_bytes: int = CHANGES_MEMORY_BYTES
    """Bytes of memory for the changes of one split; larger amounts are spilled to disk."""
    spill_dir: str = ""
    """Folder for spill files on an executor; empty: the system's temporary folder."""
    lookups: LookupBudget = field(default_factory=LookupBudget)
    """How much the round may read to find the positions of deleted rows."""

    def split_options(
        self, info: TableInfo, start_mode: StartMode = StartMode.INCREMENTAL
    ) -> KeyedSplitOptions:
        """The options of one split."""
        return KeyedSplitOptions(
            info.schema.primary_key,
            start_mode,
            memory_bytes=self.memory_bytes,
            spill_dir=self.spill_dir,
        )

    def first_split(
        self, info: TableInfo, bucket: TableBucket, values: tuple[str, ...], start: int, stop: int
    ) -> Split:
        """The first split of a bucket: its KV snapshot and the log after it, else the complete log.

        If the start of the log was deleted, the log lacks rows that last changed there. Without a
        snapshot, such a bucket is scanned.

        :param start: the start offset of its log.
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
