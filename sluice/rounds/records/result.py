"""What became of a round: its result or its failure, as the driver writes it beside the plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sluice.errors import UnknownFileVersion
from sluice.masking import holds_secret
from sluice.model import Claim, Reason, TieringRound
from sluice.model.reason import WITHHELD
from sluice.model.record_fields import fields_of
from sluice.rounds.records.json_files import (
    VERSION,
    check_file_version,
    matching,
    read_json,
)

_FEW_HAVE = frozenset(
    {
        "compacted",
        "files_compacted",
        "compaction_read_bytes",
        "compaction_written_bytes",
        "compaction_spilled_bytes",
        "compaction_memory_bytes",
        "compaction_ms",
        "compaction_cpu_ms",
        "compaction_request_ms",
        "snapshots_expired",
        "files_expired",
    }
)
"""Fields of a result that its file lacks if they are empty or 0."""
_NAMES_IN_RESULT = {"rows_written": "rows", "keys_deleted": "deletes", "files_written": "files"}
"""Fields of the history whose name in a result is another one."""
_ADDED_BY_KEEPER = ("table_id", "tiering_epoch", "coordinator_epoch")
"""Fields that a worker does not tell: who keeps the history knows them."""
POSITIONS = "positions"
"""How a round usually deletes keys; then nothing is told of it."""


@dataclass(frozen=True, slots=True)
class RoundResult:
    """The result of a finished round.

    ``outcome``: ``committed``, ``nothing_new`` (no offset advanced), ``already_landed`` (an earlier
    attempt of this round had committed), or ``claim_lost`` (another round was started, which is no
    failure of the table; if there is a lake snapshot id, the rows are in the lake and only the
    registration with Fluss is missing). Offsets are exclusive ends, by ``BUCKET`` or
    ``PARTITION_ID/BUCKET``.
    """

    table: str
    table_id: int
    tiering_epoch: int
    coordinator_epoch: int
    outcome: str
    rows: int = 0
    """Rows written; for a table with a primary key, at most one per key."""
    bytes_read: int = 0
    bytes_written: int = 0
    files: int = 0
    offsets: dict[str, int] = field(default_factory=dict)
    lake_snapshot_id: int | None = None
    recovered_snapshot_id: int | None = None
    """A lake snapshot of an earlier round that this one registered with Fluss first."""
    notes: tuple[str, ...] = ()
    """Notes for users, without secrets: a note about an error contains its reason."""
    forced: str = ""
    """Which limit ended the round early, and how much remains. The finish is then reported as
    forced, so that the coordinator queues the table again at once. Empty: no limit was reached."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Seconds per phase: plan, recover, copy, prepare, lake_commit, fluss_commit, expire, total."""
    deletes: int = 0
    """For a table with a primary key: the number of keys whose earlier rows the commit deletes."""
    deletes_as: str = ""
    """``positions`` or ``equality deletes (WHY)``, or both; empty if it deleted no key."""
    lookup_files: int = 0
    """Data files whose keys were read to find the positions of deleted rows."""
    lookup_bytes: int = 0
    """Bytes of their key columns, and of earlier positions."""
    lookup_ms: int = 0
    """CPU milliseconds of the look-up."""
    compacted: str = ""
    """What it compacted, and why it left out what it did; empty: nothing was worth it."""
    files_compacted: int = 0
    """Data files that the compaction replaced."""
    compaction_read_bytes: int = 0
    """Bytes of these files, and of the round's own."""
    compaction_written_bytes: int = 0
    """Bytes of the files that replace them. Of a primary-key table, ``bytes_written`` includes
    them."""
    compaction_spilled_bytes: int = 0
    """Bytes of rows that did not fit into memory, as they were stored on local disks."""
    compaction_memory_bytes: int = 0
    """The most memory that one bucket needed for rows."""
    compaction_ms: int = 0
    """Milliseconds of the longest compaction of a bucket: so much longer the round kept its claim,
    and its lease of KV snapshots if it had one."""
    compaction_cpu_ms: int = 0
    """CPU milliseconds of all compactions."""
    compaction_request_ms: int | None = None
    """When the compaction was requested that it completed, epoch milliseconds; None: none was."""
    lag_rows_before: int | None = None
    """Log offsets missing in the lake when the round was planned."""
    lag_rows_after: int | None = None
    """Those of them that it left to the next round."""
    accepted: str = ""
    """Offset ranges that a user accepted as missing from the lake."""
    history_notes: tuple[str, ...] = ()
    """Those of the notes that the history keeps: on untiered rows of partitions dropped during the
    round, and on partitions created again, whose old rows it deleted."""
    table_dropped: bool = False
    """Whether the claim was lost because the table was dropped: no later round copies the rows."""
    repaired_buckets: int = 0
    """Number of buckets whose gap was accepted, whose batch was skipped, or that were rebuilt."""
    snapshots_expired: int = 0
    """Old lake snapshots that expired after the commit."""
    files_expired: int = 0
    """Files of these snapshots that were deleted."""
    lake_rows: int | None = None
    """Rows in the data files of the lake table at its end, before deletes."""
    lake_files: int | None = None
    """Data files of the lake table at its end."""
    lake_bytes: int | None = None
    """Bytes of the data and delete files of the lake table at its end."""
    lake_layout: str = ""
    """``clean`` or ``legacy``: whether the lake table has system columns. Empty: nothing was
    committed, or by an earlier attempt."""
    copied_by: str = ""
    """On Spark, ``executors`` or ``driver threads``; empty if nothing was copied."""

    @classmethod
    def of(cls, claim: Claim, outcome: str, **facts: Any) -> RoundResult:
        """The result of a claim's round."""
        table, epochs = str(claim.path), (claim.tiering_epoch, claim.coordinator_epoch)
        return cls(table, claim.table_id, *epochs, outcome, **facts)

    @property
    def is_given_up(self) -> bool:
        """Whether the claim was lost before the lake commit: this round copied no rows."""
        return self.outcome == "claim_lost" and self.lake_snapshot_id is None

    def details(
        self,
        worker: str | None = None,
        *,
        airflow_task: str | None = None,
        spark_application: str | None = None,
    ) -> TieringRound:
        """What the round did, for the history of the table.

        :param worker, airflow_task, spark_application: who ran it; None: not known, or none of
            that kind.
        """
        told = {
            entry.name: getattr(self, _NAMES_IN_RESULT.get(entry.name, entry.name), None)
            for entry in fields_of(TieringRound)
            if entry.name not in _ADDED_BY_KEEPER
        }
        values: dict[str, Any] = {n: None if v == "" else v for n, v in told.items()}
        values |= phases_ms(self.seconds)
        values |= {
            "note": "; ".join(filter(None, (self.forced, *self.history_notes))) or None,
            "worker": worker,
            "airflow_task": airflow_task,
            "spark_application": spark_application,
        }
        return TieringRound(**values)

    def checked(self, secrets: Iterable[str] = ()) -> RoundResult:
        """This result to show or to store, without texts of errors that contain a secret."""
        hidden = tuple(secrets)

        def shown(notes: Sequence[str]) -> tuple[str, ...]:
            return tuple(WITHHELD if holds_secret(note, hidden) else note for note in notes)

        deletes_as = self.deletes_as
        if holds_secret(deletes_as, hidden):  # only equality deletes have a reason
            deletes_as = f"equality deletes ({WITHHELD})"
        compacted = WITHHELD if holds_secret(self.compacted, hidden) else self.compacted
        return replace(
            self,
            notes=shown(self.notes),
            history_notes=shown(self.history_notes),
            deletes_as=deletes_as,
            compacted=compacted,
        )

    def to_json(self) -> dict[str, Any]:
        """The content of its file. It lacks what few rounds have, because XComs are small."""
        content = asdict(self)
        return {
            "version": VERSION,
            **{name: value for name, value in content.items() if value or name not in _FEW_HAVE},
        }

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> RoundResult:
        check_file_version("result", content)
        known = {name: content[name] for name in cls.__slots__ if name in content}
        lists = {name: tuple(known.get(name, ())) for name in ("notes", "history_notes")}
        return cls(**{**known, **lists})


@dataclass(frozen=True, slots=True)
class RoundFailure:
    """A failed try of a round: why it failed, and what it did until then."""

    reason: Reason
    seconds: dict[str, float] = field(default_factory=dict)
    """Seconds per phase, as in a result; the copy phase too if it failed."""
    committed: RoundResult | None = None
    """What the round has committed of the buckets that did not fail; None: nothing."""

    def details(
        self,
        worker: str | None = None,
        *,
        airflow_task: str | None = None,
        spark_application: str | None = None,
    ) -> TieringRound:
        """What the round did, for the history of the table: see :meth:`RoundResult.details`."""
        committed = TieringRound() if self.committed is None else self.committed.details()
        return replace(
            committed,
            outcome=None,
            worker=worker,
            airflow_task=airflow_task,
            spark_application=spark_application,
            **phases_ms(self.seconds),
        )

    def to_json(self, secrets: Iterable[str] = ()) -> dict[str, Any]:
        """The content of its file, with the reason checked."""
        hidden = tuple(secrets)
        reason = self.reason.checked(hidden)
        committed = self.committed.checked(hidden).to_json() if self.committed else None
        return {
            **({"committed": committed} if committed else {}),
            "version": VERSION,
            "kind": reason.kind,
            "reason": reason.text,
            "deepest_cause": reason.deepest_cause,
            "retryable": reason.retryable,
            "seconds": self.seconds,
        }

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> RoundFailure:
        check_file_version("failure", content)
        texts = [content.get(name) for name in ("kind", "reason", "deepest_cause")]
        if not all(isinstance(text, str) for text in texts):
            raise UnknownFileVersion(
                "the failure file lacks one of the texts kind, reason and deepest_cause; it has"
                f" {', '.join(sorted(content))}: install the same Sluice for Airflow and for Spark"
            )
        kind, text, deepest_cause = map(str, texts)
        reason = Reason(kind, text, deepest_cause, bool(content.get("retryable")))
        committed = content.get("committed")
        result = None if committed is None else RoundResult.from_json(committed)
        return cls(reason, content.get("seconds", {}), result)


def phases_ms(seconds: Mapping[str, float]) -> dict[str, Any]:
    """The milliseconds of the phases that a history of rounds keeps."""
    known = {entry.name for entry in fields_of(TieringRound)}
    found = {f"{phase}_ms": round(spent_s * 1000) for phase, spent_s in seconds.items()}
    return {name: ms for name, ms in found.items() if name in known}


def result_uri(plan: str, attempt: str) -> str:
    return f"{plan.rsplit('/', 1)[0]}/result-{attempt}.json"


def failure_uri(plan: str, attempt: str) -> str:
    return f"{plan.rsplit('/', 1)[0]}/failure-{attempt}.json"


def round_outcome(plan: str) -> RoundResult | RoundFailure | None:
    """The outcome of a round: a result if any attempt has one, else the last failure, else None.

    A result of another attempt takes precedence over ``claim_lost``.
    """
    folder = plan.rsplit("/", 1)[0]
    contents = [read_json(uri) for uri in matching(folder, "result-*.json")]
    results = [RoundResult.from_json(content) for content in contents if content is not None]
    if results:
        return next((r for r in results if r.outcome != "claim_lost"), results[0])
    failures = round_failures(plan)
    return [*failures.values()][-1] if failures else None


def round_failures(plan: str) -> dict[str, RoundFailure]:
    """The failures of a round by attempt, the oldest first."""
    found = {}
    for uri in matching(plan.rsplit("/", 1)[0], "failure-*.json"):
        if (content := read_json(uri)) is not None:
            attempt = uri.rsplit("/failure-", 1)[1].removesuffix(".json")
            found[attempt] = RoundFailure.from_json(content)
    return found
