"""The tablet's call ScanKv; its errors are fields of the response.

See docs/fluss/scans.md#sessions
"""

from __future__ import annotations

from collections.abc import Mapping

from sluice.scans import CloseScan, OpenScan, request_of
from sluice.server.tablet.kv.scan_manager import ScanBatch, ScannerManager
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Api
from sluice.wire.error_codes import errors_into
from sluice.wire.listeners.handlers import Handler, caller
from sluice.wire.messages.table_paths import bucket_in


class ScanService:
    """Handlers of the scan calls. Stateless."""

    def __init__(self, scanners: ScannerManager) -> None:
        self._scanners = scanners

    def handlers(self) -> Mapping[Api, Handler]:
        return {apis.SCAN_KV: self.scan_kv}

    def scan_kv(self, request: pb.ScanKvRequest) -> pb.ScanKvResponse:
        """Opens, continues or closes a scan."""
        response = pb.ScanKvResponse()
        with errors_into(response):
            _put(response, self._answer(request))
        return response

    def _answer(self, request: pb.ScanKvRequest) -> ScanBatch:
        part = request.bucket_scan_req if request.HasField("bucket_scan_req") else None
        wanted = request_of(
            scanner_id=request.scanner_id if request.HasField("scanner_id") else None,
            bucket=bucket_in(part) if part is not None else None,
            limit=part.limit if part is not None and part.HasField("limit") else None,
            call_seq_id=request.call_seq_id if request.HasField("call_seq_id") else None,
            batch_bytes=request.batch_size_bytes if request.HasField("batch_size_bytes") else None,
            close=request.close_scanner,
            wanted_id=request.wanted_scanner_id if request.HasField("wanted_scanner_id") else None,
            user=caller().name,
        )
        if isinstance(wanted, OpenScan):
            return self._scanners.open(wanted)
        if isinstance(wanted, CloseScan):
            self._scanners.close(wanted.scanner_id, wanted.user)
            return ScanBatch(wanted.scanner_id, None, has_more=False)
        return self._scanners.resume(wanted)


def _put(response: pb.ScanKvResponse, batch: ScanBatch) -> None:
    response.has_more_results = batch.has_more
    if batch.scanner_id is not None:
        response.scanner_id = batch.scanner_id
    if batch.records is not None:
        response.records = batch.records
    if batch.log_offset is not None:
        response.log_offset = batch.log_offset
