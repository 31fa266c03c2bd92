"""What one round of a table did, for the history of rounds."""

from __future__ import annotations

from dataclasses import dataclass

from sluice.model import types as t
from sluice.model.record_fields import TIME, described

ROUNDS_KEPT = 100
"""Rounds that are kept of a table; older ones are deleted."""

FAILED = "failed"
"""The outcome of a failed round. All others are successes."""

SUCCESSES = ("committed", "nothing_new", "already_landed")
"""The outcomes of which workers report details."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TieringRound:
    """One ended round. Times are epoch milliseconds. None: not known.

    The worker reports what it did; who keeps the history adds ids, times and the reason.
    """

    table_id: int = described(t.BIGINT.not_null(), "Id of the table", number=1, default=-1)
    round_number: int | None = described(
        t.BIGINT, "Number of the round, counted for each table", number=2, heading="round"
    )
    tiering_epoch: int | None = described(t.BIGINT, "Its tiering epoch", number=3)
    coordinator_epoch: int | None = described(t.INT, "Its coordinator epoch", number=4)
    started_ms: int | None = described(
        TIME, "When the table was claimed", number=5, heading="started"
    )
    ended_ms: int | None = described(TIME, "When the end was reported", number=6, heading="ended")
    outcome: str | None = described(
        t.STRING,
        "committed, nothing_new, already_landed, failed, or finished if the worker gave no details",
        number=7,
        heading="outcome",
    )
    rows_written: int | None = described(
        t.BIGINT, "Rows in its data files", number=8, heading="rows"
    )
    keys_deleted: int | None = described(
        t.BIGINT, "Keys whose earlier rows it deletes", number=9, heading="deletes"
    )
    files_written: int | None = described(t.BIGINT, "Its files", number=10, heading="files")
    bytes_read: int | None = described(
        t.BIGINT, "Bytes read from the log", number=11, heading="bytes read"
    )
    bytes_written: int | None = described(
        t.BIGINT, "Bytes of its files", number=12, heading="bytes written"
    )
    lag_rows_before: int | None = described(
        t.BIGINT,
        "Log offsets missing in the lake when it was planned",
        number=13,
        heading="lag before",
    )
    lag_rows_after: int | None = described(
        t.BIGINT,
        "Those of them that it left to the next round",
        number=14,
        heading="lag after",
    )
    lake_snapshot_id: int | None = described(
        t.BIGINT, "Its lake snapshot", number=15, heading="lake snapshot"
    )
    recover_ms: int | None = described(
        t.BIGINT, "Time spent to find the base", number=16, heading="recover"
    )
    plan_ms: int | None = described(t.BIGINT, "Time spent to plan", number=17, heading="plan")
    copy_ms: int | None = described(t.BIGINT, "Time spent to copy", number=18, heading="copy")
    prepare_ms: int | None = described(
        t.BIGINT, "Time spent to store the offsets", number=19, heading="prepare"
    )
    lake_commit_ms: int | None = described(
        t.BIGINT, "Time spent to commit to the lake", number=20, heading="lake commit"
    )
    fluss_commit_ms: int | None = described(
        t.BIGINT, "Time spent to register it", number=21, heading="fluss commit"
    )
    reason: str | None = described(t.STRING, "Why it failed", number=22, heading="reason")
    note: str | None = described(
        t.STRING,
        "Why it ended early, untiered rows of dropped partitions, and deleted rows of partitions"
        " that were created again",
        number=23,
        heading="note",
    )
    worker: str | None = described(
        t.STRING, "The run or process that tiered it", number=24, heading="worker"
    )
    accepted: str | None = described(
        t.STRING,
        "Offset ranges that a user accepted as missing from the lake",
        number=25,
        heading="accepted",
    )
    deletes_as: str | None = described(
        t.STRING,
        "How it deletes keys: positions, equality deletes with the reason, or both",
        number=26,
        heading="deletes as",
    )
    lookup_files: int | None = described(
        t.BIGINT,
        "Data files whose keys it read to find these positions",
        number=27,
        heading="look-up files",
    )
    lookup_bytes: int | None = described(
        t.BIGINT,
        "Bytes of their key columns, and of earlier positions",
        number=28,
        heading="look-up bytes",
    )
    lookup_ms: int | None = described(
        t.BIGINT, "CPU time spent to find the positions", number=29, heading="look-up CPU"
    )
    snapshots_expired: int | None = described(
        t.BIGINT,
        "Old lake snapshots that expired after its commit",
        number=30,
        heading="expired",
    )
    files_expired: int | None = described(
        t.BIGINT,
        "Files of these snapshots that were deleted",
        number=31,
        heading="expired files",
    )
    expire_ms: int | None = described(
        t.BIGINT, "Time spent to expire snapshots", number=32, heading="expire"
    )
    compacted: str | None = described(
        t.STRING,
        "Which data files it compacted, and why it left out others",
        number=33,
        heading="compacted",
    )
    files_compacted: int | None = described(
        t.BIGINT, "Data files that its compaction replaced", number=34, heading="files compacted"
    )
    compaction_read_bytes: int | None = described(
        t.BIGINT,
        "Bytes of these files, and of its own",
        number=35,
        heading="compaction read",
    )
    compaction_written_bytes: int | None = described(
        t.BIGINT,
        "Bytes of the files that replace them",
        number=36,
        heading="compaction written",
    )
    compaction_memory_bytes: int | None = described(
        t.BIGINT,
        "The most memory that the compaction of a bucket needed for rows",
        number=37,
        heading="compaction memory",
    )
    compaction_ms: int | None = described(
        t.BIGINT,
        "Time by which its compaction made it longer",
        number=38,
        heading="compaction",
    )
    compaction_request_ms: int | None = described(
        TIME,
        "When the compaction was requested that it completed",
        number=39,
        heading="requested compaction",
    )
    lake_rows: int | None = described(
        t.BIGINT,
        "Rows in the data files of the lake table at its end, before deletes",
        number=40,
        heading="lake rows",
    )
    lake_files: int | None = described(
        t.BIGINT, "Data files of the lake table at its end", number=41, heading="lake files"
    )
    lake_bytes: int | None = described(
        t.BIGINT,
        "Bytes of the data and delete files of the lake table at its end",
        number=42,
        heading="lake bytes",
    )
    airflow_task: str | None = described(
        t.STRING,
        "The task instance that ran it: DAG/RUN/TASK/MAP INDEX/TRY, each part percent-encoded",
        number=43,
        heading="airflow task",
    )
    spark_application: str | None = described(
        t.STRING,
        "Id of the Spark application that ran it",
        number=44,
        heading="spark application",
    )

    @property
    def succeeded(self) -> bool:
        return self.outcome != FAILED

    @property
    def duration_ms(self) -> int | None:
        """From claim to report."""
        if self.started_ms is None or self.ended_ms is None:
            return None
        return max(self.ended_ms - self.started_ms, 0)
