"""LimitScan on a log table: the last rows of a bucket, in complete batches.

See docs/fluss/messages.md#scan-calls
"""

from __future__ import annotations

from sluice.errors import InvalidScanRequest, RecordTooLarge
from sluice.formats.log.batch import iter_batches
from sluice.server.tablet.logs.log import BucketLog
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.error_codes import errors_into


def last_rows(log: BucketLog, request: pb.LimitScanRequest, max_bytes: int) -> pb.LimitScanResponse:
    """Returns batches with the last ``limit`` rows; the client drops the rows before them."""
    response = pb.LimitScanResponse(is_log_table=True)
    with errors_into(response):
        response.records = _read(log, request.limit, max_bytes)
    return response


def _read(log: BucketLog, limit: int, max_bytes: int) -> bytes:
    """Reads the batches.

    :raises InvalidScanRequest, RecordTooLarge: the limit is below 1, or the response too large.
    """
    if limit <= 0:
        raise InvalidScanRequest(f"limit = {limit}: request at least one row")
    parts: list[bytearray] = []
    stop, left = log.end_offset, max_bytes
    offset = max(log.start_offset, log.lost_end, stop - limit)
    while offset < stop:
        found = log.slice(offset, left, min_one_batch=True)
        assert found is not None, "below the end there is a batch"
        left -= found.length
        if left < 0:
            raise RecordTooLarge(
                f"bucket {log.name}: the last {limit} rows exceed {max_bytes} bytes: request"
                " fewer, or fetch them"
            )
        parts.append(bytearray(found.length))
        log.read(found, memoryview(parts[-1]))
        for header, _ in iter_batches(parts[-1]):
            offset = header.next_offset
    return b"".join(parts)
