"""Maintains one lake table: looks what it needs, does it, and reports what that gained.

Maintenance runs beside rounds and holds no claim. It converts equality deletes to positions, merges
manifests, expires snapshots, and removes files that nothing references. It rewrites no rows: that
belongs into a round's own commit, so it requests a compaction from the table's next round.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from sluice.errors import LakeCommitRefused, SluiceError
from sluice.failpoints import failpoint
from sluice.masking import mask
from sluice.model import TablePath
from sluice.quantities import byte_size, counted
from sluice.rounds.records.maintenance import TableReport
from sluice.rounds.upkeep.compaction import DEFAULT_COMPACTIONS, CompactionOptions
from sluice.rounds.upkeep.conversion import Conversion, ConversionRunner
from sluice.rounds.upkeep.health import MANY_MANIFESTS, TableHealth
from sluice.rounds.upkeep.orphans import CleanReport, TableFiles, clean
from sluice.rounds.values.expiry import Expired, ExpiryRule
from sluice.rounds.values.reasons import reason_of

_LOG = logging.getLogger(__name__)
MERGES_MAX = 3
"""How often a merge of manifests is tried, if other writers are faster."""
EXPIRED_MAX = 2_000
"""Snapshots that expire together: an expiry reads the manifest list of each that stays."""
METADATA_AGE_MS = 3 * 24 * 3_600_000
"""Unreferenced manifests that are older are deleted. Iceberg's remove_orphan_files has the same."""
NOT_REWRITTEN = "no round rewrites it: the table is not tiered, or tiering.compaction_bytes is 0"


class Maintenance(Protocol):
    """What may be done to a lake table beside its rounds."""

    def health(self, options: CompactionOptions = ...) -> TableHealth:
        """:param options: those of the rounds.
        :raises LakeNotWritable: the metadata cannot be read.
        """

    def convert(
        self,
        memory_bytes: int,
        run: ConversionRunner | None = None,
        done: Conversion | None = None,
    ) -> Conversion:
        """Converts equality deletes to positions.

        :param run: converts buckets; None: one after the other.
        :param done: counts what is done, also if an error ends it.

        :raises LakeNotWritable: catalog or storage cannot be read, or refuse.
        :raises LakeCommitOutcomeUnknown: a commit may have succeeded.
        """

    def merge_manifests(self) -> int:
        """Merges small manifests of data files; returns how many there are fewer.

        :raises LakeNotWritable: the metadata cannot be read or written.
        :raises LakeCommitRefused: other writers were faster.
        :raises LakeCommitOutcomeUnknown: the commit may have succeeded.
        """

    def due_snapshots(self, rule: ExpiryRule) -> int:
        """How many snapshots the rule would let expire now.

        :raises LakeNotWritable: the metadata cannot be read.
        """

    def remove_metadata_orphans(self, before_ms: int, *, apply: bool = True) -> tuple[int, int]:
        """Deletes manifests and files of maintenance that no snapshot references.

        :param before_ms: epoch milliseconds: younger files stay.
        :param apply: False: only counts them.
        :returns: how many files, and their bytes.
        :raises LakeNotWritable: a folder or a manifest cannot be read.
        """


class MaintainedTable(TableFiles, Protocol):
    """One lake table, as maintenance uses it."""

    def maintenance(self) -> Maintenance:
        """What may be done to it."""

    def expire_by(self, rule: ExpiryRule) -> Expired:
        """Expires the snapshots that the rule chooses."""


class CompactionRequests(Protocol):
    """The request for a compaction that is kept with the table's status."""

    def is_open(self) -> bool:
        """Whether one was made, and no round has completed it yet."""

    def make(self) -> None:
        """Requests a compaction from the table's next round."""


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
    snapshots_due: int = 0
    """Snapshots that may expire, if nothing was to be done."""
    orphans_found: int = 0
    """Files that no snapshot references, if nothing was to be done."""
    compaction_due: bool = False
    """Whether a compaction would be requested, if nothing was to be done."""
    is_rewritten: bool = True
    """Whether the table's rounds make a compaction that is requested."""
    compaction_requested: bool = False
    """Whether a compaction was requested from the table's next round."""
    compaction_is_open: bool = False
    """Whether one that would help had been requested before, and no round has completed it yet."""
    notes: list[str] = field(default_factory=list)
    """What did not work, without secrets."""
    error: str = ""
    """Why the table could not be read; empty if it could."""
    no_leader: str = ""
    """Which buckets of the table of Fluss have no leader, and what to do; empty if all have one."""

    def needs(self) -> list[str]:
        """What the table needs, the most urgent first; empty if it is healthy."""
        return [*filter(None, [self.no_leader]), *self.before.needs()]

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "needs": self.needs()}


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
    requests: CompactionRequests | None = None
    """Where a compaction is requested from the table's next round. None: no round makes one."""
    run: ConversionRunner | None = None
    """Converts buckets, on threads or executors. None: one after the other, here."""
    compaction: CompactionOptions = DEFAULT_COMPACTIONS
    """Those of the table's rounds: they say which files are small."""
    lists_folders: bool = True
    """Whether orphan files are counted if nothing is to be done: that lists the table's folders."""
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
    report = MaintenanceReport(str(path), work.health(options.compaction))
    report.is_rewritten = options.requests is not None
    steps = _Steps(path, table, work, options, report)
    if apply:
        steps.apply()
    else:
        steps.look()
    report.notes = [mask(note, options.secrets) for note in report.notes]
    return report


@dataclass(frozen=True, slots=True)
class _Steps:
    """The steps of the maintenance of one table, which fill its report."""

    path: TablePath
    table: MaintainedTable
    work: Maintenance
    options: MaintenanceOptions
    report: MaintenanceReport

    def apply(self) -> None:
        before = self.report.before
        if before.equality_files or before.useless_equality_files:
            self._step("convert equality deletes", self._convert)
        if not before.keeps_files and self.options.expires:
            self._step("expire snapshots", self._expire)
        if before.small_data_manifests > MANY_MANIFESTS:
            self._step("merge manifests", self._merge)
        if not before.keeps_files:
            self._step("delete orphan files", self._clean)
        self._step("read what the table needs now", self._look_again)
        if self._needs_compaction():
            self._step("request a compaction", self._request)

    def _needs_compaction(self) -> bool:
        """Whether the next round should rewrite rows.

        Equality deletes that a round has added meanwhile are left to the next maintenance.
        """
        health, done = self.report.after or self.report.before, self.report.conversion
        is_left = done is not None and not done.is_complete and health.equality_files > 0
        return self.options.requests is not None and (health.is_scattered or is_left)

    def look(self) -> None:
        """Reports what would be done about snapshots, orphan files and small data files."""
        before = self.report.before
        if self.options.requests is not None and (before.is_scattered or before.equality_files):
            self._step("read whether a compaction is requested", self._find_request)
        if not before.keeps_files:
            if self.options.expires:
                self._step("find what may expire", self._find_due)
            if self.options.lists_folders:
                self._step("find orphan files", self._find_orphans)

    def _step(self, what: str, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # whatever it is, the other steps follow
            if not isinstance(error, SluiceError):
                _LOG.error("%s: could not %s", self.path, what, exc_info=error)
            self.report.notes.append(f"could not {what}: {reason_of(error).text}")

    def _convert(self) -> None:
        done = self.report.conversion = Conversion()
        self.work.convert(self.options.memory_bytes, self.options.run, done)

    def _rule(self, going_max: int) -> ExpiryRule | None:
        """The rule of expiry; None: the table has no snapshot of a round yet."""
        newest, options = self.table.newest_tiering_snapshot(), self.options
        if newest is None:
            return None
        base = newest.snapshot_id
        kept = frozenset({base, *filter(None, [options.registered])})
        return ExpiryRule(options.now_ms, options.round_ms, base, kept, going_max)

    def _expire(self) -> None:
        """Expires all that may, a part after the other: what is done stays if one fails."""
        report = self.report
        while (rule := self._rule(EXPIRED_MAX)) is not None:
            try:
                expired = self.table.expire_by(rule)
            except LakeCommitRefused as refused:
                if not refused.details.get("conflict"):
                    raise
                return  # others were faster: a later maintenance expires them
            report.snapshots_expired += expired.snapshots
            report.files_expired += expired.files
            report.notes += expired.notes
            if not expired.snapshots or expired.notes:
                return

    def _find_due(self) -> None:
        if (rule := self._rule(going_max=sys.maxsize)) is not None:
            self.report.snapshots_due = self.work.due_snapshots(rule)

    def _merge(self) -> None:
        for _ in range(MERGES_MAX):
            failpoint("maintain.manifests.before")
            try:
                self.report.manifests_merged = self.work.merge_manifests()
                return
            except LakeCommitRefused:  # no problem: a later maintenance merges them
                continue

    def _clean(self) -> None:
        report = self.report
        found: CleanReport = clean(self.path, self.table, apply=True)
        sizes = {one.path: one.size_bytes for one in found.dead}
        failpoint("maintain.orphans.before")
        count, size_bytes = self.work.remove_metadata_orphans(self._orphans_before_ms)
        report.orphans_removed = len(found.removed) + count
        report.orphan_bytes = size_bytes + sum(sizes[one] for one in found.removed)
        report.notes += [f"{one} was not deleted: {why}" for one, why in found.failed.items()]

    def _find_orphans(self) -> None:
        found = clean(self.path, self.table, apply=False)
        count, _ = self.work.remove_metadata_orphans(self._orphans_before_ms, apply=False)
        self.report.orphans_found = len(found.dead) + count

    @property
    def _orphans_before_ms(self) -> int:
        return self.options.now_ms - self.options.metadata_age_ms

    def _look_again(self) -> None:
        self.report.after = self.work.health(self.options.compaction)

    def _request(self) -> None:
        assert self.options.requests is not None
        self.report.compaction_is_open = self.options.requests.is_open()
        if not self.report.compaction_is_open:
            self.options.requests.make()
            self.report.compaction_requested = True

    def _find_request(self) -> None:
        assert self.options.requests is not None
        report = self.report
        report.compaction_is_open = self.options.requests.is_open()
        report.compaction_due = report.before.is_scattered and not report.compaction_is_open


def report_line(report: MaintenanceReport, *, applied: bool) -> str:
    """Returns ``shop.stock: 6 equality delete files: ...; done: ...; gained: ...``.

    :param applied: whether it was to be maintained, and not only looked at.
    """
    if report.error:
        return f"{report.table}: cannot be read: {report.error}"
    parts = ["; ".join(report.needs()) or "healthy"]
    if applied:
        parts.append(f"done: {', '.join(done_words(report)) or 'nothing'}")
    elif due := due_words(report):
        parts.append(f"to do: {', '.join(due)}")
    if not applied:
        parts += standing_words(report)
    if gains := gain_words(report):
        parts.append(f"gained: {', '.join(gains)}")
    parts += [f"problem: {note}" for note in report.notes]
    return f"{report.table}: {'; '.join(parts)}"


def due_words(report: MaintenanceReport) -> list[str]:
    """What would be done besides the needs: nothing of it slows scans."""
    found = []
    if report.snapshots_due:
        found.append(f"{counted(report.snapshots_due, 'snapshot')} may expire")
    if report.orphans_found:
        found.append(f"{counted(report.orphans_found, 'orphan file')} to delete")
    return found


def standing_words(report: MaintenanceReport) -> list[str]:
    """What holds whether the table is maintained or only looked at."""
    found = []
    if report.before.keeps_files:
        found.append("its property gc.enabled is false: nothing expires, and no file is deleted")
    if report.compaction_is_open:
        found.append("a compaction is requested already: the table's next round makes it")
    health = report.after or report.before
    if health.not_rewritable:
        found.append(f"rounds do not compact it: {health.not_rewritable}")
    if health.is_scattered and not report.is_rewritten:
        found.append(NOT_REWRITTEN)
    return found


def done_words(report: MaintenanceReport) -> list[str]:
    """What was done, a text for each kind."""
    found = []
    done = report.conversion
    if done is not None and done.files_removed:
        files = counted(done.files_removed, "equality delete file")
        found.append(f"{files} became {counted(done.rows, 'position')}")
    if done is not None and done.useless_removed:
        files = counted(done.useless_removed, "equality delete file")
        found.append(f"{files} removed: no row is left that they delete")
    if done is not None and done.is_given_up:
        times = counted(done.refused, "time")
        found.append(f"other writers were faster {times}: a later run converts the rest")
    for place, why in done.left.items() if done is not None else ():
        found.append(f"bucket {place} keeps its equality deletes: {why}")
    if report.snapshots_expired:
        snapshots = counted(report.snapshots_expired, "snapshot")
        found.append(f"{snapshots} expired, {counted(report.files_expired, 'file')} deleted")
    if report.manifests_merged:
        found.append(f"manifests merged: {report.manifests_merged} fewer")
    if report.orphans_removed:
        orphans = counted(report.orphans_removed, "orphan file")
        found.append(f"{orphans} deleted, {byte_size(report.orphan_bytes)}")
    if report.compaction_requested:
        found.append("a compaction was requested: the table's next round makes it")
    return [*found, *standing_words(report)]


def gain_words(report: MaintenanceReport) -> list[str]:
    """What a scan has to read less now, before and after: ``22 -> 1 manifests``."""
    before, after = report.before, report.after
    if after is None:
        return []
    numbers = [
        ("files of equality deletes", _equality_files(before), _equality_files(after)),
        ("manifests", _manifests(before), _manifests(after)),
        ("snapshots", before.snapshots, after.snapshots),
    ]
    found = [f"{was} -> {now} {name}" for name, was, now in numbers if now < was]
    if after.metadata_bytes < before.metadata_bytes:
        sizes = f"{byte_size(before.metadata_bytes)} -> {byte_size(after.metadata_bytes)}"
        found.append(f"{sizes} of metadata")
    return found


def gained(report: MaintenanceReport) -> dict[str, int]:
    """What was done, as numbers that tables add up to."""
    done = report.conversion
    return {
        "equality_files_removed": 0 if done is None else done.files_removed + done.useless_removed,
        "positions": 0 if done is None else done.rows,
        "snapshots_expired": report.snapshots_expired,
        "files_expired": report.files_expired,
        "manifests_merged": report.manifests_merged,
        "orphans_removed": report.orphans_removed,
        "orphan_bytes": report.orphan_bytes,
        "compactions_requested": int(report.compaction_requested),
    }


def _equality_files(health: TableHealth) -> int:
    return health.equality_files + health.useless_equality_files


def _manifests(health: TableHealth) -> int:
    return health.data_manifests + health.delete_manifests


def table_report(
    report: MaintenanceReport, *, applied: bool, retryable: bool = True
) -> TableReport:
    """The report of one table as a run leaves it in the work folder.

    :param report: without secrets.
    :param applied: whether it was to be maintained, and not only looked at.
    """
    return TableReport(
        report.table,
        report_line(report, applied=applied),
        tuple(report.before.needs()),
        tuple(filter(None, (report.error, *report.notes))),
        retryable,
        gained(report) if report.after is not None else None,
        report.to_json(),
        None if report.error else tuple((report.after or report.before).needs()),
        tuple(done_words(report) if applied else due_words(report)),
        tuple(gain_words(report)),
    )
