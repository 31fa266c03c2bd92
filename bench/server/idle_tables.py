"""What the work of the task acquire_lease costs for 1,000 tables, without Airflow, in CPU seconds.

Idle tables: their claims, the check whether they are idle, their reports. No plan, no lease, no
Spark. Then the same tables with a row each: their claims, the check, and their plans. The server is
a process of its own, and is not counted.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from bench.cluster import DUE_S, server
from bench.measure import Cost, Line, cost, report
from sluice.client import Client, connect
from sluice.client.tiering.heartbeats import Heartbeats
from sluice.client.tiering.idle import Waiting
from sluice.formats.types.types import schema_from_arrow
from sluice.model import Claim, TableBucket, TableDescriptor, TablePath, TieringRound
from sluice.rounds.records.plan_file import claim_of
from sluice_airflow.acquire.acquire import TOGETHER_MAX, acquire
from sluice_airflow.acquire.idle import finish_idle
from sluice_airflow.claims.claims import ClaimedTable
from sluice_airflow.config.connection import FlussConnection

TABLES = 1_000
REPEATS = 3
BUCKETS = 2
GOAL_S = 10.0
FULL_MAX = TABLES // 100
"""Idle tables whose complete round, once in six hours, may come just now."""
ROWS = pa.table({"id": pa.array([1], pa.int64())})


def run(rows: int) -> None:
    """Ignores ``rows``: what counts is the number of tables."""
    del rows
    with (
        tempfile.TemporaryDirectory(prefix="sluice-bench-") as tmp,
        server(Path(tmp) / "fluss") as (address, pid),
        connect(address) as client,
    ):
        paths = _tables(client)
        _first_rounds(client, pid)
        for _ in range(REPEATS):
            _pass(client, Path(tmp), pid, "idle_tables", idle=TABLES)
        _steps(client, pid)
        for path in paths:
            _append(client, path)
        _pass(client, Path(tmp), pid, "tables_with_a_row", idle=0)


def _tables(client: Client) -> list[TablePath]:
    client.admin.create_database("bench")
    options = {"table.datalake.enabled": "true", "table.datalake.freshness": "1 s"}
    descriptor = TableDescriptor(
        schema_from_arrow(ROWS.schema), bucket_count=BUCKETS, properties=options
    )
    paths = [TablePath("bench", f"t{number}") for number in range(TABLES)]
    for path in paths:
        client.admin.create_table(path, descriptor)
        _append(client, path)
    return paths


def _append(client: Client, path: TablePath) -> None:
    with client.log_writer(path) as writer:
        writer.write(ROWS)


def _first_rounds(client: Client, pid: int) -> None:
    """Registers the ends of all logs, as rounds of these tables would."""
    with _claimed(client, pid) as (claims, _):
        for number, claim in enumerate(claims):
            ends = client.admin.list_offsets(claim.path, range(BUCKETS), table_id=claim.table_id)
            offsets = {TableBucket(claim.table_id, None, n): end for n, end in ends.items()}
            file = client.tiering.prepare_lake_snapshot(claim.table_id, claim.path, offsets)
            client.tiering.commit_lake_snapshot(claim, number + 1, file, offsets, {}, -1)
        done = TieringRound(outcome="committed", rows_written=1)
        client.tiering.finished_many([(claim, done) for claim in claims])


@contextmanager
def _claimed(client: Client, pid: int) -> Iterator[tuple[list[Claim], Cost]]:
    """All tables, claimed as acquire_lease claims them, and what that cost."""
    _wait_until_due(client)
    claims: list[Claim] = []
    with client.tiering.claim_session(by="bench") as session:
        with cost(server=pid) as spent:
            while some := session.take(TOGETHER_MAX):
                claims += some
        assert len(claims) == TABLES
        yield claims, spent


def _steps(client: Client, pid: int) -> None:
    with _claimed(client, pid) as (claims, claiming):
        found: dict[Claim, Waiting] = {}
        with cost(server=pid) as checking, client.idle_check() as check:
            for at in range(0, TABLES, TOGETHER_MAX):
                found |= check.check(claims[at : at + TOGETHER_MAX])
        assert sum(not waiting.is_idle for waiting in found.values()) <= FULL_MAX
        beats = Heartbeats(client.tiering)
        with cost(server=pid) as reporting:
            finish_idle(client, "bench", [*found.items()], beats, lambda _claim: None)
    for name, spent in (("claim", claiming), ("check", checking), ("report", reporting)):
        _report(f"idle_tables_{name}", spent, None)


def _pass(client: Client, home: Path, pid: int, name: str, *, idle: int) -> None:
    _wait_until_due(client)
    connection = FlussConnection(client.config.bootstrap, work_uri=(home / "work").as_uri())
    finished: list[Claim] = []
    with cost(server=pid) as spent:
        entries: list[ClaimedTable] = acquire(
            client, connection, name, ["*"], TABLES, on_idle=finished.append
        )
    assert idle - FULL_MAX <= len(finished) <= idle
    assert len(finished) + len(entries) == TABLES
    done = TieringRound(outcome="nothing_new")
    client.tiering.finished_many([(claim_of(entry), done) for entry in entries])
    _report(name, spent, GOAL_S)


def _wait_until_due(client: Client) -> None:
    def due() -> bool:
        return all(status.status == "Pending" for status in client.statuses.list())

    _wait(due, "all tables to be due")


def _wait(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DUE_S
    while not done():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {DUE_S:.0f} s for {what}")
        time.sleep(0.2)


def _report(name: str, spent: Cost, goal_s: float | None) -> None:
    text = f"{spent.wall_s:.1f} s wall, {spent.others_s['server']:.1f} core-s of the server"
    what = text if goal_s is None else f"the goal of {goal_s:g} core-s; {text}"
    ratio = None if goal_s is None else spent.cpu_s / goal_s
    report(Line(name, spent.cpu_s, f"core-s, {TABLES:,} tables", ratio, what))
