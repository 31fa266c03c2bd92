"""The list of maintained tables: state, search, filters, order, without I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sluice.model import TablePath, TieringRound, TieringStatus
from sluice.page.cluster.ordering import by_value
from sluice.page.cluster.seen import Seen
from sluice.page.maintenance.models import MaintainedTable, MaintenanceSortKey, MaintenanceState
from sluice.page.maintenance.rounds import RoundFacts
from sluice.page.maintenance.runs import SeenRun, run_key
from sluice.rounds.records.maintenance import TableReport

ORDER: tuple[MaintenanceState, ...] = ("problem", "needs", "requested", "unknown", "ok")
"""The worst first."""
SEARCHED_MAX = 500
"""Characters of problems and needs that a search looks in."""
_RANK = {state: rank for rank, state in enumerate(ORDER)}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which tables are wanted, and in which order."""

    search: str = ""
    """Words, each of which is in the table's path, or near the beginning of its problems and
    needs."""
    state: Collection[MaintenanceState] = ()
    database: str | None = None
    sort: MaintenanceSortKey = "attention"
    descending: bool = False


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
    if wanted.sort == "table":
        return found[::-1] if wanted.descending else found
    if wanted.sort == "attention":
        found.sort(key=lambda row: _RANK[row.state], reverse=wanted.descending)
        return found
    return by_value(found, lambda row: _value(row, wanted.sort), descending=wanted.descending)


def _matches(row: Row, wanted: Wanted, words: Sequence[str]) -> bool:
    if wanted.state and not any(state in wanted.state for state in row.states):
        return False
    if wanted.database and not row.path.startswith(f"{wanted.database}."):
        return False
    return all(word in row.text for word in words)


def _value(row: Row, sort: MaintenanceSortKey) -> Any:
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
