"""What the maintenance did: runs as the work folder tells it, and rounds as their history does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from sluice.client.connection.daemon_pool import DaemonPool
from sluice.client.leases.ids import holder_of
from sluice.client.statuses.watch import StatusWatch
from sluice.clock import Clock
from sluice.errors import TableNotExist, UnknownFileVersion
from sluice.masking import cut, secrets_of
from sluice.model import TablePath, TieringRound, TieringStatus
from sluice.model.round_record import ROUNDS_KEPT
from sluice.page.cluster.masked import masked
from sluice.page.cluster.seen import Seen
from sluice.quantities import counted
from sluice.rounds.records.json_files import ListedFile, listed, read_json
from sluice.rounds.records.maintenance import (
    MaintenanceRun,
    RunEnd,
    TableReport,
    newest_of_each,
    newest_runs,
    read_end,
    request_uri,
)

RUNS_MAX = 10
"""Runs that are read, the newest."""
TASKS_MAX = 100
"""Task instances of these runs that are read, the newest of each task."""
REPORTS_MAX = 20_000
"""Reports that are read of one run."""
REPORT_BYTES_MAX = 1 << 18
"""A longer report is not read."""
TEXTS_MAX = 20
"""Texts that are kept of one list of a report: problems, needs, and the like."""
TEXTS_CHARS_MAX = 4_096
"""Characters of all of them."""
_READERS = 8
_STEP = 200

LOST_AFTER_MS = 6 * 3_600_000
"""A run that wrote nothing for so long is called lost. One large table may take hours."""

RunState = Literal["running", "ended", "failed", "lost", "unreported"]


@dataclass(frozen=True, slots=True)
class SeenRun:
    """A run with what it has reported so far. Texts have no secrets."""

    run: MaintenanceRun
    tables: Mapping[str, TableReport]
    """The newest report of each table, without ``details``. Once the run is whole, without
    ``numbers`` and without the tables that a newer run tells more of: see :func:`slim`."""
    reported: int
    """Tables with a report."""
    needed: int
    """Those that needed something before."""
    problems: int
    numbers: Mapping[str, int]
    """What was done to all tables."""
    state: RunState = "running"
    error: str = ""
    at: str = ""
    """The table that it has begun last, if it has not ended."""
    last_sign_ms: int | None = None
    """When it wrote its newest file; None: not known."""
    problem: str = ""
    """Why its reports cannot be read."""
    is_whole: bool = False
    """Whether nothing is left to read, now or later."""

    @classmethod
    def of(cls, run: MaintenanceRun, reports: Iterable[TableReport], **changes: Any) -> SeenRun:
        """:param reports: in the order of their writing."""
        tables = {report.table: report for report in reports if report.table}
        numbers: Counter[str] = Counter()
        for report in tables.values():
            numbers.update(report.numbers or {})
        needed = sum(bool(report.needs) for report in tables.values())
        problems = sum(bool(report.problems) for report in tables.values())
        return cls(run, tables, len(tables), needed, problems, dict(numbers), **changes)


def slim(runs: Iterable[SeenRun]) -> Iterator[SeenRun]:
    """The runs with what is shown of them: of each table the newest report, and the newest one of a
    run that maintained it. One after the other, so that no two have more in memory.

    :param runs: the newest first.
    """
    told: set[str] = set()
    maintained: set[str] = set()
    for each in runs:
        known = told & maintained if each.run.applied else told
        left = {table: report for table, report in each.tables.items() if table not in known}
        told |= each.tables.keys()
        if each.run.applied:
            maintained |= each.tables.keys()
        if each.is_whole and (len(left) < len(each.tables) or _has_numbers(left.values())):
            left = {table: replace(report, numbers=None) for table, report in left.items()}
            yield replace(each, tables=left)
        else:
            yield each


def _has_numbers(reports: Iterable[TableReport]) -> bool:
    return any(report.numbers is not None for report in reports)


def run_key(run: MaintenanceRun) -> tuple[str, ...]:
    """Equal for the task instances of one run of a DAG."""
    if not run.is_of_airflow:
        return (run.folder,)
    return holder_of(run.folder).deployment_id or "", run.dag_id, run.run_id


def _of_newest(runs: Sequence[MaintenanceRun]) -> Sequence[MaintenanceRun]:
    """Those that are read: all task instances of a run count as one.

    The newest of each DAG is among them, so that one that runs each hour does not hide one that
    runs each day.

    :param runs: the newest first.
    """
    dags = {run_key(run): (run.dag_id, holder_of(run.folder).deployment_id) for run in runs}
    of_each = {dag: key for key, dag in reversed(dags.items())}.values()
    others = [key for key in dags if key not in of_each]
    newest = [*[key for key in dags if key in of_each], *others][:RUNS_MAX]
    of_newest = [run for run in runs if run_key(run) in newest]
    return newest_of_each(of_newest, lambda run: (run.dag_id, run.task_id), TASKS_MAX)


class RunReader:
    """Reads the runs of one work folder. For one thread."""

    def __init__(self, work_uri: str, clock: Clock) -> None:
        self._work_uri, self._clock = work_uri, clock
        # An error of the storage may repeat the key of the address without the address.
        self._masked = partial(masked, secrets=secrets_of(work_uri))
        self._pool = DaemonPool(_READERS, "sluice-page-report")
        self._known: dict[str, SeenRun] = {}
        self._reports: dict[str, Mapping[str, TableReport]] = {}  # of a run that is not whole
        self._to_read: set[str] = set()  # of whole runs that are shown until they are read again

    def read(self, until_s: float) -> tuple[list[SeenRun], list[str]]:
        """The task instances of the newest runs, the newest first, and what cannot be read.

        :param until_s: monotonic time; what is left then is read by the next call.
        :raises OSError: the folder cannot be listed.
        """
        tasks = newest_runs(self._work_uri)
        runs = [run for task in tasks for run in task.runs]
        runs.sort(key=lambda run: run.began_ms, reverse=True)
        newest = _of_newest(runs)
        self._forget(newest)
        found = [*slim(self._known_or_read(run, until_s) for run in newest)]
        self._known = {each.run.folder: each for each in found}
        self._to_read &= self._known.keys()
        self._reports = {
            folder: each for folder, each in self._reports.items() if folder in self._known
        }
        return found, [self._masked(task.problem) for task in tasks if task.problem]

    def _known_or_read(self, run: MaintenanceRun, until_s: float) -> SeenRun:
        """What is known of a run if that is all, or what is there now.

        The reports of a whole run are not in memory. If it is to be read again, it is shown as it
        was until that is done: storage may be slow or away.
        """
        known = self._known.get(run.folder)
        whole = known if known is not None and known.is_whole else None
        is_read = whole is not None and run.folder not in self._to_read
        if whole is not None and is_read and replace(whole.run, ended_ms=run.ended_ms) == run:
            return replace(whole, run=run)  # its end is noted after its last report
        found, is_complete = self._read_run(run, until_s)
        if whole is not None and not is_complete:
            return replace(whole, problem=found.problem)
        self._to_read.discard(run.folder)
        if found.is_whole:
            self._reports.pop(run.folder, None)
        return found

    def _forget(self, runs: Sequence[MaintenanceRun]) -> None:
        """Reads older runs again if one is gone that was shown of some table: they have only what
        it did not tell.

        :param runs: the newest first.
        """
        folders = {run.folder for run in runs}
        gone = [each for folder, each in self._known.items() if folder not in folders]
        newest_ms = max((each.run.began_ms for each in gone if each.tables), default=0)
        self._to_read |= {
            each.run.folder
            for each in self._known.values()
            if each.run.began_ms < newest_ms and len(each.tables) < each.reported
        }

    def _read_run(self, run: MaintenanceRun, until_s: float) -> tuple[SeenRun, bool]:
        """The run, and whether all reports that are there are read."""
        known = self._reports.get(run.folder, {})
        try:
            end = read_end(request_uri(self._work_uri, run.folder, run.attempt))
            files = listed(f"{self._work_uri.rstrip('/')}/{run.folder}", "maintenance/*.json")
            reports, is_complete = self._read_reports(files, known, until_s)
        except Exception as error:  # file systems raise errors of many kinds
            why = self._masked(f"{type(error).__name__}: {error}")
            # Nobody knows how it ended, or whether it still writes.
            unknown: RunState = "running" if run.ended_ms is None else "unreported"
            return SeenRun.of(run, known.values(), state=unknown, problem=why), False
        self._reports[run.folder] = reports
        signs = [one.modified_ms for one in files if one.modified_ms is not None]
        last_sign_ms = max(signs, default=None)
        state = self._state(run, end, last_sign_ms, has_files=bool(files))
        unread = [report.line for report in reports.values() if not report.table]
        problem = "" if files else "its reports were deleted"
        if unread:
            problem = f"{counted(len(unread), 'report')} cannot be read: {unread[0]}"
        is_done = state in ("ended", "failed")
        is_done = is_done or any(report.table == end.at for report in reports.values())
        found = SeenRun.of(
            run,
            reports.values(),
            state=state,
            error="" if end.error is None else self._masked(str(end.error)),
            at="" if is_done else self._masked(end.at),
            last_sign_ms=last_sign_ms,
            problem=problem,
            # A run that is called lost by its age may go on.
            is_whole=is_complete and (end.has_ended or run.ended_ms is not None),
        )
        return found, is_complete

    def _state(
        self, run: MaintenanceRun, end: RunEnd, last_sign_ms: int | None, *, has_files: bool
    ) -> RunState:
        if end.has_ended:
            return "failed" if end.error is not None else "ended"
        if run.ended_ms is not None:
            return "lost" if has_files else "unreported"
        silent_ms = self._clock.now_ms() - max(run.began_ms, last_sign_ms or 0)
        return "lost" if silent_ms >= LOST_AFTER_MS else "running"

    def _read_reports(
        self, files: Sequence[ListedFile], known: Mapping[str, TableReport], until_s: float
    ) -> tuple[dict[str, TableReport], bool]:
        """The reports of a run by their files, and whether all of them are read."""
        wanted = [
            one
            for one in sorted(files, key=lambda one: one.uri)[: 2 * REPORTS_MAX]
            if "-table-" in one.uri.rpartition("/")[2] and one.size_bytes <= REPORT_BYTES_MAX
        ][:REPORTS_MAX]
        missing = [one.uri for one in wanted if one.uri not in known]
        new: dict[str, TableReport | None] = {}
        for at in range(0, len(missing), _STEP):
            if self._clock.monotonic_s() > until_s:
                break
            reads = {
                uri: self._pool.submit(partial(_report, uri, hidden=self._masked))
                for uri in missing[at : at + _STEP]
            }
            new |= {uri: read.result() for uri, read in reads.items()}
        is_complete = len(new) == len(missing)
        found = {one.uri: known.get(one.uri) or new.get(one.uri) for one in wanted}
        return {uri: report for uri, report in found.items() if report is not None}, is_complete


def _report(uri: str, hidden: Callable[[str], str]) -> TableReport | None:
    """A report without secrets; one of no table that says why it cannot be read.

    :param hidden: masks a text.

    :returns: None if it was deleted.
    :raises OSError: the storage does not give it now.
    """
    try:
        content = read_json(uri)
        if content is None:
            return None
        report = TableReport.from_json(content)
    except (ValueError, KeyError, TypeError, UnknownFileVersion) as error:
        why = hidden(f"{uri} cannot be read: {type(error).__name__}: {error}")
        return TableReport("", why, problems=(why,))
    return replace(
        report,
        # The parts say the same. A report of an earlier Sluice has none.
        line=hidden(report.line) if report.needs_now is None else "",
        needs=_texts(report.needs, hidden),
        problems=_texts(report.problems, hidden),
        details=None,
        needs_now=None if report.needs_now is None else _texts(report.needs_now, hidden),
        done=_texts(report.done, hidden),
        gains=_texts(report.gains, hidden),
    )


def _texts(found: Sequence[str], hidden: Callable[[str], str]) -> tuple[str, ...]:
    """Without secrets; those that are too many or too long together are counted."""
    texts: list[str] = []
    left = TEXTS_CHARS_MAX
    for each in found[:TEXTS_MAX]:
        text = hidden(str(each))
        if len(text) > left:
            break
        texts.append(text)
        left -= len(text)
    more = len(found) - len(texts)
    return (*texts, f"and {more} more: the report has them") if more else tuple(texts)


TEXT_CHARS_MAX = 500
"""Characters that are kept of what a round says of its compaction."""
_STEP = 32


@dataclass(frozen=True, slots=True)
class RoundFacts:
    """The newest rounds of a table that did more than copy. None: no such round is known."""

    table_id: int
    rounds: int
    """Up to which round this is known."""
    compacted: TieringRound | None = None
    expired: TieringRound | None = None
    requested: TieringRound | None = None
    """The round that completed a requested compaction."""
    left_out: TieringRound | None = None
    """A round after the last compaction that says why it compacted less, or nothing."""


class RoundsReader:
    """Reads the histories of tables that had new rounds. For one thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.known: Mapping[TablePath, RoundFacts] = {}
        """Replaced as a whole."""

    def read(self, watch: StatusWatch, seen: Seen, until_s: float) -> bool:
        """Reads what is new; returns whether nothing is left.

        :param until_s: monotonic time; what is left then is read by the next call.
        :raises FlussError: the cluster does not answer.
        """
        tables = {path: each.status for path, each in seen.tables.items()}
        found = {path: facts for path, facts in self.known.items() if path in tables}
        missing = [status for path, status in tables.items() if _is_new(found.get(path), status)]
        missing.sort(key=lambda status: _unread(found.get(status.path), status))
        is_complete = True
        try:
            for at in range(0, len(missing), _STEP):
                if self._clock.monotonic_s() > until_s:
                    is_complete = False
                    break
                step = missing[at : at + _STEP]
                limit = max(_unread(found.get(status.path), status) for status in step)
                for status, rounds in self._histories(watch, step, limit, seen.is_fluss):
                    found[status.path] = facts_of(found.get(status.path), status, rounds)
        finally:
            self.known = found
        return is_complete

    def _histories(
        self, watch: StatusWatch, step: Sequence[TieringStatus], limit: int, is_fluss: bool
    ) -> list[tuple[TieringStatus, Sequence[TieringRound]]]:
        if is_fluss:
            numbers = {status.table_id: status.rounds or 0 for status in step}
            rounds = watch.recorded_rounds(numbers, limit)
            return [(status, rounds.get(status.table_id, [])) for status in step]
        found: list[tuple[TieringStatus, Sequence[TieringRound]]] = []
        for status in step:
            with suppress(TableNotExist):  # dropped since it was seen
                found.append((status, watch.reported_rounds(status.path, limit)))
        return found


def _is_new(known: RoundFacts | None, status: TieringStatus) -> bool:
    return bool(status.rounds) and _unread(known, status) > 0


def _unread(known: RoundFacts | None, status: TieringStatus) -> int:
    """How many of the kept rounds are not known yet."""
    rounds = status.rounds or 0
    if known is None or known.table_id != status.table_id or known.rounds > rounds:
        return min(rounds, ROUNDS_KEPT)
    return min(rounds - known.rounds, ROUNDS_KEPT)


def facts_of(
    known: RoundFacts | None, status: TieringStatus, newest: Sequence[TieringRound]
) -> RoundFacts:
    """The facts with those of newer rounds.

    :param newest: the newest first.
    """
    if known is None or known.table_id != status.table_id or known.rounds > (status.rounds or 0):
        known = RoundFacts(status.table_id, 0)
    compacted = next((each for each in newest if each.files_compacted), None)
    since = newest if compacted is None else newest[: newest.index(compacted) + 1]
    left_out = next((each for each in since if each.compacted and not each.files_compacted), None)
    expired = next((each for each in newest if each.snapshots_expired), None)
    requested = next((each for each in newest if each.compaction_request_ms is not None), None)
    return RoundFacts(
        status.table_id,
        status.rounds or 0,
        _short(compacted) or known.compacted,
        expired or known.expired,
        requested or known.requested,
        _short(left_out) or (known.left_out if compacted is None else None),
    )


def _short(each: TieringRound | None) -> TieringRound | None:
    if each is None or each.compacted is None or len(each.compacted) <= TEXT_CHARS_MAX:
        return each
    return replace(each, compacted=f"{cut(each.compacted, TEXT_CHARS_MAX - 1)}…")
