"""The starts of Spark that failed for their settings, and when the next run tries again.

    <work_uri>/failed-starts/<id of the DAG>/<id of the tier task>.json

Such a failure is none of a table, so no table waits after it. Without this file, each scheduled run
would claim all tables and start Spark in vain. Does not import Airflow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

from sluice.errors import SparkSettingsWrong
from sluice.masking import cut, mask
from sluice.rounds.records.json_files import VERSION, delete_file, read_json, write_json
from sluice_airflow.claims.unreadable import logged
from sluice_airflow.outcomes.account import time_text

WAIT_MS = 60_000
"""After the first failed start. Each further one doubles it."""
WAIT_MAX_MS = 900_000
REASON_MAX = 1_000
"""Characters of a reason."""
RUNS_MAX = 10
"""Runs that are known to have been counted: a group may run in several at a time."""


@dataclass(frozen=True, slots=True)
class FailedStart:
    """The last failed start of a tier task, and how many runs have failed so in sequence."""

    lease_ids: tuple[str, ...]
    """Of the last runs, whose applications count once each."""
    reason: str
    at_ms: int
    failures: int = 1

    @property
    def next_ms(self) -> int:
        """When a scheduled run starts Spark again, epoch milliseconds."""
        return self.at_ms + min(WAIT_MS << min(self.failures - 1, 10), WAIT_MAX_MS)

    def check(self, now_ms: int) -> None:
        """:raises SparkSettingsWrong: it is too early for another start."""
        if not self.at_ms <= now_ms < self.next_ms:  # a clock may have been set back
            return
        at = time_text(self.at_ms)
        starts = f"the last {self.failures} starts failed, the last one at {at}"
        if self.failures == 1:
            starts = f"the start at {at} failed"
        raise SparkSettingsWrong(
            f"Spark is not started before {time_text(self.next_ms)}, because {starts}:"
            f" {self.reason}. Correct the settings, then trigger a run or clear this one: it"
            " starts Spark at once"
        )

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> FailedStart:
        """:raises KeyError, TypeError, ValueError: something is missing or of another type."""
        return cls(
            lease_ids=tuple(map(str, content["lease_ids"]))[-RUNS_MAX:],
            reason=str(content["reason"]),
            at_ms=int(content["at_ms"]),
            failures=max(1, int(content["failures"])),
        )


class FailedStarts:
    """Those of one tier task of a DAG. An error of the storage is logged: no run needs the file."""

    def __init__(self, work_uri: str, dag_id: str, tier_task_id: str) -> None:
        dag, task = (quote(one, safe="") for one in (dag_id, tier_task_id))
        self._uri = f"{work_uri.rstrip('/')}/failed-starts/{dag}/{task}.json"

    def last(self) -> FailedStart | None:
        """The last one; None: the last start did not fail so, or that cannot be read."""
        with logged(f"read {self._uri}", Exception):  # file systems raise errors of many kinds
            content = read_json(self._uri)
            if content is not None and content.get("version") == VERSION:
                return FailedStart.from_json(content)
        return None

    def add(self, lease_id: str, error: SparkSettingsWrong, now_ms: int) -> None:
        """Notes that a start of a run has failed."""
        before = self.last()
        known = () if before is None else before.lease_ids
        failures = 0 if before is None else before.failures
        if lease_id not in known:
            known, failures = (*known, lease_id)[-RUNS_MAX:], failures + 1
        found = FailedStart(known, cut(mask(str(error)), REASON_MAX), now_ms, failures)
        with logged(f"write {self._uri}", Exception):  # as above
            write_json(self._uri, {"version": VERSION, **asdict(found)})

    def clear(self) -> None:
        """Notes that Spark has started, and a table has begun."""
        with logged(f"delete {self._uri}", Exception):  # as above
            delete_file(self._uri)
