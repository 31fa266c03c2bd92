"""The DAG and the run behind a lease id, for people. Does not import Airflow.

    <work_uri>/<lease id>/run.json

A lease id is a hash of these names. So a run that has claimed tables writes them into its folder,
and other runs with the same work folder read them there.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass

from sluice.masking import mask
from sluice.rounds.records.json_files import read_json, write_json

log = logging.getLogger(__name__)

VERSION = 1
_LEASE_ID = re.compile(r"sluice-[A-Za-z0-9._-]+-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""As sluice/client/leases/ids.py makes them. Any client may give another name to its claim."""


@dataclass(frozen=True, slots=True)
class RunName:
    """What Airflow calls a run."""

    dag_id: str
    run_id: str

    def __str__(self) -> str:
        return f"the run {self.run_id} of DAG {self.dag_id}"


def write_run_name(work_uri: str, lease_id: str, name: RunName) -> None:
    """Names the run in its folder. It logs an error: the run does not need the file."""
    content = {"version": VERSION, "dag_id": name.dag_id, "run_id": name.run_id}
    try:
        write_json(_uri(work_uri, lease_id), content)
    except Exception as error:  # file systems raise errors of many kinds
        log.warning("cannot name this run in %s: %s", work_uri, mask(str(error)))


class RunNames:
    """Names of those who have claimed tables, each read once. For one thread."""

    def __init__(self, work_uri: str) -> None:
        self._work_uri = work_uri
        self._known: dict[str, str] = {}

    def of(self, claimed_by: str) -> str:
        """The run of a claim; the claim's own text if it is of no run that can be read."""
        if claimed_by not in self._known:
            self._known[claimed_by] = str(read_run_name(self._work_uri, claimed_by) or claimed_by)
        return self._known[claimed_by]


def read_run_name(work_uri: str, lease_id: str) -> RunName | None:
    """The run of a lease; None if it is of no run that can be read, which is logged."""
    if not work_uri or not _LEASE_ID.fullmatch(lease_id):
        return None
    try:
        content = read_json(_uri(work_uri, lease_id)) or {}
    except Exception as error:  # file systems raise errors of many kinds
        log.warning("cannot read the name of the run %s: %s", lease_id, mask(str(error)))
        return None
    if content.get("version") != VERSION:
        return None
    return RunName(str(content.get("dag_id")), str(content.get("run_id")))


def _uri(work_uri: str, lease_id: str) -> str:
    return f"{work_uri.rstrip('/')}/{lease_id}/run.json"
