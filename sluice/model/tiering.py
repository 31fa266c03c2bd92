"""Claims, tiering statuses and registered lake snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sluice.model import types as t
from sluice.model.paths import TableBucket, TablePath
from sluice.model.record_fields import TIME, described, fields_of

NO_LEADER = "no leader: "
"""How the note of a table begins whose buckets have no leader."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to tier a table once, which the coordinator assigned to a worker.

    See docs/fluss/tiering.md#heartbeat
    """

    table_id: int
    path: TablePath
    tiering_epoch: int
    coordinator_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptStatus:
    """The part of a status that lasts: SQLite of the server or a table of the cluster keeps it.

    Times are epoch milliseconds. None: not known.
    """

    last_tiered_ms: int | None = described(
        TIME, "End of the last successful round", number=4, heading="last tiered", gauge=True
    )
    last_error: str | None = described(
        t.STRING, "Why the last round failed; null if it succeeded", number=5, heading="last error"
    )
    last_error_ms: int | None = described(
        TIME,
        "When the last round failed; null if it succeeded",
        number=6,
        heading="last error at",
    )
    failures: int | None = described(
        t.INT,
        "Failures since the last success",
        number=8,
        heading="failures",
        gauge=True,
        default=0,
    )
    next_attempt_ms: int | None = described(
        TIME,
        "Time from which the table may be assigned; null while it is tiered or paused",
        number=9,
        heading="next attempt",
        gauge=True,
    )
    paused: bool | None = described(
        t.BOOLEAN, "Whether the table is paused", number=13, gauge=True, default=False
    )
    last_round_ms: int | None = described(
        t.BIGINT,
        "Duration of the last finished round, from claim to report",
        number=14,
        heading="last round",
        gauge=True,
    )
    rounds: int | None = described(
        t.BIGINT, "Rounds that have ended", number=16, heading="rounds", gauge=True, default=0
    )
    stopped: str | None = described(
        t.STRING,
        "Who stopped the last round, which counts as no failure; null after the next end",
        number=17,
    )
    accepted: str | None = described(
        t.STRING,
        "Offset ranges that users accepted as missing from the lake, the newest first",
        number=18,
        heading="accepted",
    )
    deletes_as: str | None = described(
        t.STRING,
        "How the last round that deleted keys did so: positions, equality deletes with the reason,"
        " or both",
        number=20,
        heading="deletes as",
    )
    compaction_requested_ms: int | None = described(
        TIME,
        "When a compaction of the table was requested; null once a round has made or ended it",
        number=21,
        heading="compaction requested",
    )
    lake_rows: int | None = described(
        t.BIGINT,
        "Rows in the data files of the lake table at the last round that told, before deletes",
        number=22,
        heading="lake rows",
        gauge=True,
    )
    lake_files: int | None = described(
        t.BIGINT, "Its data files then", number=23, heading="lake files", gauge=True
    )
    lake_bytes: int | None = described(
        t.BIGINT,
        "Bytes of its data and delete files then",
        number=24,
        heading="lake bytes",
        gauge=True,
    )


def kept_values(status: KeptStatus) -> dict[str, Any]:
    """The kept part of a status, by attribute."""
    return {entry.name: getattr(status, entry.name) for entry in fields_of(KeptStatus)}


@dataclass(frozen=True, slots=True)
class TieringStatus(KeptStatus):
    """The tiering status of one lake table, as users see it.

    Fields are None if the server does not report them. docs/design/rounds.md#one-table-of-fields
    """

    path: TablePath
    table_id: int = described(t.BIGINT, "Id of the table", number=7, required=True)
    status: str = described(
        t.STRING,
        "New, Initialized, Scheduled, Pending, Tiering, Tiered, Failed or Unknown",
        number=2,
        heading="state",
        required=True,
    )
    tiering_epoch: int = described(
        t.BIGINT,
        "Current tiering epoch: how often the table became due",
        number=3,
        heading="epoch",
        gauge=True,
        required=True,
    )
    lag_rows: int | None = described(
        t.BIGINT, "Log offsets missing in the lake", number=10, heading="lag rows", gauge=True
    )
    lag_ms: int | None = described(
        t.BIGINT,
        "Age of the oldest offset missing in the lake; 0 if there is none",
        number=11,
        heading="lag",
        gauge=True,
    )
    lake_snapshot_id: int | None = described(
        t.BIGINT, "Registered lake snapshot", number=12, heading="lake snapshot"
    )
    claimed_by: str | None = described(
        t.STRING,
        "The run or process that tiers the table; null if none does",
        number=19,
        heading="claimed by",
    )
    requested_ms: int | None = described(
        TIME,
        "When the next round or a retry was requested; null: it was not, or nobody recorded it",
        number=25,
        heading="requested",
    )
    claimed_ms: int | None = described(
        TIME,
        "When the round under way was claimed; null: none is",
        number=26,
        heading="claimed at",
    )
    note: str | None = described(
        t.STRING,
        "Why the status is Unknown, or which buckets have no leader, on a cluster that keeps no"
        " statuses",
        number=15,
    )

    @property
    def has_no_leader(self) -> bool:
        """Whether the cluster has no leader for the table; ``note`` says what to do."""
        return self.note is not None and self.note.startswith(NO_LEADER)

    @property
    def is_unread(self) -> bool:
        """Whether the recorded status could not be read; ``note`` has the reason."""
        return self.note is not None and self.failures is None

    @property
    def is_failing(self) -> bool:
        """Whether the last round failed, and none has succeeded since."""
        if self.failures is not None:
            return self.failures > 0
        return self.status == "Failed" or self.last_error is not None


@dataclass(frozen=True, slots=True)
class LakeSnapshotInfo:
    """A lake snapshot registered in Fluss: its id and the end offset of each bucket."""

    table_id: int
    snapshot_id: int
    offsets: Mapping[TableBucket, int]
