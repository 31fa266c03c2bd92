"""A running Airflow with the page, and a cluster with a table that fails and a lease."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sluice.model import TablePath
from tests.airflow.live import Live, running_live
from tests.airflow.place import HERE, airflow_home
from tests.unit.server.kv_support import KvCaller
from tests.unit.server.support import Caller

__all__ = ["HERE", "LEASE", "Scene", "airflow_home", "running_scene"]
LEASE = "nightly-report"
USERS = {"AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin,viewer:viewer"}


@dataclass(frozen=True)
class Scene:
    """Where people look at."""

    live: Live
    broken: TablePath
    """Its last round failed."""
    fine: TablePath

    @property
    def url(self) -> str:
        return self.live.airflow.url

    @property
    def admin(self) -> str:
        """The administrator's password."""
        return self.live.airflow.password

    @property
    def viewer(self) -> str:
        """The viewer's, which Airflow has made."""
        passwords = json.loads((self.live.airflow.home / "passwords.json").read_text())
        return str(passwords["viewer"])


@contextmanager
def running_scene(folder: Path, environment: dict[str, str]) -> Iterator[Scene]:
    """Starts Airflow, and lets a run tier two tables, of which one fails."""
    with running_live(folder, environment, **USERS) as live:
        fine, broken = live.place.table("fine"), live.place.table("broken")
        caller = Caller(live.place.address)
        try:
            kv = KvCaller(caller, TablePath("shop", "keyed"))
            kv.put((1, "a", 1))
            live.cluster.take_kv_snapshots(kv.path)
        finally:
            caller.transport.close()
        lease = live.place.client.snapshot_lease(LEASE, kv.path, on_exit="keep")
        with lease:
            pass
        live.place.wait(fine, broken)
        assert live.ended(live.trigger(str(fine), str(broken))) == "failed"
        yield Scene(live, broken, fine)
