"""A round in one line, for logs."""

from dataclasses import replace

import pytest

from sluice.model import Claim, Reason, TablePath
from sluice.rounds.commit.files import DeletesReport
from sluice.rounds.records.log_line import deleted_keys, failure_line, rate, result_line
from sluice.rounds.records.result import RoundFailure, RoundResult

CLAIM = Claim(7, TablePath("shop", "orders"), 3, 1)
SECONDS = {"recover": 0.2, "plan": 0.04, "copy": 1.06, "lake_commit": 0.5, "total": 2.14}
COMMITTED = RoundResult.of(
    CLAIM,
    "committed",
    rows=1200,
    lake_snapshot_id=5,
    bytes_written=4_800_000,
    files=1,
    seconds=SECONDS,
)


def test_a_committed_round() -> None:
    assert result_line(COMMITTED) == (
        "shop.orders: committed, 1,200 rows in 2.1 s (recover 0.2, plan 0.0, copy 1.1,"
        " lake_commit 0.5), 561 a second, lake snapshot 5, 4.8 MB in 1 file"
    )
    short = "shop.orders: committed, 1,200 rows, lake snapshot 5, 4.8 MB in 1 file"
    assert result_line(COMMITTED, phases=False) == short
    assert result_line(replace(COMMITTED, seconds={})) == short
    assert "1 row in 2.1 s" in result_line(replace(COMMITTED, rows=1))
    assert "in 4 files" in result_line(replace(COMMITTED, files=4))


def test_a_round_that_expired_snapshots() -> None:
    expired = replace(COMMITTED, snapshots_expired=1, seconds={"expire": 0.3, "total": 2.0})
    assert result_line(expired) == (
        "shop.orders: committed, 1,200 rows in 2.0 s (expire 0.3), 600 a second, lake snapshot 5,"
        " 4.8 MB in 1 file, 1 old snapshot expired"
    )
    assert result_line(replace(expired, snapshots_expired=6)).endswith("6 old snapshots expired")


def test_keys_that_were_not_deleted_by_position() -> None:
    """The usual case, and results of older versions, have no more words than before."""
    why = "bucket 1: no bounds"
    usual = str(DeletesReport(position_buckets=2))
    all_of_them = str(DeletesReport(equality_buckets=2, why_equality=why))
    some = str(DeletesReport(position_buckets=3, equality_buckets=1, why_equality=why))
    for deletes_as in (usual, ""):
        result = replace(COMMITTED, deletes=12, deletes_as=deletes_as)
        assert result_line(result) == result_line(COMMITTED)
        assert deleted_keys(result) == "12 keys deleted or changed"
    for deletes_as, how in (
        (all_of_them, f"equality deletes ({why})"),
        (some, f"positions in 3 of 4 buckets, equality deletes in the others ({why})"),
    ):
        result = replace(COMMITTED, deletes=1, deletes_as=deletes_as)
        assert result_line(result, phases=False) == (
            f"shop.orders: committed, 1,200 rows, 1 key deleted or changed by {how},"
            " lake snapshot 5, 4.8 MB in 1 file"
        )


def test_a_round_without_anything_to_commit() -> None:
    result = RoundResult.of(CLAIM, "nothing_new", seconds=SECONDS)
    assert result_line(result) == "shop.orders: nothing_new"


def test_a_failure() -> None:
    reason = Reason("LakeNotWritable", "create lake table shop.orders: Access Denied")
    failure = RoundFailure(reason, {"recover": 0.2, "total": 0.3})
    text = "LakeNotWritable: create lake table shop.orders: Access Denied"
    expected = f"shop.orders: failed after 0.3 s (recover 0.2): {text}"
    assert failure_line("shop.orders", failure) == expected
    assert failure_line("shop.orders", RoundFailure(reason)) == f"shop.orders: failed: {text}"


@pytest.mark.parametrize(
    ("count", "text"), [(999, "999 bytes"), (8_260, "8.3 kB"), (2_400_000_000, "2.4 GB")]
)
def test_sizes(count: int, text: str) -> None:
    assert f", {text} in 1 file" in result_line(replace(COMMITTED, bytes_written=count))


@pytest.mark.parametrize(
    ("count", "seconds", "text"), [(90_000, 2.0, ", 45,000 a second"), (9, 0.04, ""), (0, 0.0, "")]
)
def test_rate(count: int, seconds: float, text: str) -> None:
    assert rate(count, seconds) == text
