"""The newest runs that maintained tables, found without a listing of all runs.

    <work_uri>/maintenance/<name>[.<map index>].json

Each task that maintains tables has one such file, which names its newest runs; so has each map
index of a mapped one, and `sluice maintain --work-uri` on each machine. The file is replaced as a
whole when a run begins and when it ends: whoever is killed leaves the one before. A container may
write one file in its life, so who begins a run deletes old files that nobody reads. Of each task
the newest files are read, however many another one has. The reports of a run are in the run's own
folder (``maintenance_files``), which `sluice clean` deletes. No file
contains a secret.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from sluice.errors import UnknownFileVersion
from sluice.masking import mask
from sluice.rounds.records.files import (
    VERSION,
    ListedFile,
    delete_file,
    listed,
    read_json,
    write_json,
)

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
