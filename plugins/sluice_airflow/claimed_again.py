"""Files next to a plan, about a claim that its run lost and claimed again. Does not import Airflow.

    <work_uri>/<lease id>/<table id>-<tiering epoch>/started.json
                                                     ended.json
                                                     claimed-again.json

``started.json``: a tier task works on the claim. ``ended.json``: another task of the run reports or
releases it. With one of them, the keeper of the run does not claim the table again.
``claimed-again.json``: the claimed table that replaces this one. The tier task writes the first
file before it reads the third; the keeper writes the third before it reads the first. So at least
one of them notices the other.
"""

from __future__ import annotations

from typing import Any, cast

from sluice.rounds.files import read_json, round_outcome, write_json
from sluice_airflow.claims import ClaimedTable

VERSION = 1


def mark_started(plan_uri: str) -> None:
    """:raises OSError: the file cannot be written."""
    write_json(_next_to(plan_uri, "started"), {"version": VERSION})


def mark_ended(plan_uri: str) -> None:
    """Call it before a task other than the tier task reports or releases the claim.

    :raises OSError: the file cannot be written.
    """
    write_json(_next_to(plan_uri, "ended"), {"version": VERSION})


def has_begun(plan_uri: str) -> bool:
    """Returns whether a tier task has begun to work on the claim. A try's outcome shows it, too."""
    started = read_json(_next_to(plan_uri, "started")) is not None
    return started or round_outcome(plan_uri) is not None


def is_started(plan_uri: str) -> bool:
    """Returns whether a task has begun to work on the claim, or has reported it."""
    return read_json(_next_to(plan_uri, "ended")) is not None or has_begun(plan_uri)


def replace_claim(plan_uri: str, entry: ClaimedTable) -> None:
    """Says next to the plan of a lost claim that another one has replaced it."""
    write_json(_next_to(plan_uri, "claimed-again"), {"version": VERSION, **entry})


def newest_claim(entry: ClaimedTable) -> ClaimedTable:
    """Returns the last claim that replaced this one, or this one.

    :raises OSError, ValueError: a file cannot be read.
    """
    seen: set[str] = set()
    # A coordinator that restarts counts from the beginning, so two claims may share a folder.
    while entry["plan_uri"] not in seen:
        seen.add(entry["plan_uri"])
        content = read_json(_next_to(entry["plan_uri"], "claimed-again"))
        if content is None:
            break
        found: dict[str, Any] = {k: v for k, v in content.items() if k != "version"}
        entry = cast(ClaimedTable, found)
    return entry


def _next_to(plan_uri: str, name: str) -> str:
    return f"{plan_uri.rsplit('/', 1)[0]}/{name}.json"
