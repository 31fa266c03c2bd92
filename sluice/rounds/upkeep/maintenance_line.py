"""Says in words what the maintenance of a lake table did, and what that gained."""

from __future__ import annotations

from sluice.quantities import byte_size, counted
from sluice.rounds.upkeep.maintain import MaintenanceReport
from sluice.rounds.upkeep.maintenance import TableHealth

NOT_REWRITTEN = "no round rewrites it: the table is not tiered, or tiering.compaction_bytes is 0"


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
