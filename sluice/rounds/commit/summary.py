"""What the summary of a lake snapshot says of the round that has committed it."""

from __future__ import annotations

from collections.abc import Mapping

import sluice
from sluice.model import Claim
from sluice.rounds.values.offsets import TABLE_ID_KEY
from sluice.rounds.values.types import COMMIT_USER, COMMIT_USER_KEY, WRITE_ID_KEY, LakeSnapshot

TIERING_EPOCH_KEY = "sluice.tiering-epoch"
COORDINATOR_EPOCH_KEY = "sluice.coordinator-epoch"
VERSION_KEY = "sluice.version"


def round_identity(claim: Claim) -> dict[str, str]:
    """The entries that identify a round, the same for all of its attempts."""
    return {
        TABLE_ID_KEY: str(claim.table_id),
        TIERING_EPOCH_KEY: str(claim.tiering_epoch),
        COORDINATOR_EPOCH_KEY: str(claim.coordinator_epoch),
    }


def is_of_round(claim: Claim, snapshot: LakeSnapshot | None) -> bool:
    """Whether an attempt of this round has committed the snapshot."""
    return snapshot is not None and round_identity(claim).items() <= snapshot.summary.items()


def attempt_summary(claim: Claim, write_id: str) -> Mapping[str, str]:
    """The entries that all attempts of a round have, and this attempt's own."""
    return {
        COMMIT_USER_KEY: COMMIT_USER,
        **round_identity(claim),
        VERSION_KEY: sluice.__version__,
        WRITE_ID_KEY: write_id,
    }
