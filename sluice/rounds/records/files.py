"""The small JSON files of a round under ``work_uri``: plan, result, failure, size.

    <work_uri>/<lease id>/<table id>-<tiering epoch>/plan.json
                                                     result-<attempt>.json
                                                     failure-<attempt>.json
                                                     size-<attempt>.json
                                                     keys-<attempt>-<table>.json

The acquire task writes the plan, the driver writes a result or a failure, the settle task reads
them. The driver also writes a size, which extends the time limit of the tier task (``copy_size``).
Each file appears complete under its name and has a version. Each try of the driver has its own
``attempt``. No file contains a secret, except the one of keys, which lives as long as the round:
renewed keys of the lake's storage, for executors (``sluice.lake.storage.keys_file``).
"""

from __future__ import annotations

import contextlib
import glob
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

from sluice.errors import UnknownFileVersion
from sluice.json_text import json_of
from sluice.masking import holds_secret, mask
from sluice.model import BucketSnapshot, Claim, Reason, TableBucket, TablePath, TieringRound
from sluice.model.reason import WITHHELD
from sluice.model.record_fields import fields_of

_LOG = logging.getLogger(__name__)
VERSION = 1
LEASED_VERSION = 2
"""Version of a plan with KV snapshots: older drivers would ignore them, so they must refuse it."""
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
class PlanFile:
    """The plan of one round, as the driver reads it."""

    claim: Claim
    lease_id: str
    bootstrap: str
    """Address of the cluster: grpc://HOST:PORT or fluss://HOST:PORT."""
    snapshots: tuple[BucketSnapshot, ...] = ()
    """KV snapshots leased for this round, one for each bucket that was never tiered."""
    rows: int | None = None
    """About how many rows waited when the table was claimed; None: not known."""
    until: Mapping[str, int] | None = None
    """Offsets that the run must reach, by bucket: the ends of the logs when it was triggered.
    Empty: not known. None: the run may leave rows to the next one."""

    def is_reached(self, result: RoundResult) -> bool:
        """Whether a round of this plan reached what the run must reach.

        A round without a limit that ended it early reached the ends of the logs when it was
        planned, which is later.
        """
        if self.until is None or not result.forced:
            return True
        known = bool(self.until)
        return known and all(result.offsets.get(b, 0) >= end for b, end in self.until.items())

    def to_json(self) -> dict[str, Any]:
        content: dict[str, Any] = {
            "version": VERSION,
            "table_id": self.claim.table_id,
            "table": str(self.claim.path),
            "tiering_epoch": self.claim.tiering_epoch,
            "coordinator_epoch": self.claim.coordinator_epoch,
            "lease_id": self.lease_id,
            "bootstrap": self.bootstrap,
        }
        if self.rows is not None:
            content["rows"] = self.rows
        if self.until is not None:
            content["until"] = dict(self.until)
        if self.snapshots:
            content["version"] = LEASED_VERSION
            content["snapshots"] = {
                s.bucket.name: f"{s.snapshot_id}@{s.log_offset}" for s in self.snapshots
            }
        return content

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> PlanFile:
        """Reads a plan; without a lease id, the plan has no lease.

        :raises UnknownFileVersion: the file has another version.
        """
        _check_version("plan", content, VERSION, LEASED_VERSION)
        claim = claim_of(content)
        snapshots = tuple(
            _bucket_snapshot(claim.table_id, bucket, snapshot)
            for bucket, snapshot in content.get("snapshots", {}).items()
        )
        lease_id, rows = content.get("lease_id", ""), content.get("rows")
        until = content.get("until")
        return cls(claim, lease_id, content["bootstrap"], snapshots, rows, until)


def claim_of(content: Mapping[str, Any]) -> Claim:
    """The claim in a plan file or in an XCom."""
    return Claim(
        content["table_id"],
        TablePath.parse(content["table"]),
        content["tiering_epoch"],
        content["coordinator_epoch"],
    )


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
        _check_version("result", content)
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
        _check_version("failure", content)
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


def plan_uri(work_uri: str, lease_id: str, claim: Claim) -> str:
    round_name = f"{claim.table_id}-{claim.tiering_epoch}"
    return f"{work_uri.rstrip('/')}/{lease_id}/{round_name}/plan.json"


def result_uri(plan: str, attempt: str) -> str:
    return f"{plan.rsplit('/', 1)[0]}/result-{attempt}.json"


def failure_uri(plan: str, attempt: str) -> str:
    return f"{plan.rsplit('/', 1)[0]}/failure-{attempt}.json"


def keys_uri(plan: str, attempt: str = "") -> str:
    """How the addresses of the keys files of a round's attempt begin; without it: of all."""
    return f"{plan.rsplit('/', 1)[0]}/keys{attempt and '-'}{attempt}"


def write_json(uri: str, content: dict[str, Any], *, private: bool = False) -> None:
    """Writes a JSON file, which appears under its name complete or not at all.

    :param private: on a local disk, only this user can read the file.
    :raises OSError: from the file system, with its path.
    """
    from sluice.storage import write_whole  # loads pyarrow, see _file_system

    written = json.dumps(content, indent=2, sort_keys=True).encode()
    write_whole(*_file_system(uri), written, private=private)


def delete_file(uri: str) -> None:
    """Deletes a file, unless it is gone already. :raises OSError: from the file system."""
    fs, path = _file_system(uri)
    with contextlib.suppress(FileNotFoundError):
        fs.rm_file(path)


def delete_keys(uri: str) -> None:
    """Deletes the keys files that a killed driver has left. An error is logged: the keys end soon.

    :param uri: how their addresses begin.
    """
    folder, _, start = uri.rpartition("/")
    try:
        for one in listed(folder, f"{glob.escape(start)}-*.json*"):
            delete_file(one.uri)
    except Exception as error:  # file systems raise errors of many kinds
        _LOG.warning("cannot delete %s-*.json: %s", mask(uri), mask(str(error)))


def read_json(uri: str) -> dict[str, Any] | None:
    """The content of a JSON file, or None if there is no such file.

    :raises ValueError: the file is not JSON. :raises UnknownFileVersion: it is not a JSON object.
    """
    fs, path = _file_system(uri)
    try:
        with fs.open(path, "rb") as file:
            content = json_of(file.read())
    except FileNotFoundError:
        return None
    if not isinstance(content, dict):
        raise UnknownFileVersion(
            f"{uri} contains {str(content)[:80]!r}, which no round writes: delete the file"
        )
    return content


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """A plan as it is stored, and whether its round has a result."""

    plan: PlanFile
    written_ms: int | None
    """Epoch milliseconds; None: the file system does not say."""
    size_bytes: int
    has_result: bool


def stored_plan(uri: str, bytes_max: int, known: StoredPlan | None = None) -> StoredPlan | None:
    """A plan by one listing and one read; None if there is no such file.

    :param known: what was read before. It is not read again if time and size are the same.
    :raises OSError: from the file system, or the file has more than ``bytes_max`` bytes.
    :raises ValueError, KeyError, UnknownFileVersion: it is no plan of a known version.
    """
    fs, path = _file_system(uri)
    fs.invalidate_cache()
    folder = path.rpartition("/")[0]
    try:
        files = {one["name"].rpartition("/")[2]: one for one in fs.ls(folder, detail=True)}
    except FileNotFoundError:
        return None
    info = files.get("plan.json")
    if info is None:
        return None
    if info["size"] > bytes_max:
        raise OSError(f"{uri} has {info['size']} bytes, more than {bytes_max}")
    written_ms, size_bytes = _epoch_ms(_time_of(info)), info["size"]
    has_result = any(name.startswith("result-") for name in files)
    if known and (known.written_ms, known.size_bytes) == (written_ms, size_bytes):
        return replace(known, has_result=has_result)
    content = read_json(uri)
    if content is None:
        return None
    return StoredPlan(PlanFile.from_json(content), written_ms, size_bytes, has_result)


def _epoch_ms(time: Any) -> int | None:
    if isinstance(time, datetime):
        time = time.timestamp()
    return round(time * 1000) if isinstance(time, int | float) else None


def plan_uris(work_uri: str, lease_id: str) -> list[str]:
    """The plan files of one run, sorted by name; empty if it has written none."""
    return _matching(f"{work_uri.rstrip('/')}/{lease_id}", "*/plan.json")


def run_files(work_uri: str, lease_id: str) -> list[str]:
    """All files of one run's rounds: one listing, which costs as much as that of the plans."""
    return _matching(f"{work_uri.rstrip('/')}/{lease_id}", "*/*.json")


def round_outcome(plan: str) -> RoundResult | RoundFailure | None:
    """The outcome of a round: a result if any attempt has one, else the last failure, else None.

    A result of another attempt takes precedence over ``claim_lost``.
    """
    folder = plan.rsplit("/", 1)[0]
    results = [RoundResult.from_json(content) for content in _contents(folder, "result-*.json")]
    if results:
        return next((r for r in results if r.outcome != "claim_lost"), results[0])
    failures = round_failures(plan)
    return [*failures.values()][-1] if failures else None


def round_failures(plan: str) -> dict[str, RoundFailure]:
    """The failures of a round by attempt, the oldest first."""
    found = {}
    for uri in _matching(plan.rsplit("/", 1)[0], "failure-*.json"):
        if (content := read_json(uri)) is not None:
            attempt = uri.rsplit("/failure-", 1)[1].removesuffix(".json")
            found[attempt] = RoundFailure.from_json(content)
    return found


def _contents(folder: str, pattern: str) -> list[dict[str, Any]]:
    contents = (read_json(uri) for uri in _matching(folder, pattern))
    return [content for content in contents if content is not None]


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file in a listing."""

    uri: str
    size_bytes: int
    modified_ms: int | None = None
    """Epoch milliseconds; None: the file system does not say."""


def listed(folder: str, pattern: str) -> list[ListedFile]:
    """Files that match, the oldest first if the file system reports their times.

    :raises OSError: the folder cannot be listed; one that does not exist has no files.
    """
    fs, path = _file_system(folder)
    fs.invalidate_cache()  # another machine may have written since the last listing
    found = fs.glob(f"{glob.escape(path)}/{pattern}", detail=True)
    by_age = sorted(found, key=lambda name: (str(_time_of(found[name])), name))
    return [
        ListedFile(
            fs.unstrip_protocol(name),
            int(found[name].get("size") or 0),
            _epoch_ms(_time_of(found[name])),
        )
        for name in by_age
    ]


def _matching(folder: str, pattern: str) -> list[str]:
    return [one.uri for one in listed(folder, pattern)]


def _file_system(uri: str) -> tuple[Any, str]:
    """The file system of a URI, configured by the environment, which Airflow and Spark share."""
    from sluice.storage import fsspec_file_system  # loads pyarrow, which a DAG file does not need

    return fsspec_file_system(uri, {})


def _time_of(info: dict[str, Any]) -> Any:
    return info.get("mtime") or info.get("LastModified") or info.get("last_modified") or ""


def _bucket_snapshot(table_id: int, bucket: str, snapshot: str) -> BucketSnapshot:
    snapshot_id, _, log_offset = snapshot.partition("@")
    named = TableBucket.named(table_id, bucket)
    return BucketSnapshot(named, int(snapshot_id), int(log_offset))


def _check_version(what: str, content: dict[str, Any], *versions: int) -> None:
    known = versions or (VERSION,)
    if content.get("version") not in known:
        raise UnknownFileVersion(
            f"the {what} file has version {content.get('version')!r}, but this Sluice reads version"
            f" {' and '.join(map(str, known))}: install the same Sluice for Airflow and for Spark"
        )
