"""Leases and records of maintenance in the page's scene, made by the calls that make real ones."""

from __future__ import annotations

from collections.abc import Sequence

from demo.shots.page_rounds import DEPLOYMENT, MINUTE_MS, Run, Worker
from demo.shots.page_tables import FAILING, LEASED, PAUSED, SceneTable
from sluice.client import Client
from sluice.client.leases.ids import lease_id
from sluice.client.leases.tier_lease import random_lease_id
from sluice.errors import LakeCommitRefused
from sluice.rounds.records.json_files import write_json
from sluice.rounds.records.maintenance import (
    MaintenanceFiles,
    MaintenanceRequest,
    MaintenanceRun,
    note_run,
    request_uri,
)
from sluice.rounds.records.run_names import RunName, write_run_name
from sluice.rounds.upkeep.conversion import Conversion
from sluice.rounds.upkeep.health import TableHealth
from sluice.rounds.upkeep.maintenance import MaintenanceReport, table_report
from sluice.rounds.values.reasons import reason_of
from sluice.server.cluster import EmbeddedCluster

DAY_MS = 24 * 60 * MINUTE_MS
PERSON = "ann-churn-notebook"
MAINTENANCE = "sluice_lake_maintenance"
TASK = "maintain_tables"
NIGHTLY_TABLES = 40
_NIGHTLY_AGO, _LOOKED_AGO = 190 * MINUTE_MS, 3 * DAY_MS
"""When the two runs of the maintenance began."""


def hold_leases(cluster: EmbeddedCluster, worker: Worker) -> None:
    """A person holds old KV snapshots, an earlier run and `sluice tier` newer ones."""
    client, clock = worker.client, worker.clock
    late, customers, accounts = LEASED
    worker.grow(LEASED, lambda of: 6_000 if of.table.path == accounts else 18_000)
    for path in LEASED:
        cluster.take_kv_snapshots(path)
    clock.behind_ms -= 40 * MINUTE_MS
    with client.snapshot_lease(PERSON, customers, late, duration_ms=14 * DAY_MS, on_exit="keep"):
        pass
    worker.grow(LEASED, lambda of: of.rows // 2)  # newer snapshots replace those that are leased
    for path in LEASED:
        cluster.take_kv_snapshots(path)
    clock.behind_ms = 7 * 60 * MINUTE_MS
    run = Run.at(clock.now_ms())
    write_run_name(worker.work_uri, run.lease_id, RunName("backfill_customers", run.run_id))
    with client.snapshot_lease(run.lease_id, customers, accounts, on_exit="keep"):
        pass
    of_tier = random_lease_id()
    with client.snapshot_lease(of_tier, accounts, duration_ms=2 * DAY_MS, on_exit="keep"):
        pass


def note_maintenance(
    work_uri: str, client: Client, tables: Sequence[SceneTable], now_ms: int
) -> None:
    """Two runs: a dry run by a person three days ago, and the nightly run of a DAG."""
    looked = MaintenanceRun(
        folder=f"sluice-maintain-{PERSON}",
        attempt="1",
        began_ms=now_ms - _LOOKED_AGO,
        ended_ms=now_ms - _LOOKED_AGO + 6 * MINUTE_MS,
        applied=False,
        by="sluice maintain by ann",
    )
    _note(work_uri, looked, [_report(n, table) for n, table in enumerate(tables[:12])], "ann")
    began_ms = now_ms - _NIGHTLY_AGO
    run_id = Run.at(began_ms).run_id
    nightly = MaintenanceRun(
        folder=lease_id(DEPLOYMENT, MAINTENANCE, run_id),
        attempt="01",
        began_ms=began_ms,
        ended_ms=began_ms + 17 * MINUTE_MS,
        by=f"the run {run_id} of DAG {MAINTENANCE}",
        dag_id=MAINTENANCE,
        run_id=run_id,
        task_id=TASK,
    )
    reports = [_maintained(n, table) for n, table in enumerate(tables[:NIGHTLY_TABLES])]
    _note(work_uri, nightly, reports, lease_id(DEPLOYMENT, MAINTENANCE, TASK))
    for path in PAUSED:
        client.statuses.request_compaction(path)


def _note(
    work_uri: str, run: MaintenanceRun, reports: Sequence[MaintenanceReport], name: str
) -> None:
    uri = request_uri(work_uri, run.folder, run.attempt)
    tables = tuple(report.table for report in reports)
    write_json(uri, MaintenanceRequest("", tables, apply=run.applied).to_json())
    files = MaintenanceFiles(uri)
    for report in reports:
        files.begin(report.table)
        files.add(table_report(report, applied=run.applied))
    files.end()
    note_run(work_uri, name, run)


def _health(number: int, table: SceneTable) -> TableHealth:
    """Of a table that nobody has maintained: many tables with keys need something."""
    keys = table.has_key and number % 2 == 0
    return TableHealth(
        buckets=2,
        data_files=14 + number,
        data_bytes=(40 + number) << 20,
        rows=260_000 + 9_000 * number,
        dead_rows=(120_000 if table.path in PAUSED else 4_000) if table.has_key else 0,
        files_of_worst=9 + number,
        small_files_of_worst=5 + number % 6,
        equality_files=6 + number if keys else 0,
        equality_rows=700 * (number + 1) if keys else 0,
        snapshots=60 + number,
        data_manifests=24 + number,
        small_data_manifests=24 + number if keys or table.path == FAILING else 3,
        delete_manifests=2,
        manifest_bytes=180_000 + 4_000 * number,
        metadata_bytes=96_000 + 900 * number,
    )


def _report(number: int, table: SceneTable) -> MaintenanceReport:
    health = _health(number, table)
    return MaintenanceReport(str(table.path), before=health, snapshots_due=number % 4)


def _maintained(number: int, table: SceneTable) -> MaintenanceReport:
    report = _report(number, table)
    if table.path == FAILING:
        error = LakeCommitRefused(f"merge manifests of {table.path}: other writers were faster")
        report.notes.append(str(reason_of(error)))
        report.after = report.before
        return report
    before = report.before
    report.snapshots_due = 0
    report.snapshots_expired, report.files_expired = 40 + number, 90 + 2 * number
    report.manifests_merged = max(before.small_data_manifests - 2, 0) if before.has_work else 0
    if before.equality_files:
        removed = before.equality_files
        report.conversion = Conversion(buckets=2, files_removed=removed, rows=before.equality_rows)
    report.compaction_requested = before.is_scattered
    report.after = TableHealth(
        buckets=2,
        data_files=before.data_files,
        data_bytes=before.data_bytes,
        rows=before.rows,
        dead_rows=before.dead_rows,
        small_files_of_worst=before.small_files_of_worst,
        snapshots=20,
        data_manifests=before.data_manifests - report.manifests_merged,
        delete_manifests=2,
        manifest_bytes=90_000,
        metadata_bytes=41_000,
    )
    return report
