"""The options of a round, from the settings."""

from __future__ import annotations

from collections.abc import Iterable

from sluice.config import Config
from sluice.model import BucketSnapshot
from sluice.rounds.plan.keyed_options import KeyedRoundOptions
from sluice.rounds.upkeep.compaction import CompactionOptions
from sluice.rounds.values.limits import LookupBudget, RoundLimits


def round_limits(config: Config) -> RoundLimits:
    """The configured limits of a round."""
    return RoundLimits(config.tiering.max_round_ms, config.tiering.max_round_bytes)


def keyed_round_options(config: Config, snapshots: Iterable[BucketSnapshot]) -> KeyedRoundOptions:
    """The options of a round of a table with a primary key, from leased snapshots and settings."""
    return KeyedRoundOptions(
        {snapshot.bucket: snapshot for snapshot in snapshots},
        config.tiering.changes_memory_bytes,
        config.tiering.spill_dir,
        LookupBudget(config.tiering.position_lookup_bytes, config.tiering.position_lookup_files),
    )


def compaction_options(config: Config) -> CompactionOptions:
    """Which tables are compacted in their rounds, and how much of them."""
    tiering = config.tiering
    return CompactionOptions(
        tiering.auto_compaction,
        tiering.compaction_bytes,
        tiering.changes_memory_bytes,
        tiering.spill_dir,
    )
