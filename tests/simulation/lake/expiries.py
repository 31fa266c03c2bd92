"""Expiry after rounds: which seeds do it, and the check of each one.

The check shares no code with the rule. It knows the time of each commit and of each round's start.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sluice.model import TablePath
from sluice.model.durations import duration_ms
from sluice.statuses import FRESHNESS
from tests.simulation.fluss.cluster import SimCluster
from tests.simulation.lake.stored_lake import SimTable

_EXPIRING = 0.75
"""How many seeds expire snapshots after rounds."""


@dataclass(frozen=True, slots=True)
class ExpirySettings:
    """What one seed is configured with."""

    is_on: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)
    """Of all lake tables."""


def draw_expiry(seed: int) -> ExpirySettings:
    """Draws whether snapshots expire after the rounds of a seed, and at which age."""
    rng = random.Random(f"expiry {seed}")
    if rng.random() >= _EXPIRING:
        return ExpirySettings()
    age_ms = rng.choice((1, 1, 1, 60_000))
    return ExpirySettings(
        True,
        {
            "history.expire.max-snapshot-age-ms": str(age_ms),
            "history.expire.min-snapshots-to-keep": str(rng.choice((1, 1, 3))),
        },
    )


@dataclass
class RoundFacts:
    """What the simulation knows of a round, to check what it expires."""

    started_ms: int
    limit_ms: int
    """How long the round may copy; 0: as long as the table's freshness says."""
    base: int | None = None
    """The newest tiering snapshot just before the round's commit landed."""


@dataclass(frozen=True, slots=True)
class ExpiryChecker:
    """Checks each expiry just before it lands."""

    cluster: SimCluster
    wrong: Callable[[str], None]
    has_fence: Callable[[], bool]
    """Whether the coordinator refuses late registrations."""

    def check(
        self,
        path: TablePath,
        table: SimTable,
        going: Sequence[int],
        facts: RoundFacts,
        decided_ms: int,
    ) -> None:
        """Checks that nobody needs these snapshots any more.

        :param decided_ms: when the round chose them. It may have waited for the catalog since, and
            the time that it has taken would grow twice as fast as their age.
        """
        fluss = self.cluster.tables.get(path)
        registered = None if fluss is None else fluss.latest_registered()
        needed = {"tagged": table.tagged, "current": table.main, "base": facts.base}
        if registered is not None and self.has_fence():
            needed["registered"] = registered.snapshot_id
        for name, snapshot_id in needed.items():
            if snapshot_id in going:
                self.wrong(f"{table.location}: the {name} snapshot {snapshot_id} expires")
        limit_ms = facts.limit_ms
        if not limit_ms and fluss is not None:
            freshness = fluss.described.descriptor.properties[FRESHNESS]
            limit_ms = max(60_000, duration_ms(FRESHNESS, freshness))
        took_ms = max(limit_ms, decided_ms - facts.started_ms, *table.took_ms(), 0)
        since_ms = decided_ms - 2 * took_ms
        young = [one for one in going if table.made_ms(one) > since_ms]
        if young:
            self.wrong(f"{table.location}: snapshots {young} expire too young")
