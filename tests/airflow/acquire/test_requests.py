"""What a run is asked for: forced tables, dry runs, and why a table was not claimed."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from sluice.client.leases.ids import lease_id
from sluice.client.statuses.statuses import StatusClient
from sluice.errors import TableNotExist
from sluice.model import Reason, TablePath
from sluice.rounds.records.finished_runs import run_folders
from sluice.rounds.records.json_files import write_json
from sluice.rounds.records.plan_file import claim_of
from sluice.rounds.records.result import RoundResult, result_uri
from sluice.rounds.records.run_names import RunName, RunNames
from sluice_airflow.acquire.requests import Acquired, Request, acquire_request
from sluice_airflow.claims.packs import PackLimits
from sluice_airflow.outcomes.account import (
    HELD,
    NOT_DUE,
    NOTHING_NEW,
    PAUSED,
    REFUSED,
    WOULD_TIER,
    TableAccount,
)
from sluice_airflow.outcomes.settle import settle
from tests.airflow.claims.test_claims import JOB, Run
from tests.airflow.claims.test_claims import run as run
from tests.airflow.place import wait_until

LIMITS = PackLimits(100, 5_000_000)
NEVER_MS = 10**15
"""A time at which every file is old."""


def ask(run: Run, *patterns: str, job: str = JOB, held_s: float = 0, **request: bool) -> Acquired:
    asked = Request(list(patterns) or ["*"], 100, **request)
    return acquire_request(run.client, run.connection_, job, asked, LIMITS, 4, 20.0, held_s)


def became(found: Acquired) -> dict[str, str]:
    return {one["table"].removeprefix("shop."): one["became"] for one in found.account}


def tables(found: Acquired) -> list[str]:
    return [t["table"].removeprefix("shop.") for pack in found.packs for t in pack["tables"]]


@pytest.fixture
def later(run: Run) -> Callable[[str], TablePath]:
    """Makes tables that are due in a day: a new one is due at once."""

    def make(name: str) -> TablePath:
        path = run.table(name, freshness="1d")
        wait_until(lambda: run.status(path).status == "Pending", 60, "the table to be due")
        claim = run.client.tiering.claim([path])
        assert claim is not None
        run.client.tiering.finished(claim)
        return path

    return make


def test_a_table_that_is_named_in_a_manual_run_is_tiered_now(
    run: Run, later: Callable[[str], TablePath]
) -> None:
    later("a")
    later("b")
    found = ask(run, "shop.a", "shop.b*", is_manual=True)
    assert tables(found) == ["a"]
    assert found.wanted == ["shop.a"]
    assert became(found) == {"b": NOT_DUE}
    assert "the parameter `force` tiers it now" in found.account[0]["text"]


def test_a_scheduled_run_forces_nothing(run: Run, later: Callable[[str], TablePath]) -> None:
    later("a")
    found = ask(run, "shop.a")
    assert (tables(found), found.wanted, became(found)) == ([], [], {"a": NOT_DUE})


def test_force_tiers_all_that_match(run: Run, later: Callable[[str], TablePath]) -> None:
    for name in ("a", "b", "c"):
        later(name)
    run.client.statuses.pause(TablePath("shop", "c"))
    found = ask(run, force=True)
    assert sorted(tables(found)) == ["a", "b"]
    assert became(found) == {"c": PAUSED}


def test_the_round_of_another_worker_is_not_ended(run: Run) -> None:
    path = run.table("a", freshness="50 ms")
    run.wait(path)
    claim = run.client.tiering.claim([path], by="another worker")
    assert claim is not None
    found = ask(run, "shop.a", is_manual=True)
    assert (tables(found), became(found)) == ([], {"a": HELD})
    assert found.account[0]["text"] == "another worker tiers it (tiering epoch 1)"
    assert run.client.tiering.still_claimed(claim)


NIGHTLY = RunName("nightly", "manual__2026-11-24")
LEASE = lease_id("airflow-1", NIGHTLY.dag_id, NIGHTLY.run_id)


def test_a_held_table_names_the_run_that_tiers_it(run: Run) -> None:
    path = run.table("a", freshness="50 ms")
    run.wait(path)
    request = Request(["*"], 100, run=NIGHTLY)
    first = acquire_request(run.client, run.connection_, LEASE, request, LIMITS, 4, 20.0, 0)
    assert tables(first) == ["a"]
    assert run.status(path).claimed_by == LEASE
    said = "the run manual__2026-11-24 of DAG nightly tiers it (tiering epoch 1)"
    for asked in ({"is_manual": True}, {"force": True}, {}, {"dry_run": True}):
        [held] = ask(run, "shop.a", **asked).account
        assert (held["became"], held["text"]) == (HELD, said), asked
    folders = run_folders(f"file://{run.work}", 0, NEVER_MS, lambda _claim: False)
    assert [folder.reason for folder in folders] == [""], "`sluice clean` may delete the file"


def test_a_held_table_names_the_lease_of_a_run_that_cannot_be_read(run: Run) -> None:
    """It has another work folder, or was killed before it named itself."""
    path = run.table("a", freshness="50 ms")
    run.wait(path)
    assert run.client.tiering.claim([path], by=LEASE) is not None
    assert ask(run, "shop.a").account[0]["text"] == f"{LEASE} tiers it (tiering epoch 1)"
    run_file = run.work / LEASE / "run.json"
    run_file.parent.mkdir(parents=True)
    for content in ("{", '{"version": 2}', "[]"):
        run_file.write_text(content)
        assert ask(run, "shop.a").account[0]["text"] == f"{LEASE} tiers it (tiering epoch 1)"


def test_a_name_that_any_client_may_choose_leads_to_no_other_file(run: Run) -> None:
    stray = run.work / "sluice-x" / "run.json"
    stray.parent.mkdir(parents=True)
    stray.write_text('{"version": 1, "dag_id": "stray", "run_id": "stray"}')
    names = RunNames(f"file://{run.work}")
    for name in ("sluice-x", f"sluice-x/../{LEASE}", "../work/sluice-x"):
        assert names.of(name) == name


def test_due_tables_that_max_tables_leaves_out_say_so(run: Run) -> None:
    paths = [run.table(name, freshness="50 ms") for name in ("a", "b")]
    run.wait(*paths)
    asked = Request(["shop.*"], 1)
    found = acquire_request(run.client, run.connection_, JOB, asked, LIMITS, 4, 20.0)
    [told] = found.account
    assert (told["became"], told["text"]) == (NOT_DUE, "it is due, but max_tables (1) was reached")
    seen = Request(["shop.*"], 0, dry_run=True)
    both = acquire_request(run.client, run.connection_, "2", seen, LIMITS, 4, 20.0).account
    assert sorted(one["became"] for one in both) == [HELD, NOT_DUE]
    assert "max_tables (0)" in "".join(one["text"] for one in both)


@pytest.mark.slow
def test_a_named_table_waits_for_the_round_of_another_worker(run: Run) -> None:
    path = run.table("a", freshness="50 ms")
    run.wait(path)
    claim = run.client.tiering.claim([path], by="another worker")
    assert claim is not None
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask, run, "shop.a", held_s=60, is_manual=True)
        time.sleep(0.3)
        assert not asking.done()
        run.client.tiering.finished(claim)
        assert tables(asking.result(60)) == ["a"]


def test_force_does_not_wait_for_the_next_attempt_of_a_failing_table(
    run: Run, later: Callable[[str], TablePath]
) -> None:
    path = later("a")
    [one] = [t for pack in ask(run, "shop.a", is_manual=True).packs for t in pack["tables"]]
    claim = run.client.tiering.claims_of(JOB)[0]
    run.client.tiering.failed(claim, Reason.from_text("denied"))
    assert one["table"] == str(path)
    assert tables(ask(run, "shop.a", is_manual=True, job="2")) == ["a"]
    assert run.status(path).failures == 1, "only a success clears them"


def test_a_table_that_cannot_be_made_due_ends_no_run(
    run: Run, later: Callable[[str], TablePath], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was altered after the run had read which tables are tiered."""
    altered, other = later("a"), later("b")
    request_round = StatusClient.request_round

    def alter_first(statuses: StatusClient, path: TablePath, *more: str) -> None:
        if path == altered:
            run.client.admin.set_options(path, {"table.datalake.enabled": "false"})
        request_round(statuses, path, *more)

    monkeypatch.setattr(StatusClient, "request_round", alter_first)
    found = ask(run, force=True)
    assert tables(found) == [other.table]
    [one] = found.account
    assert (one["table"], one["became"]) == (str(altered), REFUSED)
    assert "InvalidTable" in one["text"]


def test_a_dry_run_claims_nothing(run: Run, later: Callable[[str], TablePath]) -> None:
    path = run.table("due", rows=5, freshness="50 ms")
    run.wait(path)
    later("later")
    found = ask(run, dry_run=True)
    assert found.packs == []
    assert became(found) == {"due": WOULD_TIER, "later": NOT_DUE}
    texts = {one["table"]: one["text"] for one in found.account}
    assert texts["shop.due"] == "5 rows in 1 bucket, application 1 of 1"
    forced = {one["table"]: one for one in ask(run, dry_run=True, force=True).account}
    assert [one["became"] for one in forced.values()] == [WOULD_TIER, WOULD_TIER]
    assert run.status(path).status == "Pending"
    assert run.client.tiering.claims_of(JOB) == []
    assert not run.work.exists()


def test_a_dry_run_knows_which_tables_without_rows_cost_a_driver(run: Run) -> None:
    """A table that was never tiered has a complete round, which creates its lake table."""
    rows = {"idle": 0, "new": 0, "due": 1}
    idle, new, due = (run.table(name, count, freshness="50 ms") for name, count in rows.items())
    run.wait(idle)
    time.sleep(0.01)  # a round that begins in the millisecond of a new option may not have seen it
    claim = run.client.tiering.claim([idle])
    assert claim is not None
    run.client.tiering.finished(claim)
    run.wait(new, due)
    asked = Request(["shop.*"], 2, force=True, dry_run=True)
    found = acquire_request(run.client, run.connection_, JOB, asked, LIMITS, 4, 20.0)
    assert {one["table"]: one["text"] for one in found.account} == {
        "shop.due": "1 row in 1 bucket, application 1 of 1",
        "shop.idle": "no rows, no Spark application",
        "shop.new": "no rows, but a complete round is due, application 1 of 1",
    }


def test_a_task_that_is_killed_before_the_end_has_not_done_what_was_asked(
    run: Run, later: Callable[[str], TablePath]
) -> None:
    """A limit had ended its last round early, so the lake lacks rows of the time of the trigger."""
    path = later("a")  # has three rows
    [pack] = ask(run, "shop.a", is_manual=True).packs
    [entry] = pack["tables"]
    claim = claim_of(entry)
    early = RoundResult.of(claim, "committed", rows=1, forced="bytes", offsets={"bucket 0": 1})
    write_json(result_uri(entry["plan_uri"], "1"), early.to_json())
    verdict = settle(run.client, entry, None, None, "failed")
    assert (verdict.reported, verdict.reason[:16]) == ("failed", "RoundsNotEnough:")
    assert run.status(path).failures == 0, "the round itself is a success"


def test_a_name_beside_a_pattern_for_all_tables_counts(
    run: Run, later: Callable[[str], TablePath]
) -> None:
    named, other = later("named"), later("other")
    found = ask(run, "shop.named", "*", is_manual=True)
    assert (found.wanted, tables(found)) == ([str(named)], ["named"])
    assert became(found) == {"other": NOT_DUE}
    assert run.status(other).rounds == 1
    with pytest.raises(TableNotExist, match=r"shop\.nmed"):
        ask(run, "shop.nmed", "*", is_manual=True)


def test_an_idle_table_is_told(run: Run) -> None:
    path = run.table("a", rows=0, freshness="50 ms")
    wait_until(lambda: run.status(path).status == "Pending", 60, "the table to be due")
    # Its first round is complete: it creates the lake table.
    [entry] = [t for pack in ask(run).packs for t in pack["tables"]]
    claim = run.client.tiering.claims_of(JOB)[0]
    run.client.tiering.finished(claim)
    assert entry["table"] == str(path)
    wait_until(lambda: run.status(path).status == "Pending", 60, "the table to be due again")
    found = ask(run, job="2")
    assert (tables(found), became(found)) == ([], {"a": NOTHING_NEW})


def test_a_retried_acquire_takes_over_its_own_claim_of_a_named_table(run: Run) -> None:
    """It must not wait for the round that it holds itself."""
    path = run.table("a", freshness="50 ms")
    run.wait(path)
    first = ask(run, "shop.a", is_manual=True)
    again = ask(run, "shop.a", is_manual=True, held_s=60)
    assert tables(again) == tables(first) == ["a"]
    assert again.account == []


def test_problems_are_never_cut() -> None:
    idle: list[TableAccount] = [
        {"table": f"s.t{n}", "became": NOTHING_NEW, "text": ""} for n in range(700)
    ]
    held: list[TableAccount] = [{"table": "s.held", "became": HELD, "text": ""}]
    wanted = [f"s.t{n}" for n in range(700)] + ["s.held"]
    found = Acquired(account=idle + held, wanted=wanted).to_xcom(names=True)
    assert found["tables"][-1]["table"] == "s.held"
    assert found["wanted"] == ["s.held"], "what is done need not be checked again"


def test_scheduled_runs_leave_only_the_number_of_idle_tables() -> None:
    idle: list[TableAccount] = [
        {"table": f"s.t{n}", "became": NOTHING_NEW, "text": ""} for n in range(700)
    ]
    assert Acquired(account=idle).to_xcom(names=False) == {
        "tables": [],
        "wanted": [],
        "counts": {NOTHING_NEW: 700},
    }
    named = Acquired(account=idle).to_xcom(names=True)
    assert (len(named["tables"]), named["counts"]) == (500, {NOTHING_NEW: 200})
