"""The rules of scan sessions: what a call may ask and gets, how many there may be, how one ends."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.errors import InvalidScanRequest, ScannerExpired, TooManyScanners, UnknownScannerId
from sluice.model import TableBucket
from sluice.scans import (
    CloseScan,
    ContinueScan,
    OpenScan,
    Replies,
    Reply,
    ScanLimits,
    ScanRange,
    Session,
    Sessions,
    opened,
    request_of,
)

BUCKET, OTHER = TableBucket(1, None, 0), TableBucket(1, None, 1)
NOTHING: dict[str, Any] = {
    "scanner_id": None,
    "bucket": None,
    "limit": None,
    "call_seq_id": None,
    "batch_bytes": None,
    "close": False,
    "wanted_id": None,
}


def asked(**fields: Any) -> OpenScan | ContinueScan | CloseScan:
    return request_of(**{**NOTHING, **fields})


def session(scanner_id: bytes = b"s", bucket: TableBucket = BUCKET) -> Session:
    found = opened(scanner_id, bucket, 7, None, 10, b"k10")
    assert found is not None
    return found


# -- requests


def test_what_a_call_asks_for() -> None:
    assert asked(bucket=BUCKET, call_seq_id=0, batch_bytes=5) == OpenScan(BUCKET, None, 5)
    assert asked(bucket=BUCKET, call_seq_id=0, batch_bytes=5, limit=3) == OpenScan(BUCKET, 3, 5)
    for limit in (0, -1):
        same = asked(bucket=BUCKET, call_seq_id=0, batch_bytes=5, limit=limit)
        assert same == OpenScan(BUCKET, None, 5)
    assert asked(scanner_id=b"s", call_seq_id=4, batch_bytes=5) == ContinueScan(b"s", 4, 5)
    wanted = asked(bucket=BUCKET, call_seq_id=0, batch_bytes=5, wanted_id=b"w" * 16)
    assert wanted == OpenScan(BUCKET, None, 5, b"w" * 16)
    assert asked(scanner_id=b"s", close=True) == CloseScan(b"s")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"call_seq_id": 0, "batch_bytes": 1}, "neither bucket_scan_req nor scanner_id"),
        (
            {"bucket": BUCKET, "scanner_id": b"s", "call_seq_id": 0, "batch_bytes": 1},
            "both bucket_scan_req and scanner_id|close_scanner",
        ),
        ({"bucket": BUCKET, "close": True}, "close_scanner without scanner_id"),
        (
            {"bucket": BUCKET, "scanner_id": b"s", "close": True},
            "both bucket_scan_req and scanner_id|close_scanner",
        ),
        ({"close": True}, "close_scanner without scanner_id"),
        ({"bucket": BUCKET, "call_seq_id": 0}, "batch_size_bytes = None"),
        ({"bucket": BUCKET, "call_seq_id": 0, "batch_bytes": 0}, "batch_size_bytes = 0"),
        ({"scanner_id": b"s", "call_seq_id": 1, "batch_bytes": -1}, "batch_size_bytes = -1"),
        ({"bucket": BUCKET, "batch_bytes": 1}, "call_seq_id is missing"),
        ({"scanner_id": b"s", "batch_bytes": 1}, "call_seq_id is missing"),
        ({"bucket": BUCKET, "call_seq_id": 1, "batch_bytes": 1}, "start at 0"),
        (
            {"bucket": BUCKET, "call_seq_id": 0, "batch_bytes": 1, "wanted_id": b"short"},
            "has 5 bytes: send 16 to 64 random",
        ),
    ],
)
def test_what_a_call_may_not_ask(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidScanRequest, match=words):
        asked(**fields)


# -- one session


def test_calls_go_on_one_by_one_and_the_last_may_be_repeated() -> None:
    scan = session()
    assert scan.scan_range(1) == ScanRange(1, b"k10", None)
    for wrong in (-1, 2, 3):
        with pytest.raises(
            InvalidScanRequest, match=r"send 1 for the next batch .* 0 for the last one"
        ):
            scan.scan_range(wrong)
    assert scan.scan_range(0) == ScanRange(0, None, 10, is_repeat=True)
    after = scan.after(scan.scan_range(1), 4, b"k14")
    assert after is not None
    assert after.scan_range(1) == ScanRange(1, b"k10", 4, is_repeat=True)
    assert after.scan_range(2) == ScanRange(2, b"k14", None)
    assert after.after(after.scan_range(1), 4, b"k14") is after  # a repeat moves nothing


def test_a_limit_ends_a_scan() -> None:
    assert opened(b"s", BUCKET, 0, 3, 3, b"more") is None
    scan = opened(b"s", BUCKET, 0, 5, 3, b"k")
    assert scan is not None
    assert scan.scan_range(1).rows_max == 2
    assert scan.after(scan.scan_range(1), 2, b"more") is None
    again = scan.after(scan.scan_range(1), 1, b"m")
    assert again is not None
    assert again.scan_range(2).rows_max == 1


def test_the_end_of_the_rows_ends_a_scan() -> None:
    assert opened(b"s", BUCKET, 0, None, 3, None) is None
    scan = session()
    assert scan.after(scan.scan_range(1), 1, None) is None


@given(
    rows=st.integers(1, 60),
    limit=st.none() | st.integers(1, 70),
    sizes=st.lists(st.integers(1, 9), min_size=1),
    repeats=st.lists(st.booleans(), min_size=1),
)
def test_every_row_comes_once_however_often_calls_are_repeated(
    rows: int, limit: int | None, sizes: list[int], repeats: list[bool]
) -> None:
    keys = [b"%03d" % at for at in range(rows)]

    def read(scan_range: ScanRange, size: int) -> tuple[list[bytes], bytes | None]:
        at = 0 if scan_range.start is None else keys.index(scan_range.start)
        wanted = size if not scan_range.is_repeat else rows
        most = min(wanted, rows if scan_range.rows_max is None else scan_range.rows_max)
        rest = keys[at + most :]
        return keys[at : at + most], rest[0] if rest else None

    first, following = read(ScanRange(0, None, limit), sizes[0])
    scan = opened(b"s", BUCKET, 0, limit, len(first), following)
    got, last, call = list(first), first, 1
    while scan is not None:
        if repeats[call % len(repeats)]:
            scan_range = scan.scan_range(call - 1)
            again, following = read(scan_range, sizes[(call * 3) % len(sizes)])
            assert again == last
            scan = scan.after(scan_range, len(again), following)
            assert scan is not None
        scan_range = scan.scan_range(call)
        last, following = read(scan_range, sizes[call % len(sizes)])
        scan = scan.after(scan_range, len(last), following)
        got, call = got + last, call + 1
    assert got == keys[:limit]


# -- all sessions


def begun(sessions: Sessions, scanner_id: bytes, bucket: TableBucket, now_s: float) -> None:
    sessions.reserve(bucket)
    sessions.begin(session(scanner_id, bucket), now_s)


def test_places_are_limited_per_bucket_and_per_server() -> None:
    sessions = Sessions(ScanLimits(per_bucket_max=2, per_server_max=3))
    begun(sessions, b"a", BUCKET, 0)
    sessions.reserve(BUCKET)  # one under way counts already
    with pytest.raises(TooManyScanners, match="2 scans of it .* kv_scanner_max_per_bucket"):
        sessions.reserve(BUCKET)
    begun(sessions, b"b", OTHER, 0)
    with pytest.raises(TooManyScanners, match="3 scans .* kv_scanner_max_per_server"):
        sessions.reserve(OTHER)
    sessions.release(BUCKET)
    sessions.reserve(OTHER)
    sessions.end(b"a")
    sessions.reserve(BUCKET)
    assert sessions.reserved == 3


def test_who_ends_a_session_decides_what_its_client_hears() -> None:
    sessions = Sessions(ScanLimits(ttl_ms=1_000))
    begun(sessions, b"closed", BUCKET, 0)
    begun(sessions, b"lost", BUCKET, 0)
    assert sessions.end(b"closed") is not None
    assert sessions.end(b"lost", 5.0, "its leader moved") is not None
    assert sessions.end(b"lost", 5.0, "again") is None
    with pytest.raises(UnknownScannerId, match="unknown scan closed"):
        sessions.find(b"closed")
    with pytest.raises(ScannerExpired, match="lost was ended: its leader moved"):
        sessions.find(b"lost")
    sessions.forget(7.0)
    with pytest.raises(ScannerExpired):
        sessions.find(b"lost")
    sessions.forget(7.1)
    with pytest.raises(UnknownScannerId):
        sessions.find(b"lost")
    assert sessions.reserved == 0


def test_only_sessions_that_nobody_calls_are_idle() -> None:
    sessions = Sessions(ScanLimits(ttl_ms=1_000))
    begun(sessions, b"a", BUCKET, 0)
    begun(sessions, b"b", BUCKET, 0)
    sessions.touch(b"b", 0.5)
    assert sessions.idle(1.0) == []
    assert sessions.idle(1.2) == [b"a"]
    assert sorted(sessions.idle(1.6)) == [b"a", b"b"]


def test_no_more_ends_are_remembered_than_there_is_room_for() -> None:
    sessions = Sessions(ScanLimits())
    for number in range(10_001):
        begun(sessions, b"%d" % number, BUCKET, 0)
        sessions.end(b"%d" % number, 0, "gone")
    with pytest.raises(UnknownScannerId):
        sessions.find(b"0")
    with pytest.raises(ScannerExpired):
        sessions.find(b"1")


# -- last batches


def test_replies_stay_within_their_bytes() -> None:
    replies = Replies(10, 1_000)
    for name in (b"a", b"b", b"c"):
        replies.keep(name, Reply(3, b"1234"), 0)
    assert replies.find(b"a", 3) is None
    assert replies.find(b"b", 3) == Reply(3, b"1234")
    assert replies.find(b"c", 2) is None
    replies.keep(b"large", Reply(1, b"x" * 11), 0)
    assert replies.find(b"large", 1) is None
    assert replies.size_bytes == 8
    replies.drop(b"b")
    replies.drop(b"b")
    replies.forget(1.0)
    assert replies.size_bytes == 4
    replies.forget(1.1)
    assert replies.size_bytes == 0
