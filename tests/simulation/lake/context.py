"""What all drivers' accesses to the simulated lake share."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sluice.model import TablePath
from sluice.rounds.values.lake_files import DataFile, LiveFiles
from tests.simulation.actors import Actor
from tests.simulation.faults import Faults
from tests.simulation.lake.stored_lake import SimLake


@dataclass
class LakeContext:
    """The parts of the simulation that drivers' lakes use."""

    rng: random.Random
    lake: SimLake
    faults: Callable[[], Faults]
    note: Callable[[str], None]
    step: Callable[[Actor, str], None]
    send_late: Callable[[str, Callable[[], object]], None]
    on_commit: Callable[[Actor, TablePath], None]
    """Called just before each commit of Sluice's lands."""
    on_expiry: Callable[[Actor, TablePath, Sequence[int], int], None]
    """Called just before snapshots expire, with the time when that was decided."""
    before_commit: Callable[[TablePath, Sequence[DataFile]], None] = lambda *_: None
    """Called before a commit of Sluice's is validated: others may be faster."""
    after_listing: Callable[[TablePath, LiveFiles], None] = lambda *_: None
    """Called when a round has listed live files, and has read none of them yet."""
