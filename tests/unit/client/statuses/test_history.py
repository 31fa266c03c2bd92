"""The history of rounds, on a server that keeps it and on one that has no more calls than Fluss."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sluice.client import Client
from sluice.client.admin.admin import Admin
from sluice.client.statuses.round_table import LAYOUT, PATH, RoundTable
from sluice.client.statuses.status_table import PATH as STATUSES
from sluice.client.statuses.status_table import StatusTable
from sluice.clock import Clock
from sluice.config import ClientConfig, ServerConfig
from sluice.errors import AuthorizationError, InvalidTable, RequestTimeOut, TableNotExist
from sluice.model import Claim, Reason, TableDescriptor, TablePath, TieringRound
from sluice.model.round_record import ROUNDS_KEPT
from sluice.server.cluster import EmbeddedCluster
from tests.support.fluss.table_creation import create_table
from tests.support.statuses.status_shop import (
    LAKE,
    MINUTE_MS,
    SCHEMA,
    OwnClock,
    Shop,
    foreign,
    status_shop,
)

DETAILS = TieringRound(
    outcome="committed", rows_written=7, keys_deleted=2, files_written=3, bytes_read=100,
    bytes_written=90, lag_rows_before=7, lag_rows_after=1, lake_snapshot_id=1 << 60, recover_ms=1,
    plan_ms=2, copy_ms=3, prepare_ms=4, lake_commit_ms=5, fluss_commit_ms=6, note="ended early",
    worker="manual__2026", deletes_as="equality deletes (no bounds)", lookup_files=8,
    lookup_bytes=1 << 33, lookup_ms=9, snapshots_expired=6, files_expired=12, expire_ms=7,
    lake_rows=900, lake_files=12, lake_bytes=1 << 40, airflow_task="sluice_tier/run/tier/0/1",
    spark_application="app-1",
)  # fmt: skip
FROM_WORKER = [
    "outcome", "rows_written", "keys_deleted", "files_written", "bytes_read", "bytes_written",
    "lag_rows_before", "lag_rows_after", "lake_snapshot_id", "recover_ms", "plan_ms", "copy_ms",
    "prepare_ms", "lake_commit_ms", "fluss_commit_ms", "note", "worker", "deletes_as",
    "lookup_files", "lookup_bytes", "lookup_ms", "snapshots_expired", "files_expired", "expire_ms",
    "lake_rows", "lake_files", "lake_bytes", "airflow_task", "spark_application",
]  # fmt: skip


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Shop]:
    with status_shop(tmp_path / "data") as shop:
        yield shop


@pytest.fixture(params=["embedded", "plain"])
def shop(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Shop]:
    if request.param == "plain":
        yield request.getfixturevalue("plain")
        return
    clock = OwnClock()
    with keeping(tmp_path, clock) as cluster, Client(ClientConfig(cluster.address)) as client:
        yield EmbeddedShop(cluster, clock, client)


class EmbeddedShop(Shop):
    """The same calls on a server that keeps statuses itself."""

    __repr__ = object.__repr__

    def __init__(self, cluster: EmbeddedCluster, clock: OwnClock, client: Client) -> None:
        self.cluster, self.clock, self.client = cluster, clock, client
        client.admin.create_database("shop")

    def another(self, **settings: Any) -> Client:
        return self.client


def keeping(folder: Path, clock: Clock) -> EmbeddedCluster:
    config = ServerConfig(data_dir=str(folder / "data"), listen="grpc://127.0.0.1:0")
    return EmbeddedCluster(config, clock=clock)


def test_a_round_is_kept_with_all_that_it_did(shop: Shop) -> None:
    path = shop.create("orders")
    assert shop.client.statuses.history(path) == []
    claim = shop.claim(path)
    claimed_ms = shop.clock.ms
    shop.clock.ms += 1_500
    shop.client.tiering.finished(claim, details=DETAILS)
    (seen,) = shop.client.statuses.history(path)
    assert [getattr(seen, n) for n in FROM_WORKER] == [getattr(DETAILS, n) for n in FROM_WORKER]
    assert (seen.table_id, seen.round_number) == (claim.table_id, 1)
    epochs = (seen.coordinator_epoch, seen.tiering_epoch)
    assert epochs == (claim.coordinator_epoch, claim.tiering_epoch)
    assert (seen.started_ms, seen.ended_ms) == (claimed_ms, shop.clock.ms)
    assert (seen.succeeded, seen.duration_ms, seen.reason) == (True, 1_500, None)


def test_the_status_says_how_the_last_keys_were_deleted(shop: Shop) -> None:
    """Also of a round that failed after it had committed other buckets."""
    path, tiering = shop.create("orders"), shop.client.tiering
    assert shop.status(path).deletes_as is None
    tiering.finished(shop.claim(path), details=replace(DETAILS, deletes_as="positions"))
    assert shop.status(path).deletes_as == "positions"
    tiering.failed(shop.claim(path), Reason.from_text("no such bucket"), DETAILS)
    assert shop.status(path).deletes_as == "equality deletes (no bounds)"
    for details in (TieringRound(keys_deleted=0), None):
        tiering.finished(shop.claim(path), details=details)
        assert shop.status(path).deletes_as == "equality deletes (no bounds)"


def test_the_status_says_how_large_the_lake_table_is(shop: Shop) -> None:
    """As the last round told that did: an older worker, or one that failed, does not."""
    path, tiering = shop.create("orders"), shop.client.tiering

    def size() -> tuple[int | None, ...]:
        status = shop.status(path)
        return status.lake_rows, status.lake_files, status.lake_bytes

    assert size() == (None, None, None)
    tiering.finished(shop.claim(path), details=DETAILS)
    assert size() == (900, 12, 1 << 40)
    tiering.finished(shop.claim(path), details=TieringRound(outcome="nothing_new"))
    tiering.failed(shop.claim(path), Reason.from_text("no such bucket"), TieringRound())
    assert size() == (900, 12, 1 << 40)
    told = replace(DETAILS, lake_rows=0, lake_files=0, lake_bytes=0)
    tiering.failed(shop.claim(path), Reason.from_text("no such bucket"), told)
    assert size() == (0, 0, 0)


@pytest.mark.parametrize("failed", [False, True], ids=["finished", "failed after its commit"])
def test_a_requested_compaction_stays_until_a_round_has_completed_it(
    shop: Shop, failed: bool
) -> None:
    path, client = shop.create("orders"), shop.client
    client.statuses.request_compaction(path)
    asked_ms = shop.clock.ms
    assert shop.status(path).compaction_requested_ms == asked_ms
    claim = shop.claim(path)
    for anyone in (client, shop.another()):
        assert anyone.tiering.compaction_requested_ms(claim) == asked_ms
    end(client, claim, None, failed=failed)  # it was beyond the budget
    claim = shop.claim(path)
    client.statuses.request_compaction(path)  # again, while a round carries out the first
    end(client, claim, asked_ms, failed=failed)
    again_ms = shop.clock.ms
    assert shop.status(path).compaction_requested_ms == again_ms
    claim = shop.claim(path)
    assert client.tiering.compaction_requested_ms(claim) == again_ms
    end(client, claim, again_ms, failed=failed)
    assert shop.status(path).compaction_requested_ms is None
    assert client.tiering.compaction_requested_ms(shop.claim(path)) is None
    newest, *_ = client.statuses.history(path)
    assert newest.compaction_request_ms == again_ms
    other = shop.create("log", **{"table.datalake.enabled": "false"})
    with pytest.raises(InvalidTable, match="is not tiered"):
        client.statuses.request_compaction(other)


def end(client: Client, claim: Claim, done_ms: int | None, *, failed: bool) -> None:
    """The end of a round that has completed a requested compaction."""
    details = TieringRound(compaction_request_ms=done_ms)
    if failed:
        client.tiering.failed(claim, Reason.from_text("no such bucket"), details)
        client.statuses.retry(claim.path)
    else:
        client.tiering.finished(claim, details=details)


def test_a_failed_round_is_kept_with_its_reason(shop: Shop) -> None:
    path = shop.create("orders")
    shop.client.tiering.failed(
        shop.claim(path), Reason.from_text("no such bucket"), TieringRound(plan_ms=4)
    )
    (seen,) = shop.client.statuses.history(path)
    assert (seen.succeeded, seen.reason, seen.plan_ms) == (False, "no such bucket", 4)


def test_a_round_without_details_is_kept_too(shop: Shop) -> None:
    path = shop.create("orders")
    shop.client.tiering.finished(shop.claim(path))
    (seen,) = shop.client.statuses.history(path)
    assert (seen.outcome, seen.rows_written, seen.copy_ms) == ("finished", None, None)


def test_a_round_whose_worker_was_lost_is_kept(shop: Shop) -> None:
    path = shop.create("orders")
    shop.claim(path)
    shop.clock.ms += 3 * MINUTE_MS
    shop.client.statuses.list()  # the embedded server notices the loss here
    shop.client.tiering.release(shop.claim(path), Reason.from_text("only looked"))
    (seen,) = shop.client.statuses.history(path)
    assert not seen.succeeded
    assert seen.reason is not None
    assert "is considered lost" in seen.reason


def test_the_newest_come_first_and_a_released_claim_is_no_round(shop: Shop) -> None:
    path, other = shop.create("orders"), shop.create("other")
    for _ in range(3):
        shop.client.tiering.finished(shop.claim(path))
    shop.client.tiering.release(shop.claim(path), Reason.from_text("only looked"))
    shop.client.tiering.finished(shop.claim(other))
    numbers = [each.round_number for each in shop.client.statuses.history(path, 2)]
    assert numbers == [3, 2]
    all_of_them = [(p, each.round_number) for p, each in shop.client.statuses.histories()]
    assert sorted(all_of_them) == [(path, 1), (path, 2), (path, 3), (other, 1)]
    assert [p for p, _ in shop.client.statuses.histories(1)] == [path, other]
    with pytest.raises(TableNotExist):
        shop.client.statuses.history(TablePath("shop", "nothing"))


@pytest.mark.slow
def test_a_bounded_number_of_rounds_is_kept(shop: Shop) -> None:
    path = shop.create("orders")
    for _ in range(ROUNDS_KEPT + 3):
        shop.client.tiering.finished(shop.claim(path))
    numbers = [each.round_number for each in shop.client.statuses.history(path, 1_000)]
    assert numbers == [*range(ROUNDS_KEPT + 3, 3, -1)]
    assert shop.status(path).rounds == ROUNDS_KEPT + 3


def test_an_end_that_is_reported_twice_is_one_round(shop: Shop) -> None:
    path = shop.create("orders")
    claim = shop.claim(path)
    shop.client.tiering.finished(claim, details=DETAILS)
    shop.another().tiering.finished(claim, details=DETAILS)
    assert [each.round_number for each in shop.client.statuses.history(path)] == [1]


def test_the_history_goes_with_its_table(shop: Shop) -> None:
    path, other = shop.create("orders"), shop.create("other")
    shop.client.tiering.finished(shop.claim(path))
    shop.client.admin.drop_table(path)
    shop.create("orders")
    shop.another().tiering.finished(shop.claim(other))  # tidies where rounds keep the history
    assert shop.client.statuses.history(path) == []
    assert [p for p, _ in shop.client.statuses.histories()] == [other]


def test_the_history_survives_a_restart(tmp_path: Path) -> None:
    clock = OwnClock()
    path = TablePath("shop", "orders")
    for number in (1, 2):
        with keeping(tmp_path, clock) as cluster, Client(ClientConfig(cluster.address)) as client:
            client.admin.create_database("shop", ignore_if_exists=True)
            if number == 1:
                create_table(client, path, TableDescriptor(SCHEMA, properties=LAKE))
            clock.ms += MINUTE_MS
            claim = client.tiering.claim([path])
            assert claim is not None
            client.tiering.finished(claim)
            found = [each.round_number for each in client.statuses.history(path)]
            assert found == [*range(number, 0, -1)]


def test_a_round_needs_no_history(
    plain: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path, other = plain.create("orders"), plain.create("other")
    claims = [plain.claim(path), plain.claim(other)]

    def away(*asked: Any) -> None:
        raise RequestTimeOut("the table is away")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "sluice.client"):
        patch.setattr(RoundTable, "write", away)
        for claim in claims:  # the second write is not tried
            plain.client.tiering.finished(claim, details=DETAILS)
    (warning,) = [r.getMessage() for r in caplog.records if r.name.startswith("sluice.client")]
    assert "in table sluice.tiering_rounds, so `sluice history` lacks a round" in warning
    assert plain.status(path).status == "Scheduled"
    assert plain.client.statuses.history(path) == []
    plain.another().tiering.finished(plain.claim(path))
    assert [each.round_number for each in plain.client.statuses.history(path)] == [2]


def test_a_round_is_kept_without_its_status(plain: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    path = plain.create("orders")

    def away(*asked: Any) -> None:
        raise RequestTimeOut("the table is away")

    claim = plain.claim(path)
    with monkeypatch.context() as patch:
        patch.setattr(StatusTable, "upsert", away)
        plain.another().tiering.finished(claim)
    plain.another().tiering.failed(plain.claim(path), Reason.from_text("no such bucket"))
    seen = [(each.round_number, each.succeeded) for each in plain.client.statuses.history(path)]
    assert seen == [(2, False), (1, True)]
    assert plain.status(path).rounds == 2


LATER = ("copy_ms", "deletes_as", "lookup_files", "lookup_bytes", "lookup_ms", "expire_ms")
"""Columns that tables of older versions lack."""


def older_table(shop: Shop, path: TablePath) -> None:
    """Creates the table of rounds as an older version did, with a round of that version."""
    shop.client.admin.create_database("sluice", ignore_if_exists=True)
    descriptor = LAYOUT.descriptor
    kept = tuple(column for column in descriptor.schema.columns if column.name not in LATER)
    schema = replace(descriptor.schema, columns=kept, highest_field_id=len(kept) - 1)
    shop.client.admin.create_table(PATH, replace(descriptor, schema=schema))
    table_id = shop.client.admin.table_info(path).table_id
    values = {"table_id": table_id, "slot": 1, "round_number": 1, "keys_deleted": 4}
    with shop.client.kv_writer(PATH, [*values]) as writer:
        writer.upsert(LAYOUT.columns_of([values]))


def test_rounds_of_an_older_version_are_completed(plain: Shop) -> None:
    path = plain.create("orders")
    older_table(plain, path)
    plain.client.tiering.finished(plain.claim(path), details=DETAILS)
    seen, older = plain.client.statuses.history(path)
    assert [getattr(seen, name) for name in LATER] == [getattr(DETAILS, name) for name in LATER]
    assert (seen.rows_written, seen.round_number, older.round_number) == (7, 2, 1)
    assert (older.keys_deleted, [getattr(older, n) for n in LATER]) == (4, [None] * len(LATER))


def test_rounds_of_an_older_version_that_nobody_may_complete_go_on(
    plain: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = plain.create("orders")
    older_table(plain, path)

    def forbidden(*asked: Any) -> None:
        raise AuthorizationError("no right to alter the table")

    monkeypatch.setattr(Admin, "add_columns", forbidden)
    plain.client.tiering.finished(plain.claim(path), details=DETAILS)
    seen, older = plain.client.statuses.history(path)
    assert (seen.rows_written, seen.keys_deleted, older.keys_deleted) == (7, 2, 4)
    assert [getattr(seen, name) for name in LATER] == [None] * len(LATER)


def test_a_foreign_table_of_rounds_costs_no_status(plain: Shop) -> None:
    path, gone, other = plain.create("orders"), plain.create("gone"), plain.create("other")
    plain.another().tiering.finished(plain.claim(gone))
    plain.client.admin.drop_table(gone)
    plain.client.admin.drop_table(PATH)
    plain.client.admin.create_table(PATH, TableDescriptor(SCHEMA, bucket_count=1))
    one = plain.another()
    for each in (path, other):
        one.tiering.finished(plain.claim(each, one))
        assert plain.status(each).status == "Scheduled"
    assert {row["table_name"] for row in plain.stored()} == {"orders", "other"}


def test_rounds_after_lost_statuses_are_the_newest(plain: Shop) -> None:
    path = plain.create("orders")
    for rows in (1, 2, 3):
        details = TieringRound(outcome="committed", rows_written=rows)
        plain.client.tiering.finished(plain.claim(path), details=details)
    plain.client.admin.drop_table(STATUSES)
    plain.another().tiering.finished(plain.claim(path, plain.another()))
    numbers = [each.round_number for each in plain.client.statuses.history(path)]
    assert numbers == [4, 3, 2, 1]
    assert plain.status(path).rounds == 4


def test_rounds_are_numbered_though_the_status_cannot_count_them(
    plain: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = plain.create("orders")
    plain.client.admin.create_database("sluice", ignore_if_exists=True)
    plain.client.admin.create_table(STATUSES, foreign(rounds=None))
    asked: list[Any] = []

    def forbidden(admin: Admin, path: TablePath, columns: Any) -> None:
        asked.append(path)
        raise AuthorizationError("no right to alter the table")

    monkeypatch.setattr(Admin, "add_columns", forbidden)
    for _ in range(3):
        plain.client.tiering.finished(plain.claim(path))
    numbers = [each.round_number for each in plain.client.statuses.history(path)]
    assert numbers == [3, 2, 1]
    assert asked == [STATUSES], "a refusal is remembered"


def test_what_a_worker_reports_is_made_safe(tmp_path: Path) -> None:
    clock = OwnClock()
    with keeping(tmp_path, clock) as cluster, Client(ClientConfig(cluster.address)) as client:
        shop = EmbeddedShop(cluster, clock, client)
        path = shop.create("orders")
        said = TieringRound(
            outcome="failed",
            rows_written=-5,
            note="password=planted " * 100_000,
            worker="w" * 100_000,
            reason="theirs",
        )
        client.tiering.finished(shop.claim(path), details=said)
        (seen,) = client.statuses.history(path)
    assert (seen.outcome, seen.rows_written, seen.reason) == ("finished", 0, None)
    assert "planted" not in (seen.note or "")
    assert max(len(seen.note or ""), len(seen.worker or "")) == 500
