"""The files of a pack: the tables that one Spark application tiers.

    <work_uri>/<lease id>/packs/<attempt>-<number>.json         written by the tier task
                                <attempt>-<number>-stops.json   written by the tier task
    <work_uri>/<lease id>/<round>/running-<attempt>.json        written by the driver

The first one lists the plans of the tables. The second one lists those that the driver must end
early; the tier task replaces it when it grows. With the third one the driver begins a table. If the
driver is lost, only tables that were begun and have no outcome may have caused that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sluice.rounds.records.json_files import VERSION, check_file_version, read_json, write_json
from sluice.rounds.records.run_files import run_files


@dataclass(frozen=True, slots=True)
class PackFile:
    """The tables of one Spark application, by the addresses of their plans."""

    plans: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {"version": VERSION, "plans": list(self.plans)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> PackFile:
        """:raises UnknownFileVersion: the file has another version."""
        check_file_version("pack", content)
        return cls(tuple(map(str, content["plans"])))


def pack_uri(work_uri: str, lease_id: str, attempt: str, number: int) -> str:
    """The address of a pack file.

    :param number: counts the applications of one try of the tier task.
    """
    return f"{work_uri.rstrip('/')}/{lease_id}/packs/{attempt}-{number}.json"


def stops_uri(pack: str) -> str:
    """The address of the file with the tables of a pack that must end early."""
    return f"{pack.removesuffix('.json')}-stops.json"


def write_stops(pack: str, plans: Sequence[str]) -> None:
    """Replaces the list of tables that the driver must end early.

    :raises OSError: the file cannot be written.
    """
    write_json(stops_uri(pack), PackFile(tuple(plans)).to_json())


def read_stops(pack: str) -> tuple[str, ...]:
    """The plans of the tables that must end early.

    :raises OSError, ValueError, UnknownFileVersion: the file cannot be read.
    """
    content = read_json(stops_uri(pack))
    return () if content is None else PackFile.from_json(content).plans


def running_uri(plan: str, attempt: str) -> str:
    return f"{plan.rsplit('/', 1)[0]}/running-{attempt}.json"


@dataclass(frozen=True, slots=True)
class SparkApplication:
    """The Spark application that tiers a table."""

    id: str
    ui_url: str = ""
    """Address of its UI while it runs. Empty: it has none."""


def mark_running(plan: str, attempt: str, application: SparkApplication | None = None) -> None:
    """Call it before the driver begins a table.

    :raises OSError: the file cannot be written.
    """
    content: dict[str, Any] = {"version": VERSION}
    if application is not None:
        content |= {"application_id": application.id, "ui_url": application.ui_url}
    write_json(running_uri(plan, attempt), content)


def running_application(plan: str, attempt: str) -> SparkApplication | None:
    """The application that has begun a table in this try; None if the file does not name it.

    :raises OSError, ValueError, UnknownFileVersion: the file cannot be read.
    """
    content = read_json(running_uri(plan, attempt)) or {}
    name = content.get("application_id")
    return SparkApplication(str(name), str(content.get("ui_url") or "")) if name else None


def run_file_names(work_uri: str, lease_id: str) -> dict[str, set[str]]:
    """The names of the files next to each plan of a run, by the address of the plan."""
    names: dict[str, set[str]] = {}
    for uri in run_files(work_uri, lease_id):
        folder, _, name = uri.rpartition("/")
        names.setdefault(folder.rpartition("/")[2], set()).add(name)
    root = f"{work_uri.rstrip('/')}/{lease_id}"
    return {f"{root}/{folder}/plan.json": found for folder, found in names.items()}


def ran_without_outcome(attempt: str, names: Collection[str]) -> bool:
    """Whether a try of the driver began a table and left no outcome of it.

    :param names: the names of the files next to the plan.
    """
    outcomes = {f"result-{attempt}.json", f"failure-{attempt}.json"}
    return f"running-{attempt}.json" in names and not outcomes & set(names)
