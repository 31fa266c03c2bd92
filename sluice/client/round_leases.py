"""Leases that rounds in progress may hold, for clusters that list no leases.

Fluss 0.9.1 has no call that lists them. Sluice knows the ids of its own: a run of the DAG claims
its tables under the id of its lease, and `sluice tier` locks a file that has the id as its name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sluice.client.client import Client
from sluice.client.tier_lease import stored_tier_leases
from sluice.model import TablePath
from sluice.statuses import State

_OF_RUN = re.compile(r"sluice-.+-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class RoundLease:
    """A lease that a round in progress may hold: it has one only if it reads KV snapshots."""

    lease_id: str
    tables: tuple[TablePath, ...]
    """The tables with a primary key that its rounds tier."""


def leases_of_rounds(client: Client) -> list[RoundLease]:
    """The leases of rounds in progress, ordered by id.

    Those of `sluice tier` are found only on the machine and for the user that run it.
    """
    tiering = State.TIERING.value
    rounds = [s for s in client.statuses.list(lags=False) if s.status == tiering]
    infos = client.admin.known_infos([status.path for status in rounds])
    own, found = stored_tier_leases(), dict[str, list[TablePath]]()
    for status in rounds:
        info = infos.get(status.path)
        if info is None or not info.has_primary_key:
            continue  # dropped, or it has no KV snapshots
        by = status.claimed_by or ""
        for lease_id in [by] if _OF_RUN.fullmatch(by) else own.get(status.table_id, []):
            found.setdefault(lease_id, []).append(status.path)
    return [RoundLease(lease_id, tuple(sorted(found[lease_id]))) for lease_id in sorted(found)]
