"""What a cleared run tiers again, and which tier tasks its packs are for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from sluice.client import connect
from sluice.config import ServerConfig
from sluice.model import Reason, TablePath
from sluice.rounds.records.json_files import VERSION
from sluice.rounds.records.plan_file import claim_of
from sluice.rounds.records.result import RoundFailure
from sluice.server.cluster import EmbeddedCluster
from sluice_airflow.acquire.earlier_packs import NOTHING_EARLIER, NOTHING_LEFT, Earlier, write_packs
from sluice_airflow.acquire.requests import Acquired, Request, acquire_request
from sluice_airflow.claims.claims import ClaimedTable
from sluice_airflow.claims.packs import Pack, PackLimits, tables_of
from sluice_airflow.outcomes.account import FAILING, NOT_DUE, NOT_TIERED, error
from sluice_airflow.outcomes.settle import settle
from tests.airflow.claims.test_claims import JOB, Run, left_by, result_of
from tests.airflow.place import AirflowProcess, wait_until

ALONE = PackLimits(1, 5_000_000)
DENIED = RoundFailure(Reason.from_text("denied", kind="LakeNotWritable"))


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """A cluster on which a failed table waits for an hour."""
    config = ServerConfig(
        data_dir=str(tmp_path / "data"),
        listen="grpc://127.0.0.1:0",
        tiering_backoff_ms=3_600_000,
        tiering_check_interval_ms=20,
    )
    with EmbeddedCluster(config) as cluster, connect(cluster.address) as client:
        client.admin.create_database("shop")
        none: AirflowProcess = None  # type: ignore[assignment]
        yield Run(none, client, cluster.address, tmp_path / "work")


def ask(run: Run, *patterns: str, states: Mapping[int, str | None] | None = None) -> Acquired:
    """What acquire_lease does. With states of tier tasks: after a clear of some of them."""
    earlier = NOTHING_EARLIER
    if states is not None:
        earlier = Earlier.read(run.work.as_uri(), JOB, states)
    asked = Request(list(patterns), 100, earlier=earlier)
    return acquire_request(run.client, run.connection_, JOB, asked, ALONE, 4, 20.0, 0.0)


def names(packs: list[Pack]) -> list[str]:
    return [",".join(t["table"].removeprefix("shop.") for t in p["tables"]) for p in packs]


def due(run: Run, *names: str) -> list[TablePath]:
    """New tables, which are due again after an hour."""
    paths = [run.table(name, rows=9 - at, freshness="1h") for at, name in enumerate(names)]
    wait_until(lambda: all(run.status(p).status == "Pending" for p in paths), 60, "due tables")
    return paths


def fail(run: Run, entry: ClaimedTable) -> None:
    settle(run.client, entry, None, left_by(entry, DENIED), "failed")


def succeed(run: Run, entry: ClaimedTable) -> None:
    settle(run.client, entry, left_by(entry, result_of(entry)), None, "success")


@pytest.mark.parametrize("patterns", [["*"], ["shop.*"], ["shop.b", "shop.c", "shop.a"]])
def test_a_cleared_task_tiers_its_failed_table_before_its_next_attempt(
    run: Run, patterns: list[str]
) -> None:
    a, b, c = due(run, "a", "b", "c")
    packs = ask(run, *patterns).packs
    assert names(packs) == ["a", "b", "c"]
    for entry in tables_of(packs):
        (succeed if entry["table"] == str(b) else fail)(run, entry)
    assert run.status(c).failures == 1
    again = ask(run, *patterns, states={0: "failed", 1: "success", 2: None})
    assert names(again.packs) == ["a", "b", "c"], "the tasks that were not cleared keep theirs"
    [entry] = again.packs[2]["tables"]
    assert claim_of(entry).tiering_epoch == 2
    assert [run.status(path).status for path in (a, b, c)] == ["Failed", "Scheduled", "Tiering"]
    succeed(run, entry)

    both = ask(run, *patterns, states={0: None, 1: "success", 2: None})
    assert names(both.packs) == ["a", "b"], "c is tiered"
    tiered = {one["table"]: one["became"] for one in both.account}
    assert tiered == {str(c): NOT_DUE, **({} if patterns == ["*"] else {str(b): NOT_DUE})}


def test_tasks_that_run_or_wait_keep_their_claims(run: Run) -> None:
    """A user clears another task of the run meanwhile."""
    due(run, "a", "b", "c", "d")
    packs = ask(run, "*").packs
    before = {entry["table"]: claim_of(entry) for entry in tables_of(packs)}
    fail(run, packs[1]["tables"][0])
    states = {0: "running", 1: None, 2: "queued", 3: "restarting"}
    again = ask(run, "*", states=states)
    assert names(again.packs) == ["a", "d", "c", "b"] or names(again.packs) == ["a", "b", "c", "d"]
    after = {entry["table"]: claim_of(entry) for entry in tables_of(again.packs)}
    assert {t for t in before if before[t] != after[t]} == {"shop.b"}
    assert [claim.path.table for claim in run.client.tiering.claims_of(JOB)] == list("abcd")


def test_an_index_without_tables_has_a_pack_without_tables(run: Run) -> None:
    due(run, "a", "b")
    first, second = ask(run, "*").packs
    succeed(run, first["tables"][0])
    fail(run, second["tables"][0])
    again = ask(run, "*", states={0: None, 1: "failed"})
    assert [pack["label"] for pack in again.packs] == [NOTHING_LEFT, "shop.b"]
    assert names(again.packs) == ["", "b"]


def test_a_table_that_cannot_be_claimed_again_fails_the_run(run: Run) -> None:
    [path] = due(run, "a")
    [pack] = ask(run, "*").packs
    fail(run, pack["tables"][0])
    run.client.statuses.request_round(path)
    other = run.client.tiering.claim([path], by="somebody else")
    assert other is not None
    again = ask(run, "*", states={0: None})
    assert again.packs == []
    [one] = again.account
    assert one["became"] == NOT_TIERED
    assert one["became"] in FAILING
    assert "held: somebody else tiers it" in error(again.account)
    third = ask(run, "*", states={0: None})
    assert error(third.account) == error(again.account), "the table is not forgotten"


def test_the_packs_are_kept_for_a_clear_alone(run: Run) -> None:
    """Runs that claim nothing would leave a file each minute."""
    assert ask(run, "*").packs == []
    assert not run.work.exists()
    damaged = run.work / JOB / "packs/acquired.json"
    damaged.parent.mkdir(parents=True)
    for content in ("{", f'{{"version": {VERSION}, "packs": [{{}}]}}'):
        damaged.write_text(content)
        assert Earlier.read(run.work.as_uri(), JOB, {0: "success"}) == NOTHING_EARLIER
    write_packs("nowhere://x", JOB, [], NOTHING_EARLIER)  # a warning: no run fails for it
