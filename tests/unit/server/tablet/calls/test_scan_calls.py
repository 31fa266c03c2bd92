"""ScanKv of a real server by raw messages: what is answered, what is refused, what is left."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest

from sluice import failpoints
from sluice.errors import (
    InvalidScanRequest,
    KvStorageError,
    NonPrimaryKeyTable,
    RecordTooLarge,
    ScannerExpired,
    TooManyScanners,
    UnknownScannerId,
    UnknownServerError,
    UnknownTableOrBucket,
)
from sluice.model import TableBucket, TablePath
from sluice.wire import fluss_api_pb2 as pb
from tests.unit.server.kv_support import KvCaller
from tests.unit.server.scan_support import (
    LARGE,
    Scan,
    ask,
    begin,
    open_scan,
    rest_of,
    rows_of,
    scanners,
    snapshots_open,
)
from tests.unit.server.support import LOG_TABLE, Caller, Node, OwnedClock
from tests.unit.server.tablet.kv.test_kv_damaged import damage

ROWS = [(number, f"text {number}", number) for number in range(50)]


class MonotonicClock(OwnedClock):
    """All time stands until the test moves it."""

    def monotonic_s(self) -> float:
        return self.ms / 1000


@pytest.fixture
def kv(caller: Caller) -> KvCaller:
    kv = KvCaller(caller)
    kv.put(*ROWS)
    return kv


# -- rows


def test_a_small_bucket_comes_in_one_answer_and_leaves_nothing(node: Node, kv: KvCaller) -> None:
    answer = begin(kv)
    assert rows_of(kv, answer) == kv.scan() == ROWS
    assert answer.log_offset == kv.end() == 50
    assert not answer.has_more_results
    assert answer.HasField("scanner_id")
    assert scanners(node).open_scans == snapshots_open(node, kv) == 0
    with pytest.raises(UnknownScannerId):
        Scan(kv, answer.scanner_id, answer).more()


def test_an_empty_bucket_says_its_log_offset_and_opens_no_session(
    node: Node, caller: Caller
) -> None:
    kv = KvCaller(caller)

    def check(offset: int) -> None:
        answer = begin(kv)
        assert answer.HasField("log_offset")
        assert answer.log_offset == kv.end() == offset
        assert not answer.has_more_results
        assert not answer.HasField("scanner_id")
        assert not answer.HasField("records")
        assert scanners(node)._sessions.reserved == snapshots_open(node, kv) == 0

    check(0)
    kv.put((1, "a", 1), (2, "b", 2))
    kv.delete((1, None, None), (2, None, None))
    check(4)


def test_a_batch_ends_with_the_row_that_reaches_its_size(node: Node, kv: KvCaller) -> None:
    row_bytes = 40  # more than any of these rows takes
    for batch_bytes in (1, 40, 100, 700):
        answer = begin(kv, batch_bytes)
        scan, found = Scan(kv, answer.scanner_id, answer), rows_of(kv, answer)
        while answer.has_more_results:
            assert batch_bytes <= len(answer.records) < batch_bytes + row_bytes
            answer = scan.more(batch_bytes)
            assert not answer.HasField("log_offset")  # of the first answer only
            assert answer.scanner_id == scan.scanner_id
            found += rows_of(kv, answer)
        assert found == ROWS
        assert snapshots_open(node, kv) == 0


def test_the_server_bounds_a_batch(start: Callable[..., Node]) -> None:
    node = start(kv_scanner_max_batch_bytes=100)
    kv = KvCaller(node.caller)
    kv.put(*ROWS)
    answer = begin(kv, LARGE)
    assert 100 <= len(answer.records) < 140
    assert rows_of(kv, answer) + rest_of(Scan(kv, answer.scanner_id, answer)) == ROWS


def test_no_answer_is_larger_than_a_message_may_be(start: Callable[..., Node]) -> None:
    node = start(max_message_bytes=256 << 10)
    kv = KvCaller(node.caller)
    texts = [(number, "x" * (100 << 10), 0) for number in range(5)]
    for row in texts:
        kv.put(row)
    answer = begin(kv, 150 << 10)
    assert len(rows_of(kv, answer)) == 1  # the second one would not fit
    assert rows_of(kv, answer) + rest_of(Scan(kv, answer.scanner_id, answer), 150 << 10) == texts
    kv.put((2, "x" * (192 << 10), 0))
    scan = open_scan(kv, 1)
    assert len(rows_of(kv, scan.more(1))) == 1
    with pytest.raises(RecordTooLarge, match="one row has 196"):
        scan.more(1)
    assert scan.close().scanner_id == scan.scanner_id
    assert snapshots_open(node, kv) == 0


def test_a_limit_bounds_the_rows(node: Node, kv: KvCaller) -> None:
    for batch_bytes, limit in itertools.product((1, 100, LARGE), (1, 7, 49, 50, 51, 0, -1)):
        answer = begin(kv, batch_bytes, limit=limit)
        found = rows_of(kv, answer)
        if answer.has_more_results:
            found += rest_of(Scan(kv, answer.scanner_id, answer), batch_bytes)
        assert found == (ROWS[:limit] if limit > 0 else ROWS)
        assert scanners(node).open_scans == snapshots_open(node, kv) == 0


def test_rows_are_those_of_the_moment_of_opening(node: Node, kv: KvCaller) -> None:
    scan = open_scan(kv)
    kv.put((1, "other", -1), (60, "new", 0))
    kv.delete((2, None, None))
    assert node.cluster.take_kv_snapshots(kv.path)  # RocksDB writes its files meanwhile
    assert scan.first.log_offset == 50 < kv.end()
    assert rows_of(kv, scan.first) + rest_of(scan) == ROWS
    assert len(rows_of(kv, begin(kv))) == 50  # one gone, one more
    assert snapshots_open(node, kv) == 0


class Slow:
    """A RocksDB that has written, and does not say so before it is let go on."""

    def __init__(self, db: Any) -> None:
        self._db = db
        self.written, self.go_on = threading.Event(), threading.Event()

    def write(self, *arguments: Any) -> None:
        self._db.write(*arguments)
        self.written.set()
        assert self.go_on.wait(60)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)


def test_rows_and_log_offset_belong_together_in_the_midst_of_a_put(
    node: Node, kv: KvCaller
) -> None:
    """The rows of the put are there already, its offset is not noted yet."""
    assert node.cluster._parts is not None
    with node.cluster._parts._kv.leading(TableBucket(kv.table_id, None, 0)) as tablet:
        assert tablet._store is not None
        db = tablet._store._db = Slow(tablet._store._db)
    with ThreadPoolExecutor(2) as pool:
        putting = pool.submit(kv.put, *((key, "new", -1) for key in range(50, 60)))
        assert db.written.wait(60)
        scanning = pool.submit(begin, kv)
        wait([scanning], 0.3)  # it may not be done before the put is
        db.go_on.set()
        answer = scanning.result(60)
        assert putting.result(60) == 60
    assert len(rows_of(kv, answer)) == answer.log_offset == 60


def test_a_put_that_failed_behind_its_log_is_scanned(
    kv: KvCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(failpoints._armed, "server.put_kv.after_log", ("raise", 1))
    monkeypatch.setattr(failpoints, "_passages", {})
    with pytest.raises(UnknownServerError, match="failpoint"):
        kv.put((50, "new", -1))
    answer = begin(kv)
    assert answer.log_offset == kv.end() == 51
    assert rows_of(kv, answer) == [*ROWS, (50, "new", -1)]


# -- calls


def test_a_repeated_last_call_gets_the_same_batch_again(node: Node, kv: KvCaller) -> None:
    scan = open_scan(kv, 200)
    second = scan.more(300)
    assert scan.more(1, call=1).records == second.records  # whatever size is asked for now
    assert scan.more(LARGE, call=1).records == second.records
    last = scan.more(LARGE)
    assert not last.has_more_results
    assert scanners(node).open_scans == snapshots_open(node, kv) == 0
    again = scan.more(LARGE, call=2)
    assert again == last
    assert rows_of(kv, scan.first) + rows_of(kv, second) + rows_of(kv, again) == ROWS
    with pytest.raises(UnknownScannerId):
        scan.more(call=3)
    scan.close()
    with pytest.raises(UnknownScannerId):
        scan.more(call=2)


def test_the_first_batch_comes_again_too(kv: KvCaller) -> None:
    scan = open_scan(kv, 200)
    assert scan.more(call=0).records == scan.first.records
    assert rows_of(kv, scan.first) + rest_of(scan) == ROWS


def test_an_open_with_an_id_may_be_repeated(node: Node, caller: Caller) -> None:
    """Its answer may be lost too; then the scan that it has begun goes on."""
    kv = KvCaller(caller, bucket_count=2)
    kv.put(*ROWS)
    kv.put(*ROWS, bucket=1)
    wanted = b"an id that nobody else thinks of"

    def open_again(bucket: int = 0, batch_bytes: int = 100) -> pb.ScanKvResponse:
        request = pb.PbScanReqForBucket(table_id=kv.table_id, bucket_id=bucket)
        return ask(
            kv,
            bucket_scan_req=request,
            call_seq_id=0,
            batch_size_bytes=batch_bytes,
            wanted_scanner_id=wanted,
        )

    first = open_again()
    assert first.scanner_id == wanted
    kv.put((0, "other", -1))
    assert open_again() == open_again(batch_bytes=1) == first
    assert scanners(node).open_scans == snapshots_open(node, kv) == 1
    with pytest.raises(InvalidScanRequest, match="belongs to a scan of bucket"):
        open_again(bucket=1)
    scan = Scan(kv, wanted, first)
    second = scan.more(100)
    with pytest.raises(InvalidScanRequest, match="call_seq_id = 0: send 2 for the next"):
        open_again()  # it has gone on: the first answer did come
    assert rows_of(kv, first) + rows_of(kv, second) + rest_of(scan) == ROWS
    anew = Scan(kv, wanted, open_again())
    assert rows_of(kv, anew.first)[0] == (0, "other", -1)  # another scan by the same name
    assert rows_of(kv, anew.first) + rest_of(anew, 100) == [(0, "other", -1), *ROWS[1:]]
    small = open_again(batch_bytes=LARGE)
    assert not small.has_more_results
    assert rows_of(kv, small) == [(0, "other", -1), *ROWS[1:]]  # a new scan
    assert scanners(node)._sessions.reserved == 0
    assert snapshots_open(node, kv) == snapshots_open(node, kv, 1) == 0


def test_last_batches_are_kept_within_their_bytes(start: Callable[..., Node]) -> None:
    node = start(kv_scanner_max_replay_bytes=0)
    kv = KvCaller(node.caller)
    kv.put(*ROWS)
    scan = open_scan(kv)
    scan.more(1)
    assert scan.more(1, call=1).has_more_results  # read again, not kept
    rest_of(scan)
    with pytest.raises(UnknownScannerId):
        scan.more(call=scan.call - 1)


def test_a_call_out_of_order_is_refused_and_the_scan_goes_on(kv: KvCaller) -> None:
    scan = open_scan(kv)
    found = rows_of(kv, scan.first)
    for _ in range(3):
        found += rows_of(kv, scan.more(1))
    for wrong in (-1, 0, 2, 5, 6, 100):
        with pytest.raises(InvalidScanRequest, match=f"call_seq_id = {wrong}: send 4 for the next"):
            scan.more(call=wrong)
    assert found + rest_of(scan) == ROWS


def test_what_contradicts_itself_is_refused_and_opens_nothing(node: Node, kv: KvCaller) -> None:
    bucket = pb.PbScanReqForBucket(table_id=kv.table_id, bucket_id=0)
    scan = open_scan(kv)
    for fields in (
        {"call_seq_id": 0, "batch_size_bytes": 1},
        {"bucket_scan_req": bucket, "call_seq_id": 1, "batch_size_bytes": 1},
        {"bucket_scan_req": bucket, "call_seq_id": 0},
        {"bucket_scan_req": bucket, "batch_size_bytes": 1},
        {"bucket_scan_req": bucket, "call_seq_id": 0, "batch_size_bytes": 1, "close_scanner": True},
        {
            "bucket_scan_req": bucket,
            "scanner_id": scan.scanner_id,
            "call_seq_id": 1,
            "batch_size_bytes": 1,
        },
        {"scanner_id": scan.scanner_id, "batch_size_bytes": 1},
        {"scanner_id": scan.scanner_id, "call_seq_id": 1, "batch_size_bytes": 0},
    ):
        with pytest.raises(InvalidScanRequest):
            ask(kv, **fields)
    assert scanners(node).open_scans == 1
    assert rows_of(kv, scan.first) + rest_of(scan) == ROWS
    assert snapshots_open(node, kv) == 0


def test_who_may_not_be_scanned_says_why(node: Node, kv: KvCaller) -> None:
    table_id = node.caller.create_table(TablePath("db", "log"), LOG_TABLE)
    for wanted, error in (
        (pb.PbScanReqForBucket(table_id=table_id, bucket_id=0), NonPrimaryKeyTable),
        (pb.PbScanReqForBucket(table_id=99, bucket_id=0), UnknownTableOrBucket),
        (pb.PbScanReqForBucket(table_id=kv.table_id, bucket_id=9), UnknownTableOrBucket),
        (
            pb.PbScanReqForBucket(table_id=kv.table_id, bucket_id=0, partition_id=4),
            UnknownTableOrBucket,
        ),
    ):
        with pytest.raises(error):
            ask(kv, bucket_scan_req=wanted, call_seq_id=0, batch_size_bytes=1)
    assert scanners(node)._sessions.reserved == 0


def test_closing_ends_a_scan_and_may_be_repeated(node: Node, kv: KvCaller) -> None:
    scan = open_scan(kv)
    assert snapshots_open(node, kv) == 1
    for _ in range(2):
        answer = scan.close()
        assert answer.scanner_id == scan.scanner_id
        assert not answer.has_more_results
        assert snapshots_open(node, kv) == 0
    with pytest.raises(UnknownScannerId):
        scan.more()
    unknown = ask(kv, scanner_id=b"\xff\xfe", close_scanner=True)
    assert unknown.scanner_id == b"\xff\xfe"


# -- limits and time


def test_scans_of_a_bucket_and_of_the_server_are_limited(start: Callable[..., Node]) -> None:
    node = start(kv_scanner_max_per_bucket=2, kv_scanner_max_per_server=3)
    kv = KvCaller(node.caller, bucket_count=2)
    for bucket in (0, 1):
        kv.put(*ROWS, bucket=bucket)
    scans = [open_scan(kv), open_scan(kv)]
    with pytest.raises(TooManyScanners, match="2 scans of it"):
        begin(kv, 1)
    scans.append(open_scan(kv, bucket=1))
    with pytest.raises(TooManyScanners, match="3 scans are open on this server"):
        begin(kv, 1, bucket=1)
    assert snapshots_open(node, kv) + snapshots_open(node, kv, 1) == 3
    scans.pop().close()
    rest_of(scans.pop())
    scans += [open_scan(kv, bucket=1), open_scan(kv)]
    for scan in scans:
        scan.close()
    assert snapshots_open(node, kv) + snapshots_open(node, kv, 1) == 0


def test_a_scan_that_nobody_calls_expires(start: Callable[..., Node]) -> None:
    clock = MonotonicClock()
    node = start(clock=clock, kv_scanner_ttl_ms=1_000, kv_scanner_expiration_interval_ms=3_600_000)
    kv = KvCaller(node.caller)
    kv.put(*ROWS)
    idle, used = open_scan(kv), open_scan(kv)
    clock.ms += 600
    used.more(1)
    with pytest.raises(InvalidScanRequest):
        idle.more(call=7)  # a call that is refused keeps nothing alive
    clock.ms += 600
    assert scanners(node).expire() == 1
    assert snapshots_open(node, kv) == 1
    with pytest.raises(ScannerExpired, match="it was idle for more than 1000 ms"):
        idle.more()
    idle.close()
    rest_of(used)
    clock.ms += 1_001
    scanners(node).expire()
    with pytest.raises(UnknownScannerId):
        used.more(call=used.call - 1)  # the last batch is not kept for ever
    clock.ms += 1_000
    scanners(node).expire()
    with pytest.raises(UnknownScannerId):
        idle.more()
    assert snapshots_open(node, kv) == 0


def test_expired_scans_make_room_before_somebody_is_refused(start: Callable[..., Node]) -> None:
    clock = MonotonicClock()
    node = start(
        clock=clock, kv_scanner_max_per_bucket=1, kv_scanner_expiration_interval_ms=3_600_000
    )
    kv = KvCaller(node.caller)
    kv.put(*ROWS)
    idle = open_scan(kv)
    clock.ms += 600_001
    rest_of(open_scan(kv))
    with pytest.raises(ScannerExpired):
        idle.more()


def test_idle_scans_are_looked_for_in_the_background(start: Callable[..., Node]) -> None:
    clock = MonotonicClock()
    node = start(clock=clock, kv_scanner_expiration_interval_ms=5)
    kv = KvCaller(node.caller)
    kv.put(*ROWS)
    scan = open_scan(kv)
    clock.ms += 600_001
    ended = threading.Event()
    while snapshots_open(node, kv):
        assert not ended.wait(0.01)
    with pytest.raises(ScannerExpired):
        scan.more()


# -- the store


def test_a_scanned_store_stays_open_however_many_others_are_used(
    start: Callable[..., Node],
) -> None:
    node = start(kv_max_open_tablets=1)
    kv = KvCaller(node.caller, bucket_count=6)
    kv.put(*ROWS)
    scan = open_scan(kv)
    for bucket in range(1, 6):
        kv.put((bucket, "t", 0), bucket=bucket)
    assert rows_of(kv, scan.first) + rest_of(scan) == ROWS
    for bucket in range(1, 6):
        assert len(rows_of(kv, begin(kv, bucket=bucket))) == 1


@pytest.mark.parametrize("how", ["closed", "dropped", "restarted"])
def test_scans_end_with_store_table_and_server(node: Node, kv: KvCaller, how: str) -> None:
    scans = [open_scan(kv), open_scan(kv)]
    error: type[Exception] = ScannerExpired
    if how == "closed":
        assert node.cluster._parts is not None
        bucket = TableBucket(kv.table_id, None, 0)
        with node.cluster._parts._replicas.exclusive(bucket):
            node.cluster._parts._kv._lost(bucket)
    elif how == "dropped":
        node.caller.drop_table(kv.path)
    else:
        node.restart()
        kv.caller, error = node.caller, UnknownScannerId
    assert scanners(node).open_scans == 0
    for scan in scans:
        with pytest.raises(error):
            scan.more()
    if how != "dropped":
        assert rows_of(kv, begin(kv)) == ROWS  # the store could be opened again
        assert snapshots_open(node, kv) == 0


def test_a_store_that_fails_ends_its_scans(node: Node, kv: KvCaller) -> None:
    scan = open_scan(kv)
    assert node.cluster._parts is not None
    tablets = node.cluster._parts._kv
    with tablets.leading(TableBucket(kv.table_id, None, 0)) as tablet:
        assert tablet._store is not None
        tablet._store.close()  # as if RocksDB had given up
    with pytest.raises(KvStorageError, match="cannot be read"):
        kv.put((2, "b", 2))
    with pytest.raises(ScannerExpired):
        scan.more()
    assert rows_of(kv, begin(kv)) == ROWS
    assert snapshots_open(node, kv) == 0


def test_a_damaged_block_is_an_error_and_never_the_end_of_a_scan(
    start: Callable[..., Node], tmp_path: Path
) -> None:
    node = start(kv_snapshot_interval_ms=0)
    kv = KvCaller(node.caller)
    rows = [(key, f"{key * 7919 % 10_007:0100}", key) for key in range(2_000)]
    kv.put(*rows)
    node.stop()
    damage(tmp_path / "data" / "kv")
    node.start()
    kv = KvCaller(node.caller, create=False)
    early = open_scan(kv)
    with pytest.raises(KvStorageError, match="Corruption"):
        rest_of(open_scan(kv), 1 << 10)
    assert scanners(node).open_scans == 0
    with pytest.raises(ScannerExpired):
        early.more()
    assert sorted(rows_of(kv, begin(kv))) == rows  # the store was made anew
    assert snapshots_open(node, kv) == 0
