"""What `sluice tier` says of a round's end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluice.cli.tiering.tier import ended, poll_interval_s, summary
from sluice.rounds.records.result import RoundResult


@pytest.mark.parametrize(
    ("outcome", "snapshot_id", "given_up", "told"),
    [
        ("committed", 7, False, "committed to the lake"),
        ("nothing_new", None, False, "no new rows"),
        ("already_landed", 7, False, "an earlier attempt of this round had committed"),
        ("claim_lost", 7, False, "committed to the lake; the claim was lost before the"),
        ("claim_lost", None, True, "nothing was committed: the claim was lost; the next round"),
    ],
)
def test_a_lost_claim_says_whether_its_rows_are_in_the_lake(
    outcome: str, snapshot_id: int | None, given_up: bool, told: str
) -> None:
    result = RoundResult("shop.orders", 0, 1, 1, outcome, lake_snapshot_id=snapshot_id)
    assert (ended(result).startswith(told), result.is_given_up) == (True, given_up)


def test_no_next_round_is_promised_for_a_dropped_table() -> None:
    lost = RoundResult("shop.gone", 3, 1, 1, "claim_lost", table_dropped=True)
    assert summary(lost, 3.6) == (
        "shop.gone: nothing was committed: the table was dropped during the round, 3.6 s"
    )
    assert ended(replace(lost, lake_snapshot_id=7)) == (
        "committed to the lake; the table was dropped before the registration with Fluss"
    )


def test_a_round_is_one_line() -> None:
    done = RoundResult(
        "shop.orders", 0, 1, 1, "committed", rows=1, bytes_written=1_934, files=1,
        lake_snapshot_id=7, seconds={"total": 1.12},
    )  # fmt: skip
    assert summary(done, 3.71) == (
        "shop.orders: committed to the lake: 1 row, 1 file, 1.9 kB, lake snapshot id 7, 3.7 s"
    )
    many = replace(done, rows=2_000, files=3, deletes=12, bytes_written=999)
    assert "2,000 rows, 12 keys deleted or changed, 3 files, 999 bytes," in summary(many, 1)
    assert summary(replace(many, deletes_as="positions"), 1) == summary(many, 1)
    why = "equality deletes (tiering.position_lookup_bytes is 0)"
    assert f" 12 keys deleted or changed by {why}, 3 files," in summary(
        replace(many, deletes_as=why), 1
    )
    nothing = RoundResult("shop.orders", 0, 1, 1, "nothing_new", lake_snapshot_id=None)
    assert summary(nothing, 0.98) == "shop.orders: no new rows, 1.0 s"
    compacted = replace(nothing, compacted="3 data files of 1 bucket were rewritten as 1")
    compacted = replace(compacted, files_compacted=3, lake_snapshot_id=7)  # an older snapshot
    assert summary(compacted, 0.98) == (
        "shop.orders: no new rows: 3 data files of 1 bucket were rewritten as 1, 1.0 s"
    )


def test_who_waits_asks_often_at_first_and_seldom_in_the_end() -> None:
    looks, now_s = 0, 0.0
    while now_s < 600:
        pause_s = poll_interval_s(now_s)
        assert pause_s <= max(0.5, now_s / 10)  # nobody waits a tenth longer than the table does
        now_s += pause_s
        looks += 1
    assert looks < 100  # it was 1,200
    assert poll_interval_s(86_400) == 10
