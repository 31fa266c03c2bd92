"""Files next to a plan, about a claim that its run lost and claimed again. Does not import Airflow.

    <work_uri>/<lease id>/<table id>-<tiering epoch>/started.json
                                                     ended.json
                                                     claimed-again.json

``started.json``: the last try of the tier task that began, and its task instance.
``ended.json``: another task of the run reports, releases or leaves the claim. With one of them, the
keeper of the run does not claim the table again. ``claimed-again.json``: the claimed table that
replaces this one, once that has a plan.

The keeper writes ``claimed-again.json``, then the plan that it names, and then reads the first two
files. A task writes one of the first two, and then reads ``claimed-again.json`` again. So at least
one of them notices the other. A task that notices continues with the new claim. If only the keeper
notices, nothing continues with it, and the keeper releases it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

from sluice.rounds.records.json_files import read_json, write_json
from sluice.rounds.records.result import round_outcome
from sluice_airflow.claims.claims import ClaimedTable

VERSION = 1


def mark_started(plan_uri: str, attempt: str, task: str | None = None) -> None:
    """Call it before a try of the tier task works on the claim.

    :param task: the task instance, for the history of the table.
    :raises OSError: the file cannot be written.
    """
    content = {"version": VERSION, "attempt": attempt, **({"task": task} if task else {})}
    write_json(_next_to(plan_uri, "started"), content)


def started_try(plan_uri: str) -> tuple[str | None, str | None]:
    """The last try of the tier task that has begun, and its task instance; None: not known.

    :raises OSError, ValueError: the file cannot be read.
    """
    content = read_json(_next_to(plan_uri, "started"))
    if content is None:
        return None, None
    return str(content.get("attempt", "")), str(content.get("task") or "") or None


def is_at_work(plan_uri: str, names: Collection[str]) -> bool:
    """Returns whether a try of the tier task works on the claim, and sends its heartbeats.

    A try that was killed leaves no outcome, so this stays true after its end.

    :param names: the files next to the plan.
    """
    if "started.json" not in names:
        return False
    attempt, _ = started_try(plan_uri)
    return not {f"result-{attempt}.json", f"failure-{attempt}.json"} & set(names)


def mark_ended(plan_uri: str) -> None:
    """Call it before a task other than the tier task reports or releases the claim.

    :raises OSError: the file cannot be written.
    """
    write_json(_next_to(plan_uri, "ended"), {"version": VERSION})


def is_ended(plan_uri: str) -> bool:
    """Returns whether a task other than the tier task reports or has released the claim.

    :raises OSError, ValueError: the file cannot be read.
    """
    return read_json(_next_to(plan_uri, "ended")) is not None


def has_begun(plan_uri: str) -> bool:
    """Returns whether a tier task has begun to work on the claim. A try's outcome shows it, too."""
    started = read_json(_next_to(plan_uri, "started")) is not None
    return started or round_outcome(plan_uri) is not None


def is_started(plan_uri: str) -> bool:
    """Returns whether a task has begun to work on the claim, or has reported it."""
    return is_ended(plan_uri) or has_begun(plan_uri)


def waits_for_claim(plan_uri: str) -> bool:
    """Returns whether a lost claim is to be replaced: its tier task may still wait.

    :raises OSError, ValueError: a file cannot be read.
    """
    by = replacement(plan_uri)
    return not is_started(plan_uri) and (by is None or by["plan_uri"] == plan_uri)


def replace_claim(plan_uri: str, entry: ClaimedTable) -> None:
    """Names the claim that replaces a lost one. It does so once its plan is written."""
    write_json(_next_to(plan_uri, "claimed-again"), {"version": VERSION, **entry})


def replacement(plan_uri: str) -> ClaimedTable | None:
    """Returns the claim that has replaced this one.

    :raises OSError, ValueError: a file cannot be read.
    """
    content = read_json(_next_to(plan_uri, "claimed-again"))
    if content is None or read_json(content["plan_uri"]) is None:
        return None  # a keeper that was killed in between has written no plan
    found: dict[str, Any] = {k: v for k, v in content.items() if k != "version"}
    return cast(ClaimedTable, found)


def newest_claim(entry: ClaimedTable) -> ClaimedTable:
    """Returns the last claim that replaced this one, or this one.

    :raises OSError, ValueError: a file cannot be read.
    """
    seen: set[str] = set()
    # A coordinator that restarts counts from the beginning, so two claims may share a folder.
    while entry["plan_uri"] not in seen:
        seen.add(entry["plan_uri"])
        entry = replacement(entry["plan_uri"]) or entry
    return entry


def _next_to(plan_uri: str, name: str) -> str:
    return f"{plan_uri.rsplit('/', 1)[0]}/{name}.json"
