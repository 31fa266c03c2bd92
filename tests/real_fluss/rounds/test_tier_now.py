"""`sluice tier --now` and `sluice retier` on a real Fluss, which has no call for either."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from sluice.client import Client, connect
from sluice.driver.local import tier_once
from sluice.driver.not_due import claim_table
from sluice.errors import FencedTieringEpoch, TableNotDue
from sluice.model import Claim, Reason, TablePath
from sluice.rounds.records.result import RoundResult
from sluice.wire import fluss_api_pb2 as pb
from tests.real_fluss.place import ROWS, Place

pytestmark = [pytest.mark.real_fluss, pytest.mark.spark, pytest.mark.timeout(600)]

DAY = {"table.datalake.freshness": "1d"}
"""Longer than any test: whatever is handed out was made due."""


def create(place: Place, name: str = "orders") -> TablePath:
    """A table with three rows that Fluss hands out tomorrow."""
    return place.create(name, freshness="1d")


def now(place: Place, path: TablePath) -> RoundResult:
    return tier_once(place.config, path, now=True, jvm=place.jvm)


def not_tiered(place: Place, path: TablePath, match: str) -> TableNotDue:
    with pytest.raises(TableNotDue, match=match) as caught:
        now(place, path)
    return caught.value


def append(place: Place, path: TablePath) -> None:
    with place.client.log_writer(path) as writer:
        writer.write(ROWS)


def unwritten(place: Place, path: TablePath) -> Claim:
    """A claim of which no status says anything, as another tiering service has it."""
    place.client.statuses.request_round(path)
    others: list[Claim] = []
    while (claim := place.client.tiering._next_claim(())) is not None and claim.path != path:
        others.append(claim)
    for other in others:
        place.client.tiering._give_back(other, Reason.from_text("only looked"))
    assert claim is not None
    return claim


def is_held(client: Client, claim: Claim) -> bool:
    return client.tiering.beat([claim]) == {claim.table_id: None}


def test_a_new_table_and_the_same_again_after_its_round(place: Place) -> None:
    path = create(place)
    with pytest.raises(TableNotDue, match="Add --now to tier it now"):
        tier_once(place.config, path, jvm=place.jvm)
    for epoch in (1, 2):
        result = now(place, path)
        assert (result.outcome, result.rows, result.tiering_epoch) == ("committed", 3, epoch)
        with pytest.raises(TableNotDue, match=r"is Scheduled: it is due in 2[34] h"):
            tier_once(place.config, path, jvm=place.jvm)
        append(place, path)
    assert place.status(path).status == "Scheduled"


@pytest.mark.slow
def test_retier_makes_it_due_for_whoever_claims_next(place: Place) -> None:
    path = create(place)
    told = place.sluice("retier", str(path))
    assert (
        f"table {path}: a round is requested; `sluice tier` or a DAG run starts it" in told.output
    )
    assert place.status(path).status == "Pending"
    assert place.sluice("retier", str(path)).exit_code == 0, "it is due already"
    with connect(place.config.client) as other:
        claim = other.tiering.claim([path])
        assert claim is not None
        refused = place.sluice("retier", str(path))
        assert refused.exit_code == 1
        assert "is being tiered by" in refused.output
        assert is_held(other, claim)
        other.tiering.finished(claim)
    assert place.status(path).status == "Scheduled"


def test_a_round_under_way_is_never_ended(place: Place) -> None:
    """Whether it is written down or not; where it is not, it is asked for once."""
    path = create(place)
    claim = unwritten(place, path)
    not_tiered(place, path, r"is being tiered \(tiering epoch 1\)")
    error = not_tiered(place, path, r"may be tiered by a worker that records no status")
    assert 100 < error.details["free_within_s"] <= 140
    assert is_held(place.client, claim)
    # Those that would end it are the epochs that nobody asks with.
    place.client.tiering.finished(claim)
    with connect(place.config.client) as other:
        held = claim_table(other, path, now=True)
        assert held.tiering_epoch == 2
        error = not_tiered(place, path, r"is being tiered by \S+ \(tiering epoch 2\)")
        assert "with --now --wait 5min, the command tiers it again after that round" in str(error)
        assert is_held(other, held)
        other.tiering.finished(held)
    assert now(place, path).tiering_epoch == 3


@pytest.mark.slow
def test_it_waits_for_the_round_under_way_and_follows_it(place: Place) -> None:
    path = create(place)
    with connect(place.config.client) as other, ThreadPoolExecutor(1) as pool:
        held = claim_table(other, path, now=True)
        lake = ("--warehouse", str(place.fluss.warehouse))
        waiting = pool.submit(
            place.sluice, "tier", str(path), *lake, "--now", "--wait", "5min", "--format", "json"
        )
        with pytest.raises(TimeoutError):
            waiting.result(15)
        assert is_held(other, held)
        other.tiering.finished(held)
        told = waiting.result(240)
    assert told.exit_code == 0, told.output
    assert '"tiering_epoch": 2' in told.output


@pytest.mark.slow
def test_several_at_once_end_no_round_of_each_other(place: Place) -> None:
    path = create(place)

    def one(client: Client) -> Claim | None:
        try:
            return claim_table(client, path, now=True)
        except TableNotDue:
            return None

    for epoch in range(1, 6):
        with ThreadPoolExecutor(4) as pool:
            clients = [Client(place.config.client) for _ in range(4)]
            claims = [claim for claim in pool.map(one, clients) if claim is not None]
        (claim,) = claims
        assert claim.tiering_epoch == epoch
        assert is_held(place.client, claim)
        place.client.tiering.finished(claim)
        for client in clients:
            client.close()


@pytest.mark.slow
def test_after_a_restart_of_the_coordinator_epochs_begin_anew(place: Place) -> None:
    """Its own epoch stays 0, so that an epoch written down may be another round's by then."""
    path = create(place)
    for _ in range(3):
        claim = claim_table(place.client, path, now=True)
        place.client.tiering.finished(claim)
    place.fluss.kill_coordinator()
    place.fluss.start_coordinator()
    for epoch in (1, 2, 3):  # the last of them is the epoch that is written down as ended
        held = unwritten(place, path)
        assert (held.tiering_epoch, held.coordinator_epoch) == (epoch, claim.coordinator_epoch)
        not_tiered(place, path, rf"is being tiered \(tiering epoch {epoch}\)")
        assert is_held(place.client, held)
        if epoch < 3:
            place.client.tiering._give_back(held, Reason.from_text("only looked"))
    place.client.tiering.finished(held)
    result = now(place, path)
    assert (result.outcome, result.rows, result.tiering_epoch) == ("committed", 3, 4)


@pytest.mark.slow
def test_a_pause_holds_and_a_failed_table_is_tried_at_once(place: Place) -> None:
    path = create(place)
    place.config = replace(
        place.config, client=replace(place.config.client, tiering_backoff_ms=3_600_000)
    )
    assert place.sluice("pause", str(path)).exit_code == 0
    not_tiered(place, path, "is paused: `sluice resume")
    assert place.sluice("resume", str(path)).exit_code == 0
    with connect(place.config.client) as other:
        other.tiering.failed(claim_table(other, path, now=True), Reason.from_text("no such bucket"))
    with pytest.raises(TableNotDue, match=r"has failed once.*Add --now .* or run `sluice"):
        tier_once(place.config, path, jvm=place.jvm)
    assert now(place, path).rows == 3
    assert place.status(path).failures == 0


def test_what_a_forced_finish_does(place: Place) -> None:
    """What all of the above rests on, in Fluss's own answers."""
    path = create(place)
    table_id = place.client.admin.table_info(path).table_id
    tiering = place.client.tiering

    def entry(epoch: int) -> pb.PbHeartbeatReqForTable:
        return pb.PbHeartbeatReqForTable(
            table_id=table_id, coordinator_epoch=0, tiering_epoch=epoch
        )

    def asked(epoch: int) -> str:
        request = pb.LakeTieringHeartbeatRequest(tiering_tables=[entry(epoch)])
        (answer,) = tiering._heartbeat(request, idempotent=True).tiering_table_resp
        return str(answer.error.error_message).partition("\n")[0]

    def forced(epoch: int) -> int:
        request = pb.LakeTieringHeartbeatRequest(
            finished_tables=[entry(epoch)], force_finished_tables=[table_id]
        )
        (answer,) = tiering._heartbeat(request, idempotent=True).finished_table_resp
        return int(answer.error.error_code)

    is_in = "must in Tiering state, but in {} state"
    assert is_in.format("Scheduled") in asked(0)
    assert f"is not match current epoch 0 in coordinator for table {table_id}" in asked(1)
    assert (forced(1), forced(0)) == (FencedTieringEpoch.code, 0)
    assert is_in.format("Pending") in asked(1)
    assert forced(1) == 0, "which changes nothing"
    assert is_in.format("Pending") in asked(1)
    claim = tiering.claim([path])
    assert claim is not None
    assert (claim.tiering_epoch, asked(1)) == (1, "")
    tiering.finished(claim)
    assert is_in.format("Scheduled") in asked(1)
    assert (forced(1), forced(1)) == (0, FencedTieringEpoch.code)
    assert is_in.format("Pending") in asked(2)
    claim = tiering.claim([path])
    assert claim is not None
    assert forced(2) == 0, "it ends an open claim: so it must never be sent then"
    with pytest.raises(FencedTieringEpoch):
        tiering.finished(claim)
    assert is_in.format("Pending") in asked(3)
