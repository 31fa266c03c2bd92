"""Claims and ends of many tables, written down together on a server that keeps no statuses."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from sluice.client import Client
from sluice.client.admin.admin import Admin
from sluice.client.statuses.system_table import SystemTable
from sluice.client.tiering.idle import IdleCheck, Waiting
from sluice.errors import FencedTieringEpoch, RequestTimeOut
from sluice.model import Claim, Reason, TableBucket, TableInfo, TablePath, TieringRound
from sluice.statuses.freshness import FRESHNESS
from tests.support.statuses.status_shop import MINUTE_MS, Shop, status_shop

DONE = TieringRound(outcome="nothing_new", rows_written=0, lag_rows_before=0, worker="a run")


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with status_shop(tmp_path / "data") as shop:
        yield shop


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[TablePath, int]]:
    """The table and the number of rows of each write."""
    found = []
    upsert = SystemTable.upsert

    def counted(table: SystemTable[Any], rows: list[Any], *more: Any) -> None:
        found.append((table.layout.path, len(rows)))
        upsert(table, rows, *more)

    monkeypatch.setattr(SystemTable, "upsert", counted)
    return found


def claim_all(shop: Shop, client: Client, most: int = 100) -> list[Claim]:
    shop.clock.ms += MINUTE_MS
    with client.tiering.claim_session(by="run-1") as session:
        return sorted(session.take(most), key=lambda claim: claim.path)


def check(shop: Shop, client: Client, *claims: Claim) -> list[Waiting]:
    with IdleCheck(client.config, client._recorded, shop.clock) as idle:
        return [*idle.check(claims).values()]


def first_rounds(shop: Shop, *paths: TablePath) -> None:
    claims = claim_all(shop, shop.client)
    assert [claim.path for claim in claims] == [*paths]
    for number, claim in enumerate(claims):
        offsets = {TableBucket(claim.table_id, None, 0): 0}
        tiering = shop.client.tiering
        file = tiering.prepare_lake_snapshot(claim.table_id, claim.path, offsets)
        tiering.commit_lake_snapshot(claim, number + 1, file, offsets, {}, -1)
    shop.clock.ms += 1_000
    shop.client.tiering.finished_many([(claim, DONE) for claim in claims])


def test_many_claims_and_ends_are_few_writes(
    shop: Shop, writes: list[tuple[TablePath, int]]
) -> None:
    first_rounds(shop, *(shop.create(f"t{number}") for number in range(6)))
    writes.clear()
    client = shop.another()
    claims = claim_all(shop, client)
    statuses, rounds = TablePath("sluice", "tiering_status"), TablePath("sluice", "tiering_rounds")
    assert writes == [(statuses, 6)]
    assert all(waiting.is_idle for waiting in check(shop, client, *claims))
    client.tiering.finished_many([(claim, DONE) for claim in claims])
    assert sorted(writes[1:]) == [(rounds, 6), (statuses, 6)]


def test_tables_of_a_killed_run_are_described_together(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All reads before a claim share one time limit, however many claims the run had."""
    paths = [shop.create(f"t{number}", **{FRESHNESS: "1min"}) for number in range(6)]
    first_rounds(shop, *paths)
    lost = claim_all(shop, shop.another())
    shop.clock.ms += 5 * MINUTE_MS
    asked = []
    described = Admin.table_infos
    one = Admin.table_info

    def count_all(admin: Admin, some: Sequence[TablePath]) -> dict[TablePath, TableInfo]:
        asked.append(len(some))
        return described(admin, some)

    def count_one(admin: Admin, path: TablePath, *more: Any) -> TableInfo:
        if path.database == "shop":
            asked.append(1)
        return one(admin, path, *more)

    monkeypatch.setattr(Admin, "table_infos", count_all)
    monkeypatch.setattr(Admin, "table_info", count_one)
    claims = claim_all(shop, shop.another())
    assert [claim.path for claim in claims] == paths
    assert all(b.tiering_epoch > a.tiering_epoch for a, b in zip(lost, claims, strict=True))
    assert asked == [6]


def test_ends_that_are_written_together_are_as_those_of_one(shop: Shop) -> None:
    together, alone = shop.create("a"), shop.create("b")
    first_rounds(shop, together, alone)
    for _ in range(2):
        client = shop.another()
        one, other = claim_all(shop, client)
        shop.clock.ms += 5_000
        client.tiering.finished_many([(one, DONE)])
        client.tiering.finished(other, details=DONE)

    def of(path: TablePath) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        table_id = shop.client.admin.table_info(path).table_id
        [row] = [row for row in shop.stored() if row["table_id"] == table_id]
        rounds = shop.client.statuses.history(path)
        names = ("table_id", "table_name")
        return (
            {name: value for name, value in row.items() if name not in names},
            [{n: getattr(one, n) for n in one.__slots__ if n != "table_id"} for one in rounds],
        )

    assert of(together) == of(alone)
    status = shop.status(together)
    assert (status.status, status.rounds, status.last_tiered_ms) == (
        "Scheduled",
        3,
        shop.clock.ms,
    )
    assert status.last_round_ms == 5_000
    [last, *_] = shop.client.statuses.history(together)
    assert (last.outcome, last.rows_written, last.worker) == ("nothing_new", 0, "a run")
    assert last.round_number == 3


def test_of_several_ends_one_may_be_lost(shop: Shop) -> None:
    paths = [shop.create(name) for name in ("a", "b", "c")]
    first_rounds(shop, *paths)
    slow, other = shop.another(), shop.another()
    claims = claim_all(shop, slow)
    slow.tiering._give_back(claims[1], Reason.from_text("as Fluss does after two minutes"))
    [newer] = claim_all(shop, other)
    errors = slow.tiering.finished_many([(claim, DONE) for claim in claims])
    assert [type(error) for error in errors.values()] == [
        type(None),
        FencedTieringEpoch,
        type(None),
    ]
    assert [shop.status(path).status for path in paths] == ["Scheduled", "Tiering", "Scheduled"]
    assert other.tiering.finished_many([(newer, DONE)]) == {newer: None}


def test_paused_and_failing_tables_are_held_among_many(shop: Shop) -> None:
    paths = [shop.create(name) for name in ("a", "b", "c", "d")]
    first_rounds(shop, *paths)
    client = shop.another(tiering_backoff_ms=10 * MINUTE_MS)
    *others, failing = claim_all(shop, client)
    client.tiering.failed(failing, Reason.from_text("broken"))
    client.tiering.finished_many([(claim, DONE) for claim in others])
    client.statuses.pause(paths[0])
    assert [claim.path for claim in claim_all(shop, client)] == paths[1:3]


@pytest.mark.parametrize("end", ["failed", "nobody", "finished"])
def test_after_a_run_without_a_good_end_a_table_gets_a_round(shop: Shop, end: str) -> None:
    """Its round may have died between its two commits."""
    path = shop.create("orders")
    first_rounds(shop, path)
    [claim] = claim_all(shop, shop.another())
    if end == "failed":
        shop.another().tiering.failed(claim, Reason.from_text("DriverLost: no"))
    elif end == "finished":
        shop.another().tiering.finished(claim)
    shop.clock.ms += 5 * MINUTE_MS
    client = shop.another()
    [again] = claim_all(shop, client)
    [found] = check(shop, client, again)
    assert (found.rows, found.is_idle) == (0, end == "finished")
    client.tiering.finished(again)
    [third] = claim_all(shop, client)
    assert [waiting.is_idle for waiting in check(shop, client, third)] == [True]


def test_a_claim_that_another_process_recorded_is_no_proof(shop: Shop) -> None:
    path = shop.create("orders")
    first_rounds(shop, path)
    [claim] = claim_all(shop, shop.client)
    assert [w.is_idle for w in check(shop, shop.another(), claim)] == [False]
    assert [w.is_idle for w in check(shop, shop.client, claim)] == [True]


def test_ends_that_cannot_be_written_are_made_up_for(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    paths = [shop.create(name) for name in ("a", "b")]
    first_rounds(shop, *paths)
    claims = claim_all(shop, shop.client)

    def away(*asked: Any) -> None:
        raise RequestTimeOut("the table is away")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(SystemTable, "upsert", away)
        shop.clock.ms += 2_000
        ended_ms = shop.clock.ms
        assert set(shop.client.tiering.finished_many([(c, DONE) for c in claims]).values()) == {
            None
        }
    assert "cannot record the end of its round" in caplog.text
    assert [shop.status(path).status for path in paths] == ["Tiering", "Tiering"]
    shop.clock.ms += 2 * MINUTE_MS
    claim_all(shop, shop.client)
    assert [shop.status(path).last_tiered_ms for path in paths] == [ended_ms, ended_ms]
