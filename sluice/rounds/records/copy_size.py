"""How much a round copies, and how long that may take.

A limit ends the copy of a log early, but not that of a KV snapshot or a scan. The limit of a log
may be hours, because it is the table's freshness. The driver writes this size next to the plan
before it copies, and the tier task extends its time limit by it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from sluice.quantities import byte_size
from sluice.rounds.records.json_files import VERSION, check_file_version

SNAPSHOT_BYTES_PER_S_MIN = 2_000_000
"""A round that copies KV snapshots more slowly than this counts as hanging. One core copies rows of
100 bytes at 70 MB/s; the margin is for compressed files and slow storage."""
SCAN_ROWS_PER_S_MIN = 10_000
"""The same for the rows of scans. One core copies more than 150,000 rows of 100 bytes a second."""

LOG_ROWS_PER_S_MIN = 1_000
"""The same for the rows of logs. Low, for large rows: the round's own limit bounds the time."""
LOG_S_MIN = 60.0
"""Logs that take less time extend nothing: `tier_timeout_seconds` has room for them."""


@dataclass(frozen=True, slots=True)
class CopySize:
    """The size of the KV snapshots, scans and logs of a round."""

    snapshot_bytes: int = 0
    """Bytes of the files of KV snapshots, as they are stored."""
    scan_rows: int = 0
    """Upper bound of the rows of scans, and of KV snapshots whose size is unknown."""
    log_seconds: float = 0.0
    """The longest time that the logs may take: until the round's limit cuts them."""

    @property
    def seconds(self) -> float:
        """The longest time that copying them may take."""
        return self._snapshot_s + self._scan_s + self.log_seconds

    def __str__(self) -> str:
        """For example: 1000 s for 2.0 GB of KV snapshots at 2 MB/s."""
        parts = []
        if self.snapshot_bytes:
            rate = SNAPSHOT_BYTES_PER_S_MIN / 1e6
            parts.append(
                f"{self._snapshot_s:.0f} s for {byte_size(self.snapshot_bytes)} of KV snapshots"
                f" at {rate:g} MB/s"
            )
        if self.scan_rows:
            parts.append(
                f"{self._scan_s:.0f} s for at most {self.scan_rows} rows of scans at"
                f" {SCAN_ROWS_PER_S_MIN} rows/s"
            )
        if self.log_seconds:
            parts.append(f"{self.log_seconds:.0f} s for the log")
        return " and ".join(parts)

    @property
    def _snapshot_s(self) -> float:
        return self.snapshot_bytes / SNAPSHOT_BYTES_PER_S_MIN

    @property
    def _scan_s(self) -> float:
        return self.scan_rows / SCAN_ROWS_PER_S_MIN

    def to_json(self) -> dict[str, Any]:
        return {"version": VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> CopySize:
        """:raises UnknownFileVersion: the file has another version."""
        check_file_version("size", content)
        return cls(
            int(content["snapshot_bytes"]), int(content["scan_rows"]), float(content["log_seconds"])
        )


def log_seconds(rows: int, round_ms: int) -> float:
    """The longest time that this number of rows of logs may take.

    :param round_ms: when the round's limit cuts the logs, in ms after its start.
    """
    seconds = min(rows / LOG_ROWS_PER_S_MIN, round_ms / 1000)
    return seconds if seconds >= LOG_S_MIN else 0.0


def size_uri(plan: str, attempt: str) -> str:
    return f"{plan.rsplit('/', 1)[0]}/size-{attempt}.json"
