"""What a round has compacted, for its result, the history and the snapshot's summary."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sluice.quantities import counted
from sluice.rounds.values.lake_files import WrittenCompaction

COMPACTION_KEY = "sluice.compaction"
"""Key in a snapshot summary: what the commit compacts, and what it cost, as JSON."""


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """The compactions of all buckets of a round."""

    buckets: int = 0
    """Buckets that were compacted."""
    left_out: int = 0
    """Buckets whose compaction was planned, but left out."""
    why_not: str = ""
    """Why the first of them was."""
    files_removed: int = 0
    files_written: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    dead_rows: int = 0
    """Deleted rows whose files were removed."""
    spilled_bytes: int = 0
    memory_bytes: int = 0
    """The most memory that one bucket needed for rows."""
    seconds: float = 0.0
    """The longest compaction of a bucket: so much longer the round kept its claim and lease."""
    cpu_seconds: float = 0.0

    @classmethod
    def of(cls, several: Sequence[WrittenCompaction]) -> CompactionReport:
        """:param several: those that were planned, done or not."""
        done = [one for one in several if one.removed]
        left_out = [one for one in several if not one.removed]
        return cls(
            len(done),
            len(left_out),
            left_out[0].why_not if left_out else "",
            sum(len(one.removed) for one in done),
            sum(len(one.files) for one in done),
            sum(one.bytes_read for one in several),
            sum(one.bytes_written for one in done),
            sum(one.dead_rows for one in done),
            sum(one.spilled_bytes for one in several),
            max((one.memory_bytes for one in several), default=0),
            max((one.seconds for one in several), default=0.0),
            sum(one.cpu_seconds for one in several),
        )

    def __str__(self) -> str:
        """Says what was compacted, and what was left out; empty if nothing was planned."""
        parts = []
        if self.buckets:
            files = counted(self.files_removed, "data file")
            verb = "was" if self.files_removed == 1 else "were"
            of = counted(self.buckets, "bucket")
            parts.append(f"{files} of {of} {verb} rewritten as {self.files_written}")
        if self.left_out:
            parts.append(f"{counted(self.left_out, 'bucket')} left out: {self.why_not}")
        return "; ".join(parts)

    def facts(self) -> dict[str, Any]:
        """The fields of the round's result."""
        return {
            "compacted": str(self),
            "files_compacted": self.files_removed,
            "compaction_read_bytes": self.bytes_read,
            "compaction_written_bytes": self.bytes_written,
            "compaction_spilled_bytes": self.spilled_bytes,
            "compaction_memory_bytes": self.memory_bytes,
            "compaction_ms": round(self.seconds * 1000),
            "compaction_cpu_ms": round(self.cpu_seconds * 1000),
        }

    def summary(self) -> dict[str, str]:
        """The entry of the snapshot's summary; none if nothing was compacted."""
        if not self.buckets:
            return {}
        content = {
            "buckets": self.buckets,
            "files-removed": self.files_removed,
            "files-written": self.files_written,
            "bytes-read": self.bytes_read,
            "bytes-written": self.bytes_written,
            "dead-rows": self.dead_rows,
            "spilled-bytes": self.spilled_bytes,
            "memory-bytes": self.memory_bytes,
            "ms": round(self.seconds * 1000),
            "cpu-ms": round(self.cpu_seconds * 1000),
        }
        return {COMPACTION_KEY: json.dumps(content)}
