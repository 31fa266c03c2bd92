"""Lease ids of jobs: equal for all attempts of one run, different between deployments."""

from __future__ import annotations

import json
import re
import uuid

OWNER_CHARS_MAX = 40

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
