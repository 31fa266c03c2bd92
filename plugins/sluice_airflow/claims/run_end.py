"""The end of a run, for its acquire_lease that may still work. Does not import Airflow.

    <work_uri>/<lease id>/ended.json

Airflow kills a task that a user marked only at its next heartbeat, seconds after drop_lease may
have released what the run held. A task on a machine that cannot reach Airflow works on even longer.
"""

from __future__ import annotations

import uuid

from sluice.errors import StoppedByUser
from sluice.rounds.records.json_files import read_json, write_json
from sluice_airflow.claims.unreadable import logged

VERSION = 1


def mark_run_ended(work_uri: str, lease_id: str) -> None:
    """Ends the acquire_lease of the run at its next look; call it before claims are released.

    It logs an error: the claims that are left then end by themselves.
    """
    content = {"version": VERSION, "end": uuid.uuid4().hex}
    with logged(f"mark the end of {lease_id} in {work_uri}"):
        write_json(_uri(work_uri, lease_id), content)


class RunEnd:
    """Whether the run has ended since this object was made. A cleared run has ended before."""

    def __init__(self, work_uri: str, lease_id: str) -> None:
        self._work_uri, self._lease_id = work_uri, lease_id
        self._before, self._is_known = self._read()

    def check(self) -> None:
        """:raises StoppedByUser: it has ended."""
        found, is_known = self._read()
        if is_known and not self._is_known:  # the file may be of an earlier end
            self._before, self._is_known = found, True
        if is_known and found is not None and found != self._before:
            raise StoppedByUser(
                f"the run of {self._lease_id} has ended while acquire_lease claimed tables; it has"
                " released them. To tier them, clear the run or trigger a new one"
            )

    def _read(self) -> tuple[str | None, bool]:
        """The mark of the last end, and whether it could be read."""
        with logged(f"read whether {self._lease_id} has ended"):
            content = read_json(_uri(self._work_uri, self._lease_id)) or {}
            return content.get("end"), True
        return None, False


def _uri(work_uri: str, lease_id: str) -> str:
    return f"{work_uri.rstrip('/')}/{lease_id}/ended.json"
