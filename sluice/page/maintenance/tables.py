"""The list of maintained tables: its models, and state, search, filters, order, without I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from pydantic import BaseModel, Field

from sluice.model import TablePath, TieringRound, TieringStatus
from sluice.page.cluster.models import Reading
from sluice.page.cluster.seen import Seen
from sluice.page.cluster.wanted import Wanted, ordered
from sluice.page.maintenance.history import RoundFacts, RunState, SeenRun, run_key
from sluice.rounds.records.maintenance import TableReport

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
    state: RunState = Field(
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


ORDER: tuple[MaintenanceState, ...] = ("problem", "needs", "requested", "unknown", "ok")
"""The worst first."""
SEARCHED_MAX = 500
"""Characters of problems and needs that a search looks in."""
_RANK = {state: rank for rank, state in enumerate(ORDER)}


@dataclass(frozen=True, slots=True)
class Reported:
    """A report with its run."""

    run: SeenRun
    report: TableReport


@dataclass(frozen=True, slots=True)
class Row:
    """One table."""

    path: str
    status: TieringStatus | None
    """None: the cluster has no such lake table (any more)."""
    state: MaintenanceState
    newest: Reported | None
    """Of a run that maintained it, or only looked at it."""
    applied: Reported | None
    """Of a run that maintained it."""
    facts: RoundFacts | None
    text: str = field(repr=False)
    """What a search looks in, in lower case."""

    @property
    def states(self) -> tuple[MaintenanceState, ...]:
        """What filters find it by: its state, and a request that this state hides."""
        is_requested = _requested_ms(self.status) is not None
        hides = is_requested and self.state != "requested"
        return (self.state, "requested") if hides else (self.state,)

    @property
    def needs(self) -> tuple[str, ...]:
        """What it needs, as of the newest report."""
        return () if self.newest is None else _needs(self.newest.report)


class MaintenanceListing:
    """All tables of one reading, ordered by path. Immutable."""

    def __init__(
        self, seen: Seen, runs: Sequence[SeenRun], facts: Mapping[TablePath, RoundFacts]
    ) -> None:
        """:param runs: the newest first."""
        newest: dict[str, Reported] = {}
        applied: dict[str, Reported] = {}
        for run in runs:
            for each in (newest, applied) if run.run.applied else (newest,):
                new = run.tables.keys() - each.keys()
                each.update((table, Reported(run, run.tables[table])) for table in new)
        rows = []
        for path, table in seen.tables.items():
            name = str(path)
            found = newest.pop(name, None)
            rows.append(_row(name, table.status, found, applied.get(name), facts.get(path)))
        for name, left in newest.items():  # a pattern without a table, or a dropped table
            if left.report.problems and _is_of_newest(runs, left.run):
                rows.append(_row(name, None, left, applied.get(name), None))
        self.rows: Sequence[Row] = sorted(rows, key=lambda row: row.path)

    @cached_property
    def by_state(self) -> dict[MaintenanceState, int]:
        """How many tables each filter finds."""
        return dict(Counter(state for row in self.rows for state in row.states))

    @cached_property
    def databases(self) -> list[str]:
        return sorted({row.status.path.database for row in self.rows if row.status is not None})


def _is_of_newest(runs: Sequence[SeenRun], of: SeenRun) -> bool:
    """Whether no newer run has the same DAG and task: its problems hold, and not older ones."""
    newest = next(each for each in runs if _task(each) == _task(of))
    return run_key(newest.run) == run_key(of.run)


def _task(each: SeenRun) -> tuple[str, ...]:
    run = each.run
    return (run.dag_id, run.task_id) if run.is_of_airflow else (run.by,)


def _needs(report: TableReport) -> tuple[str, ...]:
    return report.needs if report.needs_now is None else report.needs_now


def _row(
    path: str,
    status: TieringStatus | None,
    newest: Reported | None,
    applied: Reported | None,
    facts: RoundFacts | None,
) -> Row:
    state: MaintenanceState = "unknown" if newest is None else "ok"
    words: list[str] = []
    if newest is not None:
        needs = _needs(newest.report)
        words = [*newest.report.problems, *needs]
        state = "problem" if newest.report.problems else "needs" if needs else "ok"
    if state not in ("problem", "needs") and _requested_ms(status) is not None:
        state = "requested"
    text = f"{path} {' '.join(words)[:SEARCHED_MAX]}".lower()
    return Row(path, status, state, newest, applied, facts, text)


def _requested_ms(status: TieringStatus | None) -> int | None:
    return None if status is None else status.compaction_requested_ms


def matching(rows: Iterable[Row], wanted: Wanted) -> list[Row]:
    """The tables that match, in the wanted order; what is not known comes last.

    :param rows: ordered by path. Equal ones stay in this order.
    """
    words = wanted.search.lower().split()
    found = [row for row in rows if _matches(row, wanted, words)]
    return ordered(found, wanted, lambda row: _RANK[row.state], _value)


def _matches(row: Row, wanted: Wanted, words: Sequence[str]) -> bool:
    if wanted.states and not any(state in wanted.states for state in row.states):
        return False
    if wanted.database and not row.path.startswith(f"{wanted.database}."):
        return False
    return all(word in row.text for word in words)


def _value(row: Row, sort: str) -> Any:
    if sort == "last_maintained":
        return None if row.applied is None else row.applied.run.run.began_ms
    if sort == "requested":
        return _requested_ms(row.status)
    if sort == "last_compacted":
        return None if row.facts is None else _ended_ms(row.facts.compacted)
    if sort == "last_expired":
        return None if row.facts is None else _ended_ms(row.facts.expired)
    return getattr(row.status, sort, None)


def _ended_ms(each: TieringRound | None) -> int | None:
    return None if each is None else each.ended_ms


def table_model(row: Row, why_not_act: str | None = None) -> MaintainedTable:
    """The table as the API shows it.

    :param why_not_act: why the viewer may not act on it.
    """
    status, facts = row.status, row.facts
    model = MaintainedTable(
        path=row.path,
        state=row.state,
        is_known=status is not None,
        needs=list(row.needs),
        are_rounds_read=facts is not None or (status is not None and not status.rounds),
        why_not_act=why_not_act,
    )
    if status is not None:
        _add_status(model, status)
    if row.newest is not None:
        _add_reports(model, row.newest, row.applied)
    if facts is not None:
        _add_rounds(model, facts)
    return model


def _add_status(model: MaintainedTable, status: TieringStatus) -> None:
    model.compaction_requested_ms = status.compaction_requested_ms
    model.next_attempt_ms = status.next_attempt_ms
    model.paused = status.paused
    model.deletes_as = status.deletes_as
    model.has_equality_deletes = "equality deletes" in (status.deletes_as or "")
    model.lake_files = status.lake_files
    model.lake_bytes = status.lake_bytes
    if status.compaction_requested_ms is not None:
        after = f", after `sluice resume {status.path}`" if status.paused else ""
        model.next_round = f"compacts the table, as was requested{after}"


def _add_reports(model: MaintainedTable, newest: Reported, applied: Reported | None) -> None:
    report = newest.report
    model.reported_ms = newest.run.run.began_ms
    model.reported_by = newest.run.run.folder
    model.was_applied = newest.run.run.applied
    model.problems = list(report.problems)
    model.retryable = report.retryable if report.problems else None
    model.line = report.line or _line(model.path, report, applied=newest.run.run.applied)
    if applied is not None:
        model.last_maintained_ms = applied.run.run.began_ms
        model.maintained_by = applied.run.run.folder
        model.done = list(applied.report.done)
        model.gains = list(applied.report.gains)


def _line(path: str, report: TableReport, *, applied: bool) -> str:
    """As ``report_line`` makes it, from the parts."""
    parts = ["; ".join(report.needs) or "healthy"]
    if applied:
        parts.append(f"done: {', '.join(report.done) or 'nothing'}")
    elif report.done:
        parts.append(f"to do: {', '.join(report.done)}")
    if report.gains:
        parts.append(f"gained: {', '.join(report.gains)}")
    parts += [f"problem: {problem}" for problem in report.problems]
    return f"{path}: {'; '.join(parts)}"


def _add_rounds(model: MaintainedTable, facts: RoundFacts) -> None:
    if (one := facts.compacted) is not None:
        model.last_compacted_ms = one.ended_ms
        model.last_compaction = one.compacted
        model.last_compaction_round = one.round_number
        model.files_compacted = one.files_compacted
        model.compaction_read_bytes = one.compaction_read_bytes
        model.compaction_written_bytes = one.compaction_written_bytes
        model.compaction_ms = one.compaction_ms
    if (one := facts.left_out) is not None:
        model.left_out = one.compacted
        model.left_out_ms = one.ended_ms
    if (one := facts.requested) is not None:
        model.request_completed_ms = one.ended_ms
    if (one := facts.expired) is not None:
        model.last_expired_ms = one.ended_ms
        model.snapshots_expired = one.snapshots_expired
        model.files_expired = one.files_expired
