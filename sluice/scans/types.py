"""One scan session. It is immutable: each change makes a new one.

The rows of a scan never change, so a key is enough to continue it. Until the scan ends, the last
batch can be read again and need not be kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sluice.errors import InvalidScanRequest
from sluice.model import TableBucket


@dataclass(frozen=True, slots=True)
class ScanRange:
    """The range of rows that one call reads."""

    call_seq_id: int
    start: bytes | None
    """The key of the first row; None: the first row of the store."""
    rows_max: int | None
    """None: as many as fit."""
    is_repeat: bool = False
    """Whether the range was sent before: it has exactly ``rows_max`` rows, whatever their size."""


@dataclass(frozen=True, slots=True)
class Session:
    """A scan with more rows to read."""

    scanner_id: bytes
    bucket: TableBucket
    log_offset: int
    """The rows contain all changes of the bucket below this log offset."""
    last: ScanRange
    """The range of the last call; its ``rows_max`` is the number of rows that were read."""
    start: bytes
    """The key of the next row."""
    rows_left: int | None
    """The rows left of the scan's limit; None without a limit."""
    user: str = ""
    """The user who has started it."""

    def scan_range(self, call_seq_id: int) -> ScanRange:
        """The range that a call reads.

        :raises InvalidScanRequest: it is neither the next call nor the last one again. The session
            is unchanged.
        """
        expected = self.last.call_seq_id + 1
        if call_seq_id == expected:
            return ScanRange(call_seq_id, self.start, self.rows_left)
        if call_seq_id == self.last.call_seq_id:
            return self.last
        raise InvalidScanRequest(
            f"bucket {self.bucket}: call_seq_id = {call_seq_id}: send {expected} for the next batch"
            f" of this scan, or {expected - 1} for the last one again"
        )

    def after(self, scan_range: ScanRange, rows: int, next_key: bytes | None) -> Session | None:
        """Returns the session after a range was read; None if that was the end of the scan.

        :param rows: the number of rows in the range.
        :param next_key: the key of the row after the range, if there is one.
        """
        if scan_range.is_repeat:
            return self
        left = None if self.rows_left is None else self.rows_left - rows
        if next_key is None or left == 0:
            return None
        return replace(self, last=_done(scan_range, rows), start=next_key, rows_left=left)


def opened(
    scanner_id: bytes,
    bucket: TableBucket,
    log_offset: int,
    limit: int | None,
    rows: int,
    next_key: bytes | None,
    user: str = "",
) -> Session | None:
    """Returns the session after a first batch of ``rows`` rows; None if that is all of the scan."""
    first = ScanRange(0, None, limit)
    unread = Session(scanner_id, bucket, log_offset, first, b"", limit, user)
    return unread.after(first, rows, next_key)


def _done(scan_range: ScanRange, rows: int) -> ScanRange:
    return ScanRange(scan_range.call_seq_id, scan_range.start, rows, is_repeat=True)
