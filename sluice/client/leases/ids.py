"""Lease ids of jobs: equal for all attempts of one run, different between deployments."""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass
from typing import Literal

OWNER_CHARS_MAX = 40

_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_OF_TIER = re.compile(rf"sluice-tier-(?P<id>{_UUID})(-(?P<table>\d{{1,19}})(\.\d+)?)?")
_OF_RUN = re.compile(rf"sluice-(?P<deployment>[A-Za-z0-9._-]+)-(?P<run>{_UUID})")
_NAMESPACE = uuid.UUID("5a1c7f0e-3c1b-5d5e-9d0b-6c75696365ff")


def lease_id(deployment_id: str, dag_id: str, run_id: str) -> str:
    """Returns ``sluice-``, the deployment's id, ``-`` and the uuid5 of the three names.

    A retried or cleared task gets the same id, so it finds its own lease. Lists of leases and
    statuses show the id, so they name the owner. It is also the name of the run's folder.
    """
    owner = re.sub(r"[^A-Za-z0-9._-]+", "-", deployment_id)[:OWNER_CHARS_MAX]
    # JSON keeps ("a", "bc") and ("ab", "c") apart.
    run = uuid.uuid5(_NAMESPACE, json.dumps([deployment_id, dag_id, run_id]))
    return f"sluice-{owner}-{run}"


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """What holds a lease, as far as its id says it."""

    kind: Literal["run", "tier", "reader"]
    """A run of a DAG; a round of `sluice tier` or `sluice repair`; any other client."""
    deployment_id: str | None = None
    """Of a run: the id of its Airflow, as lease ids have it."""
    installation_id: str | None = None
    """Of `sluice tier`: the id of its installation. None: it could not be stored."""
    table_id: int | None = None
    """Of `sluice tier`: the table."""

    def __str__(self) -> str:
        if self.kind == "run":
            return f"a run of the Airflow {self.deployment_id}"
        if self.kind == "tier":
            where = f", installation {self.installation_id}" if self.installation_id else ""
            return f"a round of `sluice tier` or `sluice repair`{where}"
        return "another reader"


def holder_of(lease_id: str) -> LeaseHolder:
    """The holder of a lease. Only the id says it: any client may give its lease such an id."""
    tier, run = _OF_TIER.fullmatch(lease_id), _OF_RUN.fullmatch(lease_id)
    if run and uuid.UUID(run["run"]).version == 5:  # an Airflow may have the id tier
        return LeaseHolder("run", deployment_id=run["deployment"])
    if tier and tier["table"] is None:
        return LeaseHolder("tier")  # a random id
    if tier:
        return LeaseHolder("tier", installation_id=tier["id"], table_id=int(tier["table"]))
    return LeaseHolder("reader")
