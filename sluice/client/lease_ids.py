"""Lease ids of jobs: equal for all attempts of one run, different between deployments."""

from __future__ import annotations

import json
import uuid

_NAMESPACE = uuid.UUID("5a1c7f0e-3c1b-5d5e-9d0b-6c75696365ff")


def lease_id(deployment_id: str, dag_id: str, run_id: str) -> str:
    """Returns ``sluice-`` + the uuid5 of the three names.

    A retried or cleared task gets the same id, so it finds its own lease.
    """
    # JSON keeps ("a", "bc") and ("ab", "c") apart.
    return f"sluice-{uuid.uuid5(_NAMESPACE, json.dumps([deployment_id, dag_id, run_id]))}"
