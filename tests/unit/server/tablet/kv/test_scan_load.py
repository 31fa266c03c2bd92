"""As many scans as a server takes, among puts and closing stores: none wrong, none left."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from sluice.errors import ScannerExpired, TooManyScanners, UnknownScannerId
from sluice.model import TableBucket
from tests.unit.server.kv_support import KvCaller, Row
from tests.unit.server.scan_support import (
    Scan,
    begin,
    open_scan,
    rest_of,
    rows_of,
    scanners,
    snapshots_open,
)
from tests.unit.server.support import Node

BUCKETS = 25
PER_BUCKET = 8
ROWS = 40
BATCH = 400


def whole(number: int) -> list[Row]:
    """All rows of a bucket, as put number ``number`` leaves them."""
    return [(key, "text", number) for key in range(ROWS)]


@pytest.mark.slow
def test_two_hundred_scans_at_once(start: Callable[..., Node]) -> None:
    """All open before any goes on; half are read to their end, half closed, while puts go on."""
    node = start(kv_max_open_tablets=4, kv_snapshot_interval_ms=0)
    kv = KvCaller(node.caller, bucket_count=BUCKETS)
    for bucket in range(BUCKETS):
        kv.put(*whole(0), bucket=bucket)
    buckets = [bucket for bucket in range(BUCKETS) for _ in range(PER_BUCKET)]
    stopping = threading.Event()

    def put() -> None:
        number = 1
        while not stopping.is_set():
            kv.put(*whole(number), bucket=number % BUCKETS)
            number += 1

    def finish(scan: Scan, to_its_end: bool) -> None:
        found = rows_of(kv, scan.first)
        if to_its_end:
            found += rest_of(scan, BATCH)
            assert len(found) == ROWS
        else:
            found += rows_of(kv, scan.more(BATCH))
            scan.close()
        first = found[0][2]
        assert found == whole(first)[: len(found)]  # of one put
        assert (scan.first.log_offset - ROWS) % (2 * ROWS) == 0  # and of a whole one

    with ThreadPoolExecutor(9) as pool:
        putting = pool.submit(put)
        try:
            scans = list(pool.map(lambda bucket: open_scan(kv, BATCH, bucket), buckets))
            assert scanners(node).open_scans == 200
            with pytest.raises(TooManyScanners, match="200 scans are open on this server"):
                begin(kv)
            assert sum(snapshots_open(node, kv, bucket) for bucket in range(BUCKETS)) == 200
            random.Random(7).shuffle(scans)
            ends = [number % 2 == 0 for number in range(len(scans))]
            for _ in pool.map(finish, scans, ends):
                pass
        finally:
            stopping.set()
        putting.result(60)
    check_nothing_left(node, kv, BUCKETS)


def check_nothing_left(node: Node, kv: KvCaller, bucket_count: int) -> None:
    assert scanners(node).open_scans == scanners(node)._sessions.reserved == 0
    assert node.cluster._parts is not None
    assert not node.cluster._parts._kv._pins
    for bucket in range(bucket_count):
        assert snapshots_open(node, kv, bucket) == 0
        assert len(rows_of(kv, begin(kv, 1 << 20, bucket))) == ROWS


class Storm:
    """Scans, puts, expiry and closing stores, by several threads at once."""

    def __init__(self, node: Node, kv: KvCaller, bucket_count: int, seed: int) -> None:
        assert node.cluster._parts is not None
        self.node, self.kv, self.bucket_count, self.seed = node, kv, bucket_count, seed
        self.parts = node.cluster._parts
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self.seen = {"whole": 0, "expired": 0, "closed": 0, "refused": 0, "repeated": 0}

    def count(self, what: str) -> None:
        with self._lock:
            self.seen[what] += 1

    def put(self, bucket: int) -> None:
        """Whole puts of one bucket, by the only writer that it has."""
        number = 1
        while not self.stopping.is_set():
            self.kv.put(*whole(number), bucket=bucket)
            number += 1

    def flip(self) -> None:
        """Closes stores, as those that have failed: all of their scans expire."""
        chance = random.Random(self.seed)
        while not self.stopping.is_set():
            bucket = TableBucket(self.kv.table_id, None, chance.randrange(self.bucket_count))
            with self.parts._replicas.exclusive(bucket):
                self.parts._kv._lost(bucket)
            self.stopping.wait(chance.random() * 0.02)

    def scan(self, number: int) -> None:
        chance = random.Random(self.seed * 1_000 + number)
        try:
            first = begin(self.kv, BATCH, chance.randrange(self.bucket_count))
            scan = Scan(self.kv, first.scanner_id, first)
            found, answer = rows_of(self.kv, first), first
            while answer.has_more_results:
                if chance.random() < 0.1:
                    scan.close()
                    self.count("closed")
                    break
                answer = scan.more(chance.choice([1, 50, BATCH]))
                found += rows_of(self.kv, answer)
                if chance.random() < 0.2:
                    again = scan.more(BATCH, scan.call - 1)
                    assert again.records == answer.records
                    self.count("repeated")
            else:
                assert len(found) == ROWS
                self.count("whole")
            assert found == whole(found[0][2])[: len(found)]
            assert (first.log_offset - ROWS) % (2 * ROWS) == 0
        except (ScannerExpired, UnknownScannerId):
            self.count("expired")
        except TooManyScanners:
            self.count("refused")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.long) for n in (2, 3))])
def test_scans_among_puts_and_closing_stores(start: Callable[..., Node], seed: int) -> None:
    node = start(kv_max_open_tablets=2, kv_snapshot_interval_ms=0, max_workers=16)
    bucket_count = 4
    kv = KvCaller(node.caller, bucket_count=bucket_count)
    for bucket in range(bucket_count):
        kv.put(*whole(0), bucket=bucket)
    storm = Storm(node, kv, bucket_count, seed)
    with ThreadPoolExecutor(2 + bucket_count) as others, ThreadPoolExecutor(6) as pool:
        tasks = [others.submit(storm.put, bucket) for bucket in range(bucket_count)]
        tasks.append(others.submit(storm.flip))
        try:
            for _ in pool.map(storm.scan, range(600)):
                pass
        finally:
            storm.stopping.set()
        for task in tasks:
            task.result(60)
    assert all(storm.seen[what] for what in ("whole", "expired", "closed")), storm.seen
    for scanner_id in scanners(node)._sessions.all():
        scanners(node).close(scanner_id)  # of scans that were refused while they went on
    check_nothing_left(node, kv, bucket_count)
