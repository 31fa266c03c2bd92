"""The small JSON files of a round under ``work_uri``: plan, result, failure.

    <work_uri>/<lease id>/<table id>-<tiering epoch>/plan.json
                                                     result-<attempt>.json
                                                     failure-<attempt>.json

Whoever acquires writes the plan, the driver its result or failure, whoever settles reads them. Each
appears under its name at once, is versioned, and holds no secret. ``attempt`` is new on every try.
"""

from __future__ import annotations

import glob
import json
import uuid
from dataclasses import asdict, dataclass, field
from typing import Any

from sluice.errors import UnknownFileVersion
from sluice.masking import reason_text
from sluice.model import BucketSnapshot, Claim, TableBucket, TablePath

VERSION = 1
LEASED_VERSION = 2
"""Of a plan that names KV snapshots: a driver of before would pass them over, so it refuses it."""


@dataclass(frozen=True, slots=True)
class PlanFile:
    """What a driver needs to know of its round."""

    claim: Claim
    lease_id: str
    bootstrap: str
    """Address of the cluster: grpc://HOST:PORT or fluss://HOST:PORT."""
    snapshots: tuple[BucketSnapshot, ...] = ()
    """KV snapshots that the lease holds for this round: of buckets that were never tiered."""

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
        if self.snapshots:
            content["version"] = LEASED_VERSION
            content["snapshots"] = {
                _bucket_text(s.bucket): f"{s.snapshot_id}@{s.log_offset}" for s in self.snapshots
            }
        return content

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> PlanFile:
        """:raises UnknownFileVersion: of another version. A plan without lease id holds nothing."""
        _check_version("plan", content, VERSION, LEASED_VERSION)
        claim = Claim(
            content["table_id"],
            TablePath.parse(content["table"]),
            content["tiering_epoch"],
            content["coordinator_epoch"],
        )
        snapshots = tuple(
            _bucket_snapshot(claim.table_id, bucket, snapshot)
            for bucket, snapshot in content.get("snapshots", {}).items()
        )
        return cls(claim, content.get("lease_id", ""), content["bootstrap"], snapshots)


@dataclass(frozen=True, slots=True)
class RoundResult:
    """What a finished round brought.

    ``outcome``: ``committed``, ``nothing_new`` (no offset advanced), ``already_landed`` (an earlier
    try of this round had committed), or ``claim_lost`` (another round was begun: no failure of the
    table; with a lake snapshot id, its rows had landed, and only Fluss had not heard of them).
    Offsets are keyed ``BUCKET`` or ``PARTITION_ID/BUCKET``, exclusive ends.
    """

    table: str
    table_id: int
    tiering_epoch: int
    coordinator_epoch: int
    outcome: str
    rows: int = 0
    """Rows written: of a table with a primary key, one for each key that has one."""
    bytes_read: int = 0
    bytes_written: int = 0
    files: int = 0
    offsets: dict[str, int] = field(default_factory=dict)
    lake_snapshot_id: int | None = None
    recovered_snapshot_id: int | None = None
    """A lake snapshot of an earlier round that this one registered with Fluss first."""
    notes: tuple[str, ...] = ()
    forced: str = ""
    """Where the round was cut, because it took too long or was too large, and how much is left: the
    finish is reported as forced, so that the table is queued again at once. Empty: it was not."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Seconds per phase: plan, recover, copy, prepare, lake_commit, fluss_commit, total."""
    deletes: int = 0
    """Of a table with a primary key: keys whose earlier rows the commit deletes."""

    def __post_init__(self) -> None:
        # Wherever it goes from here (file, XCom, log, terminal), it holds no secret.
        object.__setattr__(self, "notes", tuple(reason_text(note) for note in self.notes))
        object.__setattr__(self, "forced", reason_text(self.forced))

    @property
    def is_given_up(self) -> bool:
        """Whether the claim was lost before its rows landed: another round has to bring them."""
        return self.outcome == "claim_lost" and self.lake_snapshot_id is None

    def to_json(self) -> dict[str, Any]:
        return {"version": VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> RoundResult:
        _check_version("result", content)
        known = {name: content[name] for name in cls.__slots__ if name in content}
        return cls(**{**known, "notes": tuple(known.get("notes", ()))})


@dataclass(frozen=True, slots=True)
class RoundFailure:
    """Why a round failed: the class of the error, a short reason, and its deepest cause.

    Both texts are masked and cut, whoever makes it.
    """

    kind: str
    reason: str
    deepest_cause: str
    retryable: bool

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", reason_text(self.reason))
        object.__setattr__(self, "deepest_cause", reason_text(self.deepest_cause))

    def to_json(self) -> dict[str, Any]:
        return {"version": VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> RoundFailure:
        _check_version("failure", content)
        return cls(**{name: content[name] for name in cls.__slots__})


def round_uri(work_uri: str, lease_id: str, claim: Claim) -> str:
    """The folder of one round."""
    return f"{work_uri.rstrip('/')}/{lease_id}/{claim.table_id}-{claim.tiering_epoch}"


def plan_uri(work_uri: str, lease_id: str, claim: Claim) -> str:
    return f"{round_uri(work_uri, lease_id, claim)}/plan.json"


def result_uri(plan: str, attempt: str) -> str:
    return f"{plan.rsplit('/', 1)[0]}/result-{attempt}.json"


def failure_uri(plan: str, attempt: str) -> str:
    return f"{plan.rsplit('/', 1)[0]}/failure-{attempt}.json"


def write_json(uri: str, content: dict[str, Any]) -> None:
    """Writes a file that appears under its name whole or not at all.

    :raises OSError: from the file system, with its path.
    """
    fs, path = _file_system(uri)
    written = json.dumps(content, indent=2, sort_keys=True).encode()
    if uri.startswith(("s3:", "s3a:", "s3n:")):  # an object is there once it is whole
        fs.pipe_file(path, written)
        return
    fs.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
    temporary = f"{path}.{uuid.uuid4().hex}.tmp"
    fs.pipe_file(temporary, written)
    fs.mv(temporary, path)


def read_json(uri: str) -> dict[str, Any] | None:
    """The content of a file, or None if there is no such file.

    :raises ValueError: it is no JSON; :raises UnknownFileVersion: it is no JSON object.
    """
    fs, path = _file_system(uri)
    try:
        with fs.open(path, "rb") as file:
            content = json.loads(file.read())
    except FileNotFoundError:
        return None
    if not isinstance(content, dict):
        raise UnknownFileVersion(f"{uri} holds {str(content)[:80]!r}, which is no file of a round")
    return content


def plan_uris(work_uri: str, lease_id: str) -> list[str]:
    """The plan files of one job, in order of their names; empty if it has written none."""
    return _matching(f"{work_uri.rstrip('/')}/{lease_id}", "*/plan.json")


def round_outcome(plan: str) -> RoundResult | RoundFailure | None:
    """What the drivers of a round left: a result if any try brought one, else the last failure.

    A result that says ``claim_lost`` yields to one of another try that committed.
    """
    folder = plan.rsplit("/", 1)[0]
    results = [RoundResult.from_json(content) for content in _contents(folder, "result-*.json")]
    if results:
        return next((r for r in results if r.outcome != "claim_lost"), results[0])
    failures = [RoundFailure.from_json(content) for content in _contents(folder, "failure-*.json")]
    return failures[-1] if failures else None


def _contents(folder: str, pattern: str) -> list[dict[str, Any]]:
    contents = (read_json(uri) for uri in _matching(folder, pattern))
    return [content for content in contents if content is not None]


def _matching(folder: str, pattern: str) -> list[str]:
    """Files that match, the oldest first where the file system tells their times."""
    fs, path = _file_system(folder)
    fs.invalidate_cache()  # another machine may have written since this one looked
    found = fs.glob(f"{glob.escape(path)}/{pattern}", detail=True)
    by_age = sorted(found, key=lambda name: (str(_time_of(found[name])), name))
    return [fs.unstrip_protocol(name) for name in by_age]


def _file_system(uri: str) -> tuple[Any, str]:
    """By what the environment says, which Airflow and Spark share."""
    from sluice.storage import fsspec_file_system  # loads pyarrow, which a DAG file does not need

    return fsspec_file_system(uri, {})


def _time_of(info: dict[str, Any]) -> Any:
    return info.get("mtime") or info.get("LastModified") or info.get("last_modified") or ""


def _bucket_text(bucket: TableBucket) -> str:
    """``BUCKET`` or ``PARTITION_ID/BUCKET``."""
    partition = "" if bucket.partition_id is None else f"{bucket.partition_id}/"
    return f"{partition}{bucket.bucket}"


def _bucket_snapshot(table_id: int, bucket: str, snapshot: str) -> BucketSnapshot:
    partition, _, number = bucket.rpartition("/")
    snapshot_id, _, log_offset = snapshot.partition("@")
    return BucketSnapshot(
        TableBucket(table_id, int(partition) if partition else None, int(number)),
        int(snapshot_id),
        int(log_offset),
    )


def _check_version(what: str, content: dict[str, Any], *versions: int) -> None:
    known = versions or (VERSION,)
    if content.get("version") not in known:
        raise UnknownFileVersion(
            f"{what} file of version {content.get('version')!r}: this Sluice reads"
            f" {' and '.join(map(str, known))}; use the same version on Airflow and on Spark"
        )
