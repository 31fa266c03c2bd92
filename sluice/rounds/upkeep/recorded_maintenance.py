"""A run of `sluice maintain` that leaves its reports in a work folder, as one of Airflow does."""

from __future__ import annotations

import re
import socket
import uuid
from collections.abc import Sequence
from dataclasses import replace

from sluice.clock import Clock, SystemClock
from sluice.model import Reason
from sluice.rounds.records.files import write_json
from sluice.rounds.records.maintenance_runs import HOSTS, MaintenanceRun, note_run
from sluice.rounds.upkeep.maintain import MaintenanceReport
from sluice.rounds.upkeep.maintenance_files import (
    MaintenanceFiles,
    MaintenanceRequest,
    TableReport,
    request_uri,
)


class RecordedMaintenance:
    """Writes the files of one run."""

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
        self._files = MaintenanceFiles(request_uri(work_uri, self._run.folder, "run"))
        request = MaintenanceRequest(bootstrap, tuple(tables), applied)
        write_json(self._files.request, request.to_json())
        note_run(work_uri, self._name, self._run)

    def add(self, report: MaintenanceReport) -> None:
        """:param report: without secrets. :raises OSError: it cannot be written."""
        self._files.add(TableReport.of(report, applied=self._run.applied))

    def end(self, why: Reason | None = None) -> None:
        """Says that all tables have a report, or why they have none.

        :raises OSError: the file cannot be written.
        """
        self._files.end(why)
        note_run(self._work_uri, self._name, replace(self._run, ended_ms=self._clock.now_ms()))
