"""Scans of a table with a primary key by raw messages, and what RocksDB holds for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sluice.formats.kv.value_batch import values_of
from sluice.model import TableBucket
from sluice.server.tablet.kv.scan_manager import ScannerManager
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.error_codes import raise_in_body
from tests.unit.server.kv_support import KvCaller, Row
from tests.unit.server.support import Node

LARGE = 1 << 20


@dataclass
class Scan:
    """One session; ``call`` is the number of the call that comes next."""

    kv: KvCaller
    scanner_id: bytes
    first: pb.ScanKvResponse
    call: int = 1

    def more(self, batch_bytes: int = LARGE, call: int | None = None) -> pb.ScanKvResponse:
        """The next answer, or that to a call of another number."""
        answer = ask(
            self.kv,
            scanner_id=self.scanner_id,
            call_seq_id=self.call if call is None else call,
            batch_size_bytes=batch_bytes,
        )
        if call is None:
            self.call += 1
        return answer

    def close(self) -> pb.ScanKvResponse:
        return ask(self.kv, scanner_id=self.scanner_id, close_scanner=True)


def ask(kv: KvCaller, **fields: Any) -> pb.ScanKvResponse:
    """One call, an error in its answer raised."""
    answer: pb.ScanKvResponse = kv.caller.call(apis.SCAN_KV, pb.ScanKvRequest(**fields))
    raise_in_body(answer)
    return answer


def begin(
    kv: KvCaller, batch_bytes: int = LARGE, bucket: int = 0, limit: int | None = None
) -> pb.ScanKvResponse:
    """The first answer of a new scan."""
    wanted = pb.PbScanReqForBucket(table_id=kv.table_id, bucket_id=bucket, limit=limit)
    return ask(kv, bucket_scan_req=wanted, call_seq_id=0, batch_size_bytes=batch_bytes)


def open_scan(kv: KvCaller, batch_bytes: int = 1, bucket: int = 0) -> Scan:
    """A scan that has more rows to give: one row of it, unless more are asked for."""
    first = begin(kv, batch_bytes, bucket)
    assert first.has_more_results
    return Scan(kv, first.scanner_id, first)


def rows_of(kv: KvCaller, answer: pb.ScanKvResponse) -> list[Row]:
    found = kv.rows(values_of(answer.records)) if answer.HasField("records") else []
    return [row for row in found if row is not None]


def rest_of(scan: Scan, batch_bytes: int = LARGE) -> list[Row]:
    """All rows that are left."""
    found: list[Row] = []
    while True:
        answer = scan.more(batch_bytes)
        found += rows_of(scan.kv, answer)
        if not answer.has_more_results:
            return found


def scanners(node: Node) -> ScannerManager:
    assert node.cluster._parts is not None
    return node.cluster._parts.scanners


def snapshots_open(node: Node, kv: KvCaller, bucket: int = 0) -> int:
    """RocksDB's own count of its snapshots of a bucket's store."""
    assert node.cluster._parts is not None
    with node.cluster._parts._kv.leading(TableBucket(kv.table_id, None, bucket)) as tablet:
        return tablet.snapshots_open()
