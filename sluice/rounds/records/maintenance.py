"""The files of runs that maintain tables: what is asked, what each table came to, the newest runs.

    <work_uri>/<lease id>/maintenance/<attempt>-request.json      written by Airflow's task
                                      <attempt>-running.json      written by the driver
                                      <attempt>-table-<n>.json    written by the driver
                                      <attempt>-ended.json        written by the driver
    <work_uri>/maintenance/<name>[.<map index>].json              written by who begins a run

The driver names each table before it begins it, and reports it as soon as it is done. So the
finished tables of a driver that was killed are known, and the one that it was at. The last file
says that no table is missing, or why the driver could do none. No file contains a secret, except
``<attempt>-keys-<table>.json``, which lives as long as the driver
(``sluice.lake.storage.keys_file``).

The newest runs are found without a listing of all. Each task has one file, which names its newest
runs; so has each map index of a mapped one, and `sluice maintain --work-uri` on each machine. It is
replaced as a whole when a run begins and when it ends: whoever is killed leaves the one before. A
container may write one file in its life, so who begins a run deletes old files that nobody reads.
`sluice clean` deletes the folders of runs.
"""

from __future__ import annotations

import logging
import re
import socket
import uuid
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeVar

from sluice.clock import Clock, SystemClock
from sluice.errors import UnknownFileVersion
from sluice.masking import mask
from sluice.model import Reason
from sluice.rounds.records.json_files import (
    VERSION,
    ListedFile,
    check_file_version,
    delete_file,
    listed,
    read_json,
    write_json,
)
from sluice.rounds.records.run_files import delete_keys, run_files

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")

RUNS_KEPT = 5
"""Runs that a file names."""
FILES_MAX = 100
"""Files that are read, the newest of each task: there may be files of tasks that are gone."""
GONE_AFTER_MS = 24 * 3_600_000
"""A file beyond those that are read is deleted this long after its last change."""
DELETED_MAX = 100
"""Files that one run deletes."""
FILE_BYTES_MAX = 1 << 16
HOSTS = "sluice-maintain"
"""Begins the names of the hosts that run `sluice maintain`. They count as one task."""
_FOLDER = "maintenance"
_READERS = 16
"""Reports that are read at once: an object store takes a request for each."""
_IN_RUN = "/maintenance/"


@dataclass(frozen=True, slots=True)
class MaintenanceRequest:
    """What the driver is to do."""

    bootstrap: str
    """Address of the cluster: grpc://HOST:PORT or fluss://HOST:PORT."""
    tables: tuple[str, ...]
    """Names or patterns."""
    apply: bool = True
    """False: only report what the tables need."""
    done: tuple[str, ...] = ()
    """Tables that earlier tries of the run have done without a problem."""

    def to_json(self) -> dict[str, Any]:
        return {"version": VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> MaintenanceRequest:
        """:raises UnknownFileVersion: the file has another version."""
        check_file_version("maintenance request", content)
        return cls(
            str(content["bootstrap"]),
            tuple(content["tables"]),
            bool(content["apply"]),
            tuple(content.get("done", ())),
        )


@dataclass(frozen=True, slots=True)
class TableReport:
    """What became of one table, in a form for people and programs."""

    table: str
    line: str
    """What it needed, what was done, and what that gained: one line."""
    needs: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    """Why it could not be read, or what did not work; empty: everything did."""
    retryable: bool = True
    """Whether another try may have no problem."""
    numbers: Mapping[str, int] | None = None
    """What was done and gained, by name; None: nothing was done."""
    details: Mapping[str, Any] | None = None
    """The whole report."""
    needs_now: tuple[str, ...] | None = None
    """What it needed afterwards; None: not known."""
    done: tuple[str, ...] = ()
    """What was done, or what would be done besides the needs."""
    gains: tuple[str, ...] = ()
    """What a scan has to read less now."""

    def to_json(self) -> dict[str, Any]:
        return {"version": VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> TableReport:
        """:raises UnknownFileVersion: the file has another version.
        :raises ValueError, KeyError, TypeError: it is damaged.
        """
        check_file_version("maintenance report", content)
        numbers = content["numbers"]
        return cls(
            str(content["table"]),
            str(content["line"]),
            tuple(content["needs"]),
            tuple(content["problems"]),
            bool(content["retryable"]),
            None if numbers is None else {name: int(n) for name, n in dict(numbers).items()},
            content["details"],
            None if content.get("needs_now") is None else tuple(content["needs_now"]),
            tuple(content.get("done", ())),
            tuple(content.get("gains", ())),
        )


def request_uri(work_uri: str, lease_id: str, attempt: str) -> str:
    """The address of what one try of the task asks for.

    :param lease_id: names the folder of the run.
    """
    return f"{work_uri.rstrip('/')}/{lease_id}{_IN_RUN}{attempt}-request.json"


def _beside(request: str, name: str) -> str:
    return f"{request.removesuffix('request.json')}{name}.json"


class MaintenanceFiles:
    """What the driver of one request writes."""

    def __init__(self, request: str) -> None:
        """:param request: the request's address."""
        self.request = request
        self._count = 0

    def read_request(self) -> MaintenanceRequest:
        """:raises UnknownFileVersion: it does not exist here, or has another version."""
        content = read_json(self.request)
        if content is None:
            raise UnknownFileVersion(
                f"request {self.request} does not exist here: Airflow and this driver must share"
                " work_uri"
            )
        return MaintenanceRequest.from_json(content)

    def begin(self, table: str) -> None:
        """:raises OSError: the file cannot be written."""
        write_json(_beside(self.request, "running"), {"version": VERSION, "table": table})

    def add(self, report: TableReport) -> None:
        """:raises OSError: the file cannot be written."""
        self._count += 1
        write_json(_beside(self.request, f"table-{self._count:05d}"), report.to_json())

    def end(self, why: Reason | None = None) -> None:
        """Says that all tables have a report, or why they have none.

        :raises OSError: the file cannot be written.
        """
        reason = None if why is None else asdict(why)
        write_json(_beside(self.request, "ended"), {"version": VERSION, "error": reason})


@dataclass(frozen=True, slots=True)
class MaintenanceOutcome:
    """What the driver of one request has left."""

    reports: tuple[TableReport, ...]
    has_ended: bool
    """Whether no table is missing."""
    error: Reason | None = None
    """Why the driver gave up."""
    running: str = ""
    """The table at which the driver was lost; empty: none, or not known."""


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How far one try has come, as its driver has left it."""

    has_ended: bool = False
    error: Reason | None = None
    at: str = ""
    """The table that it has begun last; empty: none, or it has ended."""


def keys_uri_beside(request: str) -> str:
    """How the addresses of the keys files of a request's driver begin."""
    return _beside(request, "keys").removesuffix(".json")


def read_end(request: str) -> RunEnd:
    """:raises OSError, ValueError: a file cannot be read.
    :raises UnknownFileVersion: a file has another version.
    """
    ended = read_json(_beside(request, "ended"))
    if ended is not None:
        check_file_version("maintenance end", ended)
        error = ended["error"]
        return RunEnd(True, None if error is None else Reason(**error))
    return RunEnd(at=str((read_json(_beside(request, "running")) or {}).get("table", "")))


def read_outcome(request: str) -> MaintenanceOutcome:
    """Reads what the driver has left, and deletes keys of stores that it has not deleted itself.

    :raises OSError, ValueError: a file cannot be read.
    :raises UnknownFileVersion: a file has another version.
    """
    delete_keys(keys_uri_beside(request))
    folder, _, name = request.rpartition(_IN_RUN)
    work_uri, _, lease_id = folder.rpartition("/")
    start = f"{name.removesuffix('request.json')}table-"
    reports = read_reports(work_uri, lease_id, start)
    end = read_end(request)
    is_done = any(report.table == end.at for report in reports)
    return MaintenanceOutcome(reports, end.has_ended, end.error, "" if is_done else end.at)


def read_reports(work_uri: str, lease_id: str, start: str = "") -> tuple[TableReport, ...]:
    """The reports of one run, of all of its tries, in their order within a try.

    :param start: only those whose file names begin so.
    :raises OSError, ValueError: a file cannot be read.
    :raises UnknownFileVersion: a file has another version.
    """
    found: Sequence[str] = sorted(
        uri
        for uri in run_files(work_uri, lease_id)
        if "-table-" in (name := uri.rpartition(_IN_RUN)[2]) and name.startswith(start)
    )
    with ThreadPoolExecutor(_READERS) as pool:
        contents = pool.map(read_json, found)
        return tuple(TableReport.from_json(one) for one in contents if one is not None)


def reports_to_continue(work_uri: str, lease_id: str) -> tuple[TableReport, ...]:
    """The reports of earlier tries that a retry continues.

    None if the last try did everything: then a user has cleared the task to maintain all again.

    :raises OSError, ValueError: a file cannot be read.
    :raises UnknownFileVersion: a file has another version.
    """
    ending = "-request.json"
    requests = sorted(uri for uri in run_files(work_uri, lease_id) if uri.endswith(ending))
    if not requests:
        return ()
    last = read_outcome(requests[-1])  # names of tries rise with time
    reports = read_reports(work_uri, lease_id)
    newest = {report.table: report for report in reports}.values()
    is_done = last.has_ended and last.error is None
    return () if is_done and not any(one.problems for one in newest) else reports


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceRun:
    """One run that maintained tables, or looked at them. Times are epoch milliseconds."""

    folder: str
    """The run's folder below ``work_uri``: its lease id under Airflow."""
    attempt: str
    """Names the newest try in that folder."""
    began_ms: int
    """When that try began."""
    ended_ms: int | None = None
    """When it ended; None: it has not, or it was killed."""
    applied: bool = True
    """False: it only looked what the tables need."""
    by: str = ""
    """Who ran it, for people."""
    dag_id: str = ""
    """Empty: no Airflow. So are the next two."""
    run_id: str = ""
    task_id: str = ""
    map_index: int = -1
    url: str = ""
    """The task's page in Airflow; empty: not known."""

    @property
    def is_of_airflow(self) -> bool:
        return bool(self.dag_id)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> MaintenanceRun:
        """:raises ValueError: something is missing or of another type."""
        usual = {one.name: type(one.default) for one in fields(cls)}
        usual |= {"folder": str, "attempt": str, "began_ms": int}
        values = {name: content[name] for name in usual if name in content}
        for name, value in values.items():
            is_open = name == "ended_ms" and value is None
            kind = int if name == "ended_ms" else usual[name]
            if not is_open and type(value) is not kind:
                raise ValueError(f"{name} of a run of the maintenance is {str(value)[:80]!r}")
        if missing := {"folder", "attempt", "began_ms"} - values.keys():
            raise ValueError(f"a run of the maintenance lacks {', '.join(sorted(missing))}")
        return cls(**values)


@dataclass(frozen=True, slots=True)
class RunsOfTask:
    """The newest runs of one task, the newest first."""

    name: str
    runs: tuple[MaintenanceRun, ...]
    problem: str = ""
    """Why its file cannot be read, without secrets; empty: it can."""


def note_run(work_uri: str, name: str, run: MaintenanceRun) -> None:
    """Names a run among the newest ones of its task, or says that it has ended.

    If two runs of a task write at the same time, the one that writes first may be missing. It logs
    an error: no run needs the file.

    :param name: of the task: equal for its runs and map indexes, and of no other task.
    """
    if run.map_index >= 0:
        name = f"{name}.{run.map_index}"
    uri = f"{work_uri.rstrip('/')}/{_FOLDER}/{name}.json"
    try:
        content: Mapping[str, Any] = {"version": VERSION, "runs": []}
        earlier: tuple[MaintenanceRun, ...] = ()
        with suppress(ValueError, UnknownFileVersion):  # damaged: begin again
            content = read_json(uri) or content
        version = content.get("version")
        if isinstance(version, int) and version > VERSION:
            raise UnknownFileVersion(
                f"it has version {version} of a newer Sluice, and this one writes {VERSION}:"
                " install the same Sluice on all hosts"
            )
        with suppress(ValueError, UnknownFileVersion):
            earlier = _runs_of(content)
        others = [one for one in earlier if one.folder != run.folder]
        newest = sorted([run, *others], key=lambda one: one.began_ms, reverse=True)[:RUNS_KEPT]
        write_json(uri, {"version": VERSION, "runs": [asdict(one) for one in newest]})
    except Exception as error:  # file systems raise errors of many kinds
        _LOG.warning("cannot name this run of the maintenance in %s: %s", uri, mask(str(error)))
        return
    if run.ended_ms is None:
        _delete_gone(work_uri)


def _delete_gone(work_uri: str) -> None:
    """Deletes files that nobody reads and nobody has written for a day. It logs an error.

    A host that writes its file again in that moment loses the names of its earlier runs.
    """
    folder = f"{work_uri.rstrip('/')}/{_FOLDER}"
    try:
        found = listed(folder, "*.json*")  # a killed writer leaves a temporary file
        newest_ms = max((one.modified_ms or 0 for one in found), default=0)
        files = [one for one in found if one.uri.endswith(".json")]
        read = {one.uri for one in _of_each_task(files)}
        for one in [one for one in found if one.uri not in read][:DELETED_MAX]:
            age_ms = 0 if one.modified_ms is None else newest_ms - one.modified_ms
            if age_ms >= GONE_AFTER_MS:
                delete_file(one.uri)
    except Exception as error:  # file systems raise errors of many kinds
        _LOG.warning("cannot delete old files in %s: %s", mask(folder), mask(str(error)))


def newest_runs(work_uri: str) -> list[RunsOfTask]:
    """The newest runs of each task: one listing of a small folder, and one small file for each.

    :raises OSError: the folder cannot be listed.
    """
    found = listed(f"{work_uri.rstrip('/')}/{_FOLDER}", "*.json")
    return [_read(one.uri, one.size_bytes) for one in _of_each_task(found)]


def newest_of_each(
    items: Iterable[_T], group: Callable[[_T], Hashable], items_max: int
) -> list[_T]:
    """The newest items, of each group equally many if it has so many. The order stays.

    :param items: the newest first.
    """
    seen: Counter[Hashable] = Counter()
    ranked = []
    for at, item in enumerate(items):
        key = group(item)
        ranked.append((seen[key], at, item))
        seen[key] += 1
    chosen = sorted(ranked, key=lambda one: one[:2])[:items_max]
    return [item for _, _, item in sorted(chosen, key=lambda one: one[1])]


def _of_each_task(files: Iterable[ListedFile]) -> list[ListedFile]:
    """The files that are read, the newest first.

    :param files: the oldest first.
    """
    newest_first = [*files][::-1]
    return newest_of_each(newest_first, lambda one: _task_of(_name_of(one.uri)), FILES_MAX)


def _name_of(uri: str) -> str:
    return uri.rpartition("/")[2].removesuffix(".json")


def _task_of(name: str) -> str:
    """What the names of its map indexes have in common."""
    if name.startswith(f"{HOSTS}-"):
        return HOSTS
    task, _, map_index = name.rpartition(".")
    return task if map_index.isdecimal() else name


def _read(uri: str, size_bytes: int) -> RunsOfTask:
    name = _name_of(uri)
    try:
        if size_bytes > FILE_BYTES_MAX:
            raise ValueError(f"it has {size_bytes} bytes, more than {FILE_BYTES_MAX}")
        content = read_json(uri)
        return RunsOfTask(name, () if content is None else _runs_of(content))
    except Exception as error:  # file systems raise errors of many kinds
        return RunsOfTask(name, (), mask(f"{uri} cannot be read: {type(error).__name__}: {error}"))


def _runs_of(content: Mapping[str, Any]) -> tuple[MaintenanceRun, ...]:
    """:raises UnknownFileVersion: it has another version. :raises ValueError: it is damaged."""
    if content.get("version") != VERSION:
        raise UnknownFileVersion(
            f"its version is {content.get('version')!r}, but this Sluice reads version {VERSION}"
        )
    runs = content.get("runs")
    if not isinstance(runs, list) or not all(isinstance(one, dict) for one in runs):
        raise ValueError("it has no list of runs")
    return tuple(MaintenanceRun.from_json(one) for one in runs[:RUNS_KEPT])


class RecordedMaintenance(MaintenanceFiles):
    """The files of one run that has no driver: it writes the request, too."""

    def __init__(
        self,
        work_uri: str,
        bootstrap: str,
        tables: Sequence[str],
        *,
        applied: bool,
        clock: Clock | None = None,
    ) -> None:
        """Names the run in the work folder.

        :raises OSError, ValueError, ImportError: the folder cannot be written.
        """
        self._clock = clock or SystemClock()
        self._work_uri = work_uri
        host = socket.gethostname()
        self._name = f"{HOSTS}-{re.sub(r'[^A-Za-z0-9._-]+', '-', host)}"
        self._run = MaintenanceRun(
            folder=f"sluice-maintain-{uuid.uuid4()}",
            attempt="run",
            began_ms=self._clock.now_ms(),
            applied=applied,
            by=f"`sluice maintain` on {host}",
        )
        super().__init__(request_uri(work_uri, self._run.folder, "run"))
        request = MaintenanceRequest(bootstrap, tuple(tables), applied)
        write_json(self.request, request.to_json())
        note_run(work_uri, self._name, self._run)

    def end(self, why: Reason | None = None) -> None:
        super().end(why)
        note_run(self._work_uri, self._name, replace(self._run, ended_ms=self._clock.now_ms()))
