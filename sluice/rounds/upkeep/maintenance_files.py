"""The files of one run that maintains tables on Spark.

    <work_uri>/<lease id>/maintenance/<attempt>-request.json      written by Airflow's task
                                      <attempt>-running.json      written by the driver
                                      <attempt>-table-<n>.json    written by the driver
                                      <attempt>-ended.json        written by the driver

The driver names each table before it begins it, and reports it as soon as it is done. So the
finished tables of a driver that was killed are known, and the one that it was at. The last file
says that no table is missing, or why the driver could do none. No file contains a secret, except
``<attempt>-keys-<table>.json``, which lives as long as the driver
(``sluice.lake.storage.keys_file``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from sluice.errors import UnknownFileVersion
from sluice.model import Reason
from sluice.rounds.records.files import VERSION, delete_keys, read_json, run_files, write_json
from sluice.rounds.upkeep.maintain import MaintenanceReport
from sluice.rounds.upkeep.maintenance_line import (
    done_words,
    due_words,
    gain_words,
    gained,
    report_line,
)

_READERS = 16
"""Reports that are read at once: an object store takes a request for each."""
_FOLDER = "/maintenance/"


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
        check_version("request", content)
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

    @classmethod
    def of(cls, report: MaintenanceReport, *, applied: bool, retryable: bool = True) -> TableReport:
        """:param report: without secrets.
        :param applied: whether it was to be maintained, and not only looked at.
        """
        return cls(
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

    def to_json(self) -> dict[str, Any]:
        return {"version": VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> TableReport:
        """:raises UnknownFileVersion: the file has another version.
        :raises ValueError, KeyError, TypeError: it is damaged.
        """
        check_version("report", content)
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


def check_version(what: str, content: Mapping[str, Any]) -> None:
    """:raises UnknownFileVersion: the file has another version."""
    if content.get("version") != VERSION:
        raise UnknownFileVersion(
            f"the {what} of a maintenance has version {content.get('version')!r}, but this Sluice"
            f" reads version {VERSION}: install the same Sluice for Airflow and for Spark"
        )


def request_uri(work_uri: str, lease_id: str, attempt: str) -> str:
    """The address of what one try of the task asks for.

    :param lease_id: names the folder of the run.
    """
    return f"{work_uri.rstrip('/')}/{lease_id}{_FOLDER}{attempt}-request.json"


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
        check_version("end", ended)
        error = ended["error"]
        return RunEnd(True, None if error is None else Reason(**error))
    return RunEnd(at=str((read_json(_beside(request, "running")) or {}).get("table", "")))


def read_outcome(request: str) -> MaintenanceOutcome:
    """Reads what the driver has left, and deletes keys of stores that it has not deleted itself.

    :raises OSError, ValueError: a file cannot be read.
    :raises UnknownFileVersion: a file has another version.
    """
    delete_keys(keys_uri_beside(request))
    folder, _, name = request.rpartition(_FOLDER)
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
        if "-table-" in (name := uri.rpartition(_FOLDER)[2]) and name.startswith(start)
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
