"""What a driver sets for the rounds of its tables."""

from __future__ import annotations

from dataclasses import dataclass

from sluice.rounds.copy.parts import NO_PARTS, PartRules
from sluice.rounds.plan.keyed_options import NO_KEYED_OPTIONS, KeyedRoundOptions
from sluice.rounds.upkeep.compaction import DEFAULT_COMPACTIONS, CompactionOptions
from sluice.rounds.values.limits import RoundLimits


@dataclass(frozen=True, slots=True)
class RoundOptions:
    """The options of one round."""

    limits: RoundLimits | None = None
    """When one is reached, the round commits what it has, and the result names the limit
    (``forced``); None: no limits."""
    keyed: KeyedRoundOptions = NO_KEYED_OPTIONS
    """For a table with a primary key: leased KV snapshots, memory and spill folder."""
    parts: PartRules = NO_PARTS
    """How the windows of log tables are divided into parts."""
    compaction: CompactionOptions = DEFAULT_COMPACTIONS
    """Which tables are compacted, and how much of them."""
    expire_snapshots: bool = False
    """Old lake snapshots expire, whatever options the table has."""


DEFAULT_OPTIONS = RoundOptions()
