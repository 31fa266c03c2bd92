"""What a ScanKv call may ask for, told apart and checked before anything is done."""

from __future__ import annotations

from dataclasses import dataclass

from sluice.errors import InvalidScanRequest
from sluice.model import TableBucket

ID_BYTES_MIN, ID_BYTES_MAX = 16, 64
"""Of a scanner id that a client wants."""

_ONE_OF = "give either bucket_scan_req, which begins a scan, or scanner_id, which goes on with one"


@dataclass(frozen=True, slots=True)
class OpenScan:
    """Begins a scan, with its first batch."""

    bucket: TableBucket
    limit: int | None
    """Most rows of the whole scan; None: all."""
    batch_bytes: int
    wanted_id: bytes | None = None
    """The scanner id that the client wants, so that it may send this again."""


@dataclass(frozen=True, slots=True)
class ContinueScan:
    """The next batch, or the last one again."""

    scanner_id: bytes
    call_seq_id: int
    batch_bytes: int


@dataclass(frozen=True, slots=True)
class CloseScan:
    """Ends a scan."""

    scanner_id: bytes


ScanRequest = OpenScan | ContinueScan | CloseScan


def request_of(
    *,
    scanner_id: bytes | None,
    bucket: TableBucket | None,
    limit: int | None,
    call_seq_id: int | None,
    batch_bytes: int | None,
    close: bool,
    wanted_id: bytes | None = None,
) -> ScanRequest:
    """What the fields of a call ask for; None stands for a field that is not there.

    :raises InvalidScanRequest: they contradict each other, or one is missing or wrong.
    """
    if bucket is not None and scanner_id is not None:
        raise InvalidScanRequest(f"bucket_scan_req and scanner_id in one call: {_ONE_OF}")
    if close:
        if scanner_id is None:
            raise InvalidScanRequest("close_scanner without scanner_id: say which scan to close")
        return CloseScan(scanner_id)
    if batch_bytes is None or batch_bytes <= 0:
        raise InvalidScanRequest(f"batch_size_bytes = {batch_bytes}: ask for one byte or more")
    if call_seq_id is None:
        raise InvalidScanRequest("no call_seq_id: number the calls of a scan, from 0 for the first")
    if scanner_id is not None:
        return ContinueScan(scanner_id, call_seq_id, batch_bytes)
    if bucket is None:
        raise InvalidScanRequest(f"neither bucket_scan_req nor scanner_id: {_ONE_OF}")
    if call_seq_id != 0:
        raise InvalidScanRequest(
            f"call_seq_id = {call_seq_id} at the begin of a scan: begin with 0"
        )
    if wanted_id is not None and not ID_BYTES_MIN <= len(wanted_id) <= ID_BYTES_MAX:
        raise InvalidScanRequest(
            f"wanted_scanner_id of {len(wanted_id)} bytes: {ID_BYTES_MIN} to {ID_BYTES_MAX} random"
            " ones are needed"
        )
    rows_max = limit if limit is not None and limit > 0 else None
    return OpenScan(bucket, rows_max, batch_bytes, wanted_id)
