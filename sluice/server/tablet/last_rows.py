"""LimitScan on a log table: the last rows of a bucket, in complete batches.

See docs/fluss/messages.md#scan-calls
"""

from __future__ import annotations

from sluice.errors import FlussError, InvalidScanRequest, RecordTooLarge
from sluice.formats.log_batch import iter_batches
from sluice.server.tablet.fetch import read_slice
from sluice.server.tablet.files import LogFiles
from sluice.server.tablet.log import BucketLog
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.error_codes import put_error


def last_rows(
    log: BucketLog, request: pb.LimitScanRequest, files: LogFiles, max_bytes: int
) -> pb.LimitScanResponse:
    """Batches that hold the last ``limit`` rows; the client drops what comes before them."""
    response = pb.LimitScanResponse(is_log_table=True)
    try:
        response.records = _read(log, request.limit, files, max_bytes)
    except FlussError as error:
        put_error(response, error)
    return response


def _read(log: BucketLog, limit: int, files: LogFiles, max_bytes: int) -> bytes:
    """:raises InvalidScanRequest, RecordTooLarge: no rows, or more than one answer can hold."""
    if limit <= 0:
        raise InvalidScanRequest(f"limit = {limit}; ask for one row or more")
    parts: list[bytearray] = []
    stop, left = log.end_offset, max_bytes
    offset = max(log.start_offset, stop - limit)
    while offset < stop:
        found = log.slice(offset, left, whole_first=True)
        assert found is not None, "below the end there is a batch"
        left -= found.length
        if left < 0:
            raise RecordTooLarge(
                f"bucket {log.name}: its last {limit} rows take more than {max_bytes} bytes;"
                " ask for fewer, or fetch them"
            )
        parts.append(bytearray(found.length))
        read_slice(files, found, memoryview(parts[-1]))
        for header, _ in iter_batches(parts[-1]):
            offset = header.next_offset
    return b"".join(parts)
