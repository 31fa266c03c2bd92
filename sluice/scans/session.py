"""One scan session. It is frozen: whatever happens to it makes another one.

The rows of a scan never change, so a position among their keys says all. The last batch can thus be
read again instead of being kept, until the scan has come to its end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sluice.errors import InvalidScanRequest
from sluice.model import TableBucket


@dataclass(frozen=True, slots=True)
class ScanRange:
    """The rows that one call gets."""

    call_seq_id: int
    start: bytes | None
    """The key of the first one; None: the first that there is."""
    rows_max: int | None
    """None: as many as fit."""
    is_repeat: bool = False
    """They were sent before: exactly ``rows_max`` of them, whatever size is asked for now."""


@dataclass(frozen=True, slots=True)
class Session:
    """A scan that has more rows to give."""

    scanner_id: bytes
    bucket: TableBucket
    log_offset: int
    """The rows hold what the bucket's log has below this."""
    last: ScanRange
    """What the last call got; its ``rows_max`` is how many there were."""
    start: bytes
    """The key of the row that comes next."""
    rows_left: int | None
    """Of the scan's limit; None without one."""

    def scan_range(self, call_seq_id: int) -> ScanRange:
        """What a call gets.

        :raises InvalidScanRequest: it is neither the next call nor the last one again. Nothing
            happens to the session.
        """
        expected = self.last.call_seq_id + 1
        if call_seq_id == expected:
            return ScanRange(call_seq_id, self.start, self.rows_left)
        if call_seq_id == self.last.call_seq_id:
            return self.last
        raise InvalidScanRequest(
            f"bucket {self.bucket}: call_seq_id = {call_seq_id}; {expected} gets the next batch of"
            f" this scan, {expected - 1} the last one again"
        )

    def after(self, scan_range: ScanRange, rows: int, next_key: bytes | None) -> Session | None:
        """The session once a range was read; None: that was the last of it.

        :param rows: how many it had. :param next_key: that of the row behind them, if there is one.
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
) -> Session | None:
    """The session behind a first batch of ``rows`` rows; None if that holds all of the scan."""
    first = ScanRange(0, None, limit)
    unread = Session(scanner_id, bucket, log_offset, first, b"", limit)
    return unread.after(first, rows, next_key)


def _done(scan_range: ScanRange, rows: int) -> ScanRange:
    return ScanRange(scan_range.call_seq_id, scan_range.start, rows, is_repeat=True)
