"""Rounds of the page's scene, told to a real server by the calls of a worker; no lake is written.

Each round claims its table, appends the rows that it copies, registers a lake snapshot, and reports
what it did. The times and sizes of its phases are made up, the offsets are those of the logs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any
from urllib.parse import quote

from demo.shots.page_tables import BUCKETS, FAILING, SceneTable, append
from sluice.client import Client
from sluice.client.leases.ids import lease_id
from sluice.client.tiering.heartbeats import Heartbeats
from sluice.clock import SystemClock
from sluice.errors import LakeCommitRefused, LakeNotWritable
from sluice.model import Claim, LakeSnapshotInfo, TableBucket, TablePath
from sluice.rounds.commit.recover import KEEP_ALL
from sluice.rounds.records.result import RoundFailure, RoundResult
from sluice.rounds.records.run_names import RunName, write_run_name
from sluice.rounds.upkeep.compacted import CompactionReport
from sluice.rounds.values.reasons import failure_of

DAG_ID = "sluice_lake_tiering"
DEPLOYMENT = "prod"
MINUTE_MS = 60_000
ROW_BYTES = 96
_FIRST_SNAPSHOT = 4_061_118_203_951_000_017
_AT_ONCE = 8
_COMPACTS_EVERY, _EXPIRES_EVERY = 12, 9
_HEALTHY_ROUNDS = 6
"""So many rounds of the failing table succeed first."""
_REFUSED_ONCE_OF = 23
"""Of so many tables, one had a failed round that the next one made good."""

NOT_ALLOWED = (
    "table {path}: 2 of 2 splits failed; first bucket 1, offsets {start} to {stop}: write"
    " s3://lake-prod/warehouse/billing/invoices_eu/data/__bucket=1/00001-1187-{epoch:08d}.parquet"
)
SPARK_SAID = """Job aborted due to stage failure: Task 1 in stage 41.0 failed 4 times, most recent \
failure: Lost task 1.3 in stage 41.0 (TID 1187) (10.42.7.19 executor 6): \
java.io.UncheckedIOException: java.io.IOException: \
software.amazon.awssdk.services.s3.model.S3Exception: User: \
arn:aws:sts::210987654321:assumed-role/lake-writer/executor-6 is not authorized to perform: \
s3:PutObject on resource: \
"arn:aws:s3:::lake-prod/warehouse/billing/invoices_eu/data/__bucket=1/00001-1187.parquet" because \
no identity-based policy allows the s3:PutObject action (Service: S3, Status Code: 403, \
Request ID: 7RQ2N4K8ZC1XW0TB)
\tat org.apache.iceberg.aws.s3.S3OutputStream.completeUploads(S3OutputStream.java:421)
\tat org.apache.iceberg.aws.s3.S3OutputStream.close(S3OutputStream.java:269)
\tat org.apache.iceberg.parquet.ParquetWriter.close(ParquetWriter.java:257)
Driver stacktrace:"""
OVERTAKEN = (
    "commit to {path}: another writer replaced files of the base snapshot 3 times"
    " (org.apache.iceberg.exceptions.CommitFailedException: Requirement failed: branch main has"
    " changed)"
)


class SparkException(Exception):
    """Named as Spark's, which an error of a round names as its cause."""


class SceneClock(SystemClock):
    """The time of day, so many milliseconds behind. Monotonic time is the system's."""

    behind_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() - self.behind_ms


@dataclass(frozen=True, slots=True)
class Run:
    """A run of the DAG."""

    run_id: str
    lease_id: str
    """Also the name under which it claims."""

    @classmethod
    def at(cls, now_ms: int) -> Run:
        """The scheduled run of this time."""
        when = datetime.fromtimestamp(now_ms // 60_000 * 60, UTC)
        run_id = f"scheduled__{when.isoformat()}"
        return cls(run_id, lease_id(DEPLOYMENT, DAG_ID, run_id))


@dataclass(slots=True)
class Progress:
    """What the scene knows of a table besides the server."""

    table: SceneTable
    chance: random.Random
    info_id: int
    rows: int = 0
    """That were appended."""
    rounds: int = 0
    registered: LakeSnapshotInfo | None = None
    lake_rows: int = 0
    files: int = 0


@dataclass(frozen=True, slots=True)
class OpenRound:
    """A claimed table: its round ends at ``ends_ms``."""

    claim: Claim
    run: Run
    index: int
    ends_ms: int


@dataclass(slots=True)
class Worker:
    """Claims tables and tells their rounds. For one thread."""

    client: Client
    clock: SceneClock
    work_uri: str
    tables: Sequence[SceneTable]
    heartbeats: Heartbeats
    known: dict[TablePath, Progress] = field(default_factory=dict)
    _snapshot_ids: Iterator[int] = field(default_factory=lambda: count(_FIRST_SNAPSHOT, 7_919_113))

    def __post_init__(self) -> None:
        for table in self.tables:
            info = self.client.admin.table_info(table.path)
            chance = random.Random(f"rounds of {table.path}")
            self.known[table.path] = Progress(table, chance, info.table_id)

    def grow(self, paths: Iterable[TablePath], rows: Callable[[Progress], int]) -> None:
        """Appends rows to tables."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for _ in pool.map(lambda path: self._append(self.known[path], rows), paths):
                pass

    def _append(self, of: Progress, rows: Callable[[Progress], int]) -> None:
        number = rows(of)
        append(self.client, of.table, of.rows, number)
        of.rows += number

    def claim(self, paths: Sequence[TablePath]) -> list[OpenRound]:
        """A run of the DAG claims those of the tables that are due."""
        now_ms = self.clock.now_ms()
        run = Run.at(now_ms)
        with self.client.tiering.claim_session(paths, by=run.lease_id) as session:
            claims = session.take(len(paths))
        if claims:
            write_run_name(self.work_uri, run.lease_id, RunName(DAG_ID, run.run_id))
        found = []
        for index, claim in enumerate(claims):
            self.heartbeats.add(claim)
            took_ms = round(self.known[claim.path].chance.lognormvariate(9.9, 0.3))
            found.append(OpenRound(claim, run, index, now_ms + took_ms))
        return found

    def end(self, rounds: Iterable[OpenRound]) -> None:
        """Ends rounds: one lake snapshot and one report each."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for _ in pool.map(self._end, rounds):
                pass

    def _end(self, one: OpenRound) -> None:
        of = self.known[one.claim.path]
        self.heartbeats.remove(one.claim)
        of.rounds += 1
        ran_by: dict[str, Any] = {
            "worker": one.run.lease_id,
            "airflow_task": f"{DAG_ID}/{quote(one.run.run_id, safe='')}/per_application.tier"
            f"/{one.index // 8}/1",
            "spark_application": f"app-{one.run.lease_id[-12:]}-{one.index // 8:04d}",
        }
        failure = self._failure(one, of)
        if failure is not None:
            details = failure.details(**ran_by)
            self.client.tiering.failed(one.claim, failure.reason, details)
            return
        result = self._result(one, of)
        self.client.tiering.finished(one.claim, details=result.details(**ran_by))

    def _failure(self, one: OpenRound, of: Progress) -> RoundFailure | None:
        try:
            if one.claim.path == FAILING and of.rounds > _HEALTHY_ROUNDS:
                raise LakeNotWritable(self._not_allowed(one, of)) from SparkException(SPARK_SAID)
            if (
                of.info_id % _REFUSED_ONCE_OF == _REFUSED_ONCE_OF - 1
                and of.rounds == of.info_id % 5 + 2
            ):
                raise LakeCommitRefused(OVERTAKEN.format(path=one.claim.path))
        except (LakeNotWritable, LakeCommitRefused) as error:
            found = failure_of(error)
            seconds = {"recover": 0.4, "plan": 0.2, "copy": of.chance.uniform(8, 17)}
            return RoundFailure(found.reason, seconds)
        return None

    def _not_allowed(self, one: OpenRound, of: Progress) -> str:
        claim, ends = one.claim, self._ends(one.claim)
        assert of.registered is not None
        bucket = TableBucket(claim.table_id, None, 1)
        return NOT_ALLOWED.format(
            path=claim.path,
            start=of.registered.offsets[bucket],
            stop=ends[bucket],
            epoch=claim.tiering_epoch,
        )

    def _ends(self, claim: Claim) -> dict[TableBucket, int]:
        ends = self.client.tiering.latest_offsets(claim.path, claim.table_id, None, range(BUCKETS))
        return {TableBucket(claim.table_id, None, n): end for n, end in ends.items()}

    def _result(self, one: OpenRound, of: Progress) -> RoundResult:
        """Registers a lake snapshot with the ends of the logs, and says what the round did."""
        claim, tiering = one.claim, self.client.tiering
        offsets = self._ends(claim)
        before = of.registered.offsets if of.registered else {}
        lag = sum(end - before.get(bucket, 0) for bucket, end in offsets.items())
        seconds = _seconds(of.chance, lag)
        if not lag:
            return RoundResult.of(
                claim, "nothing_new", lag_rows_before=0, lag_rows_after=0, seconds=seconds
            )
        stored = tiering.prepare_lake_snapshot(claim.table_id, claim.path, offsets)
        snapshot_id, keep = next(self._snapshot_ids), KEEP_ALL
        if of.registered is not None:
            keep = of.registered.snapshot_id
        tiering.commit_lake_snapshot(claim, snapshot_id, stored, offsets, {}, keep)
        of.registered = LakeSnapshotInfo(claim.table_id, snapshot_id, offsets)
        return self._committed(one, of, lag, snapshot_id, seconds)

    def _committed(
        self, one: OpenRound, of: Progress, lag: int, snapshot_id: int, seconds: dict[str, float]
    ) -> RoundResult:
        turn = of.info_id + of.rounds
        facts: dict[str, Any] = {}
        of.files += BUCKETS
        of.lake_rows += lag
        if turn % _COMPACTS_EVERY == 0 and of.files > 2 * BUCKETS:
            facts = _compaction(of)
            seconds["copy"] += facts["compaction_ms"] / 1000
            of.files = BUCKETS
        elif turn % _EXPIRES_EVERY == 0:
            facts = {"snapshots_expired": of.chance.randint(2, 9)}
            facts["files_expired"] = facts["snapshots_expired"] * 3
            seconds["expire"] = of.chance.uniform(0.3, 1.4)
        deletes = lag // 3 if of.table.has_key else 0
        if deletes:
            facts |= {"deletes": deletes, "deletes_as": "positions", "lookup_files": of.files}
            facts |= {"lookup_bytes": of.lake_rows * 9, "lookup_ms": 20 + of.lake_rows // 400}
        return RoundResult.of(
            one.claim,
            "committed",
            rows=lag - deletes,
            bytes_read=lag * 41,
            bytes_written=lag * ROW_BYTES + 2_900,
            files=BUCKETS,
            lake_snapshot_id=snapshot_id,
            lag_rows_before=lag,
            lag_rows_after=0,
            lake_rows=of.lake_rows,
            lake_files=of.files,
            lake_bytes=of.lake_rows * ROW_BYTES + of.files * 2_900,
            seconds=seconds,
            **facts,
        )


def _seconds(chance: random.Random, lag: int) -> dict[str, float]:
    copy_s = chance.uniform(4, 9) + lag / 400
    return {
        "recover": chance.uniform(0.2, 0.6),
        "plan": chance.uniform(0.1, 0.4),
        "copy": copy_s if lag else 0.0,
        "prepare": chance.uniform(0.02, 0.1),
        "lake_commit": chance.uniform(0.6, 2.2) if lag else 0.0,
        "fluss_commit": chance.uniform(0.03, 0.2),
    }


def _compaction(of: Progress) -> dict[str, Any]:
    report = CompactionReport(
        buckets=BUCKETS,
        files_removed=of.files,
        files_written=BUCKETS,
        bytes_read=of.lake_rows * ROW_BYTES,
        bytes_written=of.lake_rows * (ROW_BYTES - 8),
        memory_bytes=of.lake_rows * 120,
        seconds=of.chance.uniform(2, 6),
    )
    return report.facts()
