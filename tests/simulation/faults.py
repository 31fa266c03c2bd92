"""The faults of one simulated run with their probabilities, and the names of all events."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields

KINDS = (
    "rows appended",
    "empty batch appended",
    "log truncated",
    "log truncated during a repair",
    "log lost its beginning",
    "batch damaged",
    "tiered rows given up",
    "coordinator restarted",
    "partition created",
    "partition dropped",
    "partition created again",
    "table dropped and created again",
    "table dropped",
    "table created again",
    "lake table dropped",
    "lake table renamed",
    "compaction",
    "foreign append",
    "snapshots expired",
    "snapshots expired after a round",
    "old metadata removed",
    "rolled back",
    "driver killed",
    "driver stopped",
    "driver stopped beyond the time-out",
    "worker given up",
    "claim retried",
    "heartbeat found the claim lost",
    "executor lost",
    "read failed",
    "tablet did not know its partition",
    "window in parts",
    "connection refused",
    "request lost",
    "request late",
    "request repeated",
    "reply lost",
    "late request arrived",
    "lake read failed",
    "lake commit met another writer",
    "lake commit refused",
    "lake commit unknown, not landed",
    "lake commit unknown, landed",
    "lake commit unknown, landing late",
    "late lake commit landed",
    "lake commit landed and called refused",
    "round committed",
    "round committed in part",
    "round left out a dropped partition",
    "round cut by time",
    "round cut by bytes",
    "round already landed",
    "round had nothing new",
    "round lost its claim",
    "snapshot of a dead round registered",
    "LakeRolledBack",
    "LakeTableMismatch",
    "LakeCommitOutcomeUnknown",
    "LakeCommitRefused",
    "SplitFailed",
    "repair: restore",
    "repair: retier",
    "repair: accept-gap",
    "repair: skip",
    "LogBeginsAfterLake",
    "clean-up",
    "clean-up removed files",
    "log table compacted",
    "compaction requested",
    "requested compaction completed",
)
"""Events that must each occur at least once in a set of runs."""

KEYED_KINDS = (
    "commit by position",
    "commit by position and equality",
    "commit by equality",
    "equality deletes: look-ups are off",
    "equality deletes: too many bytes",
    "equality deletes: too many files",
    "equality deletes: a file has expired",
    "equality deletes: rewritten after two tries",
    "lake commit met rewritten data files",
    "rows looked up again",
    "marks merged",
    "vectors replaced",
    "data file rewritten before a commit",
    "slow rewrite landed before a commit",
    "data file expired before it was read",
    "rewrite of data files landed",
    "rewrite of data files refused",
    "removal of dangling deletes landed",
    "merge of positions landed",
    "merge of positions refused",
    "update landed",
    "update refused",
    "upgraded to deletion vectors",
    "others lost their files",
    "repair: rebuild",
    "compaction committed",
    "compaction left out",
    "compaction given up",
    "maintained",
    "conversion landed",
    "conversion refused",
    "conversion arrived",
    "conversion landed and called refused",
    "conversion died before its commit",
    "conversion died after its commit",
    "conversion lost its files",
    "too many files to list",
    "process ended before a late commit",
    "files of dead conversions removed",
    "useless equality deletes removed",
)
"""Events that occur only with primary-key tables."""


@dataclass(frozen=True, slots=True)
class Faults:
    """Probabilities: the first three per step, the others per call or commit."""

    kill: float = 0.0
    stop: float = 0.0
    switch: float = 0.3
    """Another actor runs; this is not a fault."""
    refused: float = 0.0
    request_lost: float = 0.0
    request_late: float = 0.0
    repeated: float = 0.0
    reply_lost: float = 0.0
    lake_read: float = 0.0
    commit_refused: float = 0.0
    commit_lost: float = 0.0
    commit_unknown: float = 0.0
    commit_late: float = 0.0
    commit_misnamed: float = 0.0
    executor_lost: float = 0.0
    read_failed: float = 0.0
    tablet_stale: float = 0.0
    """A tablet server does not know a partition that exists."""


NONE = Faults()
HOT = 5
"""How much more often actors are killed, stopped or interrupted at these steps."""
HOT_STEPS = frozenset(
    {
        "look up",
        "commit",
        "commit validates",
        "commit swaps",
        "commit answered",
        "PrepareLakeTableSnapshot answered",
        "CommitLakeTableSnapshot",
        "CommitLakeTableSnapshot answered",
        "expire swaps",
        "expired",
        "set_main",
        "set_main answered",
        "references",
        "remove",
        "maintain writes",
        "maintain commits",
        "conversion validates",
        "conversion swaps",
        "conversion answered",
    }
)

_WORST = {
    "kill": 0.02,
    "stop": 0.012,
    "refused": 0.03,
    "request_lost": 0.04,
    "request_late": 0.03,
    "repeated": 0.05,
    "reply_lost": 0.05,
    "lake_read": 0.015,
    "commit_refused": 0.1,
    "commit_lost": 0.1,
    "commit_unknown": 0.15,
    "commit_late": 0.15,
    "commit_misnamed": 0.1,
    "executor_lost": 0.1,
    "read_failed": 0.06,
    "tablet_stale": 0.05,
}


_EXCUSES = (
    "refused",
    "request_lost",
    "request_late",
    "reply_lost",
    "read_failed",
    "tablet_stale",
)
"""Faults that excuse a failure of the round that they hit."""
_WITHOUT_EXCUSES = 0.1
"""How many runs have none of these."""


def draw(rng: random.Random, seed: int) -> Faults:
    """Draws the faults of one run, without a third of the kinds, so that the others show."""
    drawn = {"switch": rng.uniform(0.1, 0.6)}
    for one in fields(Faults):
        if one.name in _WORST and rng.random() < 0.66:
            drawn[one.name] = _WORST[one.name] * rng.random()
    if random.Random(f"faults {seed}").random() < _WITHOUT_EXCUSES:
        drawn |= dict.fromkeys(_EXCUSES, 0.0)
    return Faults(**drawn)
