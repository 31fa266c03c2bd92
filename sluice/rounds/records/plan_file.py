"""The plan of one round, as acquire writes it and the driver reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sluice.model import BucketSnapshot, Claim, TableBucket, TablePath
from sluice.rounds.records.json_files import (
    VERSION,
    check_file_version,
    epoch_ms,
    file_system_of,
    matching,
    read_json,
    time_of,
)
from sluice.rounds.records.result import RoundResult

LEASED_VERSION = 2
"""Version of a plan with KV snapshots: older drivers would ignore them, so they must refuse it."""


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
        check_file_version("plan", content, VERSION, LEASED_VERSION)
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


def plan_uri(work_uri: str, lease_id: str, claim: Claim) -> str:
    round_name = f"{claim.table_id}-{claim.tiering_epoch}"
    return f"{work_uri.rstrip('/')}/{lease_id}/{round_name}/plan.json"


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
    fs, path = file_system_of(uri)
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
    written_ms, size_bytes = epoch_ms(time_of(info)), info["size"]
    has_result = any(name.startswith("result-") for name in files)
    if known and (known.written_ms, known.size_bytes) == (written_ms, size_bytes):
        return replace(known, has_result=has_result)
    content = read_json(uri)
    if content is None:
        return None
    return StoredPlan(PlanFile.from_json(content), written_ms, size_bytes, has_result)


def plan_uris(work_uri: str, lease_id: str) -> list[str]:
    """The plan files of one run, sorted by name; empty if it has written none."""
    return matching(f"{work_uri.rstrip('/')}/{lease_id}", "*/plan.json")


def _bucket_snapshot(table_id: int, bucket: str, snapshot: str) -> BucketSnapshot:
    snapshot_id, _, log_offset = snapshot.partition("@")
    named = TableBucket.named(table_id, bucket)
    return BucketSnapshot(named, int(snapshot_id), int(log_offset))
