"""What the JSON API answers of maintenance: see `sluice.page.cluster.models`."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from sluice.page.cluster.models import Reading

MaintenanceState = Literal["problem", "needs", "requested", "unknown", "ok"]
"""problem: something did not work in its last maintenance. needs: it needs something, as of the
last report. requested: a compaction is requested, and it needs nothing else. unknown: no report is
known. ok: none of these."""

MaintenanceSortKey = Literal[
    "attention",
    "table",
    "last_maintained",
    "last_compacted",
    "last_expired",
    "requested",
    "lake_files",
    "lake_bytes",
]


class MaintainedTable(BaseModel):
    """What maintenance says of one table. Null: not known."""

    path: str = Field(description="DATABASE.TABLE, or a pattern of a run that matches no table")
    state: MaintenanceState
    is_known: bool = Field(default=True, description="Whether the cluster has this lake table")
    needs: list[str] = Field(
        default_factory=list,
        description="What it needs, as of the newest report: after its maintenance, if that was"
        " no dry run",
    )
    reported_ms: int | None = Field(default=None, description="When the run of that report began")
    reported_by: str | None = Field(default=None, description="Folder of that run")
    was_applied: bool | None = Field(
        default=None, description="Whether that run maintained the table; false: a dry run"
    )
    problems: list[str] = Field(
        default_factory=list, description="What did not work in that run, whole, without secrets"
    )
    retryable: bool | None = Field(
        default=None, description="Whether another run may have no problem; null: there is none"
    )
    line: str | None = Field(default=None, description="The whole report as one line")
    last_maintained_ms: int | None = Field(
        default=None, description="When the last run began that was no dry run"
    )
    maintained_by: str | None = Field(default=None, description="Folder of that run")
    done: list[str] = Field(default_factory=list, description="What that run did")
    gains: list[str] = Field(
        default_factory=list, description="What a scan has to read less since that run"
    )
    compaction_requested_ms: int | None = Field(
        default=None, description="Since when a compaction is requested; null: none is"
    )
    next_round: str | None = Field(
        default=None, description="What the next round does besides copying"
    )
    next_attempt_ms: int | None = Field(default=None, description="When it may begin")
    paused: bool | None = None
    are_rounds_read: bool = Field(
        default=False, description="Whether the history of its rounds has been read"
    )
    last_compacted_ms: int | None = Field(
        default=None, description="End of the last round that compacted files"
    )
    last_compaction: str | None = Field(default=None, description="What that round compacted")
    last_compaction_round: int | None = None
    files_compacted: int | None = Field(default=None, description="Data files that it replaced")
    compaction_read_bytes: int | None = None
    compaction_written_bytes: int | None = None
    compaction_ms: int | None = Field(default=None, description="So much longer that round took")
    left_out: str | None = Field(
        default=None, description="Why a later round compacted nothing, if it says so"
    )
    left_out_ms: int | None = None
    request_completed_ms: int | None = Field(
        default=None, description="End of the last round that completed a requested compaction"
    )
    last_expired_ms: int | None = Field(
        default=None, description="End of the last round that expired snapshots"
    )
    snapshots_expired: int | None = Field(default=None, description="By that round")
    files_expired: int | None = Field(default=None, description="By that round")
    deletes_as: str | None = Field(
        default=None, description="How the last round that deleted keys did so"
    )
    has_equality_deletes: bool = Field(
        default=False, description="Whether that round wrote equality deletes"
    )
    lake_files: int | None = None
    lake_bytes: int | None = None
    why_not_act: str | None = Field(
        default=None, description="Why this user may not act on it here; null: they may"
    )


class MaintenanceRunModel(BaseModel):
    """A run that maintained tables, or only looked at them; in Airflow, one of its tasks."""

    folder: str = Field(
        description="Its folder below the work folder: names the run. Of a run of a DAG that the"
        " user may not read, another name"
    )
    by: str = Field(description="Who ran it, for people")
    deployment_id: str | None = Field(default=None, description="The id of its Airflow")
    dag_id: str | None = Field(default=None, description="Null: no run of Airflow")
    run_id: str | None = None
    task_id: str | None = None
    map_index: int | None = Field(default=None, description="Null: the task is not mapped")
    url: str | None = Field(default=None, description="The task instance in Airflow")
    began_ms: int
    ended_ms: int | None = None
    state: Literal["running", "ended", "failed", "lost", "unreported"] = Field(
        description="running: it has reported no end. ended: each of its tables has a report."
        " failed: it ended before its last table, and says why. lost: it ended and reports no end,"
        " or it wrote nothing for 6 hours. unreported: it has ended, and its reports are not there"
    )
    applied: bool = Field(description="False: a dry run, which changes nothing")
    tables: int = Field(description="Tables with a report")
    needed: int = Field(description="Those that needed something before it")
    problems: int = Field(description="Those of which something did not work")
    numbers: dict[str, int] = Field(
        description="What was done to all of them: equality_files_removed, positions,"
        " snapshots_expired, files_expired, manifests_merged, orphans_removed, orphan_bytes,"
        " compactions_requested"
    )
    error: str | None = Field(default=None, description="Why it ended before its last table")
    at: str | None = Field(default=None, description="The table that it was at, if it has no end")
    last_sign_ms: int | None = Field(default=None, description="When it wrote its newest file")
    problem: str | None = Field(default=None, description="Why its reports cannot be read")


class Maintenance(BaseModel):
    """What the last runs of the maintenance did, and what rounds compacted and expired."""

    reading: Reading
    runs_read_ms: int | None = Field(
        default=None, description="When the reports of runs were read; null: not yet, or never"
    )
    rounds_read_ms: int | None = Field(
        default=None, description="When the histories of rounds were read"
    )
    are_rounds_read: bool = Field(
        default=False, description="Whether that was done for all tables; if not, it goes on"
    )
    error: str | None = Field(default=None, description="Why the histories cannot be read")
    runs: list[MaintenanceRunModel] = Field(
        description="The newest runs, the newest first; of a run of Airflow, each of its tasks"
    )
    last_run_ms: int | None = Field(default=None, description="When the last ended run began")
    last_run_url: str | None = None
    note: str | None = Field(default=None, description="What is not shown, and why")
    total: int = Field(description="Tables, and patterns of runs that match none")
    matched: int = Field(description="Those that match search and filters")
    by_state: dict[MaintenanceState, int] = Field(
        description="Tables that the filter `state` finds. requested: all tables with a requested"
        " compaction, whatever their own state"
    )
    databases: list[str]
    offset: int
    tables: list[MaintainedTable]
