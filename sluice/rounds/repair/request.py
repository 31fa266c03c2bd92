"""What a user asks of the round that repairs a table."""

from __future__ import annotations

from dataclasses import dataclass

from sluice.rounds.repair.diagnosis import RepairAction
from sluice.rounds.values.types import OffsetRange, RepairMode


@dataclass(frozen=True, slots=True)
class RepairRequest:
    """How a round repairs a table."""

    mode: RepairMode
    unreadable: OffsetRange | None = None
    """The batch to leave out, or whose bucket to rebuild, if the user named one."""
    accepted: RepairAction | None = None
    """The repair with the losses and risks that the user saw; None: there were none. The round
    commits nothing if there are others."""
