"""The options of a round, from the settings."""

from __future__ import annotations

from collections.abc import Iterable

from sluice.config import Config
from sluice.model import BucketSnapshot
from sluice.rounds.commit.options import RoundOptions
from sluice.rounds.copy.parts import PartRules
from sluice.rounds.plan.keyed_options import KeyedRoundOptions
from sluice.rounds.upkeep.compaction import CompactionOptions
from sluice.rounds.values.limits import LookupBudget, RoundLimits


def round_options(
    config: Config, snapshots: Iterable[BucketSnapshot], parallelism: int
) -> RoundOptions:
    """The options of a round.

    :param snapshots: leased for the round, of a table with a primary key.
    :param parallelism: how many splits are copied at the same time.
    """
    tiering = config.tiering
    return RoundOptions(
        RoundLimits(tiering.max_round_ms, tiering.max_round_bytes),
        KeyedRoundOptions(
            {snapshot.bucket: snapshot for snapshot in snapshots},
            tiering.changes_memory_bytes,
            tiering.spill_dir,
            LookupBudget(tiering.position_lookup_bytes, tiering.position_lookup_files),
        ),
        PartRules(parallelism, tiering.part_offsets),
        compaction_options(config),
        tiering.auto_expire_snapshot,
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
