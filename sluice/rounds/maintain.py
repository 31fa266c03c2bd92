"""Maintains one lake table: looks what it needs, does it, and reports what that gained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from sluice.errors import LakeCommitRefused, SluiceError
from sluice.failpoints import failpoint
from sluice.masking import mask
from sluice.model import TablePath
from sluice.rounds.clean import CleanReport, TableFiles, clean
from sluice.rounds.conversion import ConversionRunner
from sluice.rounds.expiry import Expired, ExpiryRule
from sluice.rounds.maintenance import MANY_MANIFESTS, Conversion, TableHealth
from sluice.rounds.reasons import reason_of

MERGES_MAX = 3
"""How often a merge of manifests is tried, if other writers are faster."""
METADATA_AGE_MS = 3 * 24 * 3_600_000
"""Unreferenced manifests that are older are deleted. Iceberg's remove_orphan_files has the same."""


class Maintenance(Protocol):
    """What may be done to a lake table beside its rounds."""

    def health(self) -> TableHealth:
        """:raises LakeNotWritable: the metadata cannot be read."""

    def convert(self, memory_bytes: int, run: ConversionRunner | None = None) -> Conversion:
        """Converts equality deletes to positions.

        :param run: converts buckets; None: one after the other.

        :raises LakeNotWritable: catalog or storage cannot be read, or refuse.
        :raises LakeCommitOutcomeUnknown: a commit may have succeeded.
        """

    def merge_manifests(self) -> int:
        """Merges small manifests of data files; returns how many there are fewer.

        :raises LakeCommitRefused: other writers were faster.
        :raises LakeCommitOutcomeUnknown: the commit may have succeeded.
        """

    def remove_metadata_orphans(self, before_ms: int) -> tuple[int, int]:
        """Deletes manifests and files of maintenance that no snapshot references.

        :param before_ms: epoch milliseconds: younger files stay.
        :returns: how many files, and their bytes.
        """


class MaintainedTable(TableFiles, Protocol):
    """One lake table, as maintenance uses it."""

    def maintenance(self) -> Maintenance:
        """What may be done to it."""

    def expire_by(self, rule: ExpiryRule) -> Expired:
        """Expires the snapshots that the rule chooses."""


@dataclass(slots=True)
class MaintenanceReport:
    """What one table needed, and what became of it."""

    table: str
    before: TableHealth = field(default_factory=TableHealth)
    after: TableHealth | None = None
    """None: nothing was done."""
    conversion: Conversion | None = None
    snapshots_expired: int = 0
    files_expired: int = 0
    manifests_merged: int = 0
    """Manifests of data files that there are fewer."""
    orphans_removed: int = 0
    orphan_bytes: int = 0
    compaction_requested: bool = False
    """Whether a compaction was requested from the table's next round."""
    compaction_is_open: bool = False
    """Whether that had been requested before, and no round has completed it yet."""
    notes: list[str] = field(default_factory=list)
    """What did not work, without secrets."""
    error: str = ""
    """Why the table could not be read; empty if it could."""

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "needs": list(self.before.needs())}


@dataclass(frozen=True, slots=True)
class MaintenanceOptions:
    """What maintenance may do."""

    memory_bytes: int
    """For the keys and positions of one bucket. ``run`` converts several at once."""
    now_ms: int
    """Epoch milliseconds."""
    round_ms: int
    """Milliseconds that a round of the table may copy: what it reads meanwhile does not expire."""
    registered: int | None = None
    """The snapshot that Fluss has registered, if that is known: it does not expire."""
    metadata_age_ms: int = METADATA_AGE_MS
    request_compaction: Callable[[], bool] | None = None
    """Requests a compaction from the table's next round, and returns False if one is open. None: no
    round compacts the table."""
    run: ConversionRunner | None = None
    """Converts buckets, on threads or executors. None: one after the other, here."""
    expires: bool = True
    """Whether old snapshots may expire."""
    secrets: tuple[str, ...] = ()
    """Values to mask in notes."""


def maintain(
    path: TablePath, table: MaintainedTable, options: MaintenanceOptions, *, apply: bool
) -> MaintenanceReport:
    """Does what one table needs. A step that fails is a note, and the next one follows.

    :param apply: False: only reports what the table needs.
    :raises LakeNotWritable: the table cannot be read.
    """
    work = table.maintenance()
    report = MaintenanceReport(str(path), work.health())
    if not apply:
        return report
    if report.before.equality_files or report.before.useless_equality_files:
        _step(report, "convert equality deletes", lambda: _convert(report, work, options))
    deletes_files = not report.before.keeps_files
    if deletes_files and options.expires:
        _step(report, "expire snapshots", lambda: _expire(report, table, options))
    if report.before.small_data_manifests > MANY_MANIFESTS:
        _step(report, "merge manifests", lambda: _merge(report, work))
    if deletes_files:
        _step(report, "delete orphan files", lambda: _clean(report, path, table, work, options))
    report.after = work.health()
    if report.after.is_worth_rewriting:
        _step(report, "request a compaction", lambda: _request(report, options))
    report.notes = [mask(note, options.secrets) for note in report.notes]
    return report


def _step(report: MaintenanceReport, what: str, act: Callable[[], None]) -> None:
    try:
        act()
    except SluiceError as error:
        report.notes.append(f"could not {what}: {reason_of(error).text}")


def _convert(report: MaintenanceReport, work: Maintenance, options: MaintenanceOptions) -> None:
    report.conversion = work.convert(options.memory_bytes, options.run)


def _expire(report: MaintenanceReport, table: MaintainedTable, options: MaintenanceOptions) -> None:
    newest = table.newest_tiering_snapshot()
    if newest is None:
        return
    kept = {newest.snapshot_id, *filter(None, [options.registered])}
    base = newest.snapshot_id
    rule = ExpiryRule(options.now_ms, options.round_ms, base, frozenset(kept))
    expired = table.expire_by(rule)
    report.snapshots_expired, report.files_expired = expired.snapshots, expired.files
    report.notes += expired.notes


def _merge(report: MaintenanceReport, work: Maintenance) -> None:
    for _ in range(MERGES_MAX):
        failpoint("maintain.manifests.before")
        try:
            report.manifests_merged = work.merge_manifests()
            return
        except LakeCommitRefused:  # no problem: a later maintenance merges them
            continue


def _request(report: MaintenanceReport, options: MaintenanceOptions) -> None:
    if options.request_compaction is not None:
        report.compaction_requested = options.request_compaction()
        report.compaction_is_open = not report.compaction_requested


def _clean(
    report: MaintenanceReport,
    path: TablePath,
    table: MaintainedTable,
    work: Maintenance,
    options: MaintenanceOptions,
) -> None:
    found: CleanReport = clean(path, table, apply=True)
    sizes = {one.path: one.size_bytes for one in found.dead}
    failpoint("maintain.orphans.before")
    count, size_bytes = work.remove_metadata_orphans(options.now_ms - options.metadata_age_ms)
    report.orphans_removed = len(found.removed) + count
    report.orphan_bytes = size_bytes + sum(sizes[one] for one in found.removed)
    report.notes += [f"{one} was not deleted: {why}" for one, why in found.failed.items()]
