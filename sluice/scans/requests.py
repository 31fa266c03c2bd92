"""Parses and validates ScanKv requests."""

from __future__ import annotations

from dataclasses import dataclass

from sluice.errors import InvalidScanRequest
from sluice.model import TableBucket

ID_BYTES_MIN, ID_BYTES_MAX = 16, 64
"""Length of a scanner id that a client chooses."""

_ONE_OF = "send either bucket_scan_req to start a scan, or scanner_id to continue one"


@dataclass(frozen=True, slots=True)
class OpenScan:
    """Starts a scan and requests its first batch."""

    bucket: TableBucket
    limit: int | None
    """Maximum number of rows of the scan; None: all."""
    batch_bytes: int
    wanted_id: bytes | None = None
    """A scanner id chosen by the client, so that it can repeat this call."""
    user: str = ""
    """Who calls; empty: nobody in particular. A scan is only of the user who has started it."""


@dataclass(frozen=True, slots=True)
class ContinueScan:
    """Requests the next batch, or the last one again."""

    scanner_id: bytes
    call_seq_id: int
    batch_bytes: int
    user: str = ""


@dataclass(frozen=True, slots=True)
class CloseScan:
    """Ends a scan."""

    scanner_id: bytes
    user: str = ""


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
    user: str = "",
) -> ScanRequest:
    """Converts the fields of a call to a request; None stands for a missing field.

    :raises InvalidScanRequest: fields contradict each other, or one is missing or wrong.
    """
    if bucket is not None and scanner_id is not None:
        raise InvalidScanRequest(f"the call has both bucket_scan_req and scanner_id: {_ONE_OF}")
    if close:
        if scanner_id is None:
            raise InvalidScanRequest(
                "close_scanner without scanner_id: send the id of the scan to close"
            )
        return CloseScan(scanner_id, user)
    if batch_bytes is None or batch_bytes <= 0:
        raise InvalidScanRequest(f"batch_size_bytes = {batch_bytes}: request at least one byte")
    if call_seq_id is None:
        raise InvalidScanRequest(
            "call_seq_id is missing: number the calls of a scan, starting at 0"
        )
    if scanner_id is not None:
        return ContinueScan(scanner_id, call_seq_id, batch_bytes, user)
    if bucket is None:
        raise InvalidScanRequest(f"the call has neither bucket_scan_req nor scanner_id: {_ONE_OF}")
    if call_seq_id != 0:
        raise InvalidScanRequest(
            f"call_seq_id = {call_seq_id} in the first call of a scan: start at 0"
        )
    if wanted_id is not None and not ID_BYTES_MIN <= len(wanted_id) <= ID_BYTES_MAX:
        raise InvalidScanRequest(
            f"wanted_scanner_id has {len(wanted_id)} bytes: send {ID_BYTES_MIN} to {ID_BYTES_MAX}"
            " random bytes"
        )
    rows_max = limit if limit is not None and limit > 0 else None
    return OpenScan(bucket, rows_max, batch_bytes, wanted_id, user)
