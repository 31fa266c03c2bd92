"""Entries of a LakeTieringHeartbeat and their answers: one table each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sluice.errors import CorruptMessage, FlussError, from_code
from sluice.model import Claim
from sluice.wire import fluss_api_pb2 as pb


def entry_of(claim: Claim) -> pb.PbHeartbeatReqForTable:
    """Names a round in a request."""
    return pb.PbHeartbeatReqForTable(
        table_id=claim.table_id,
        coordinator_epoch=claim.coordinator_epoch,
        tiering_epoch=claim.tiering_epoch,
    )


def error_of(answer: Any) -> FlussError | None:
    """What the coordinator has against a round; None: nothing."""
    if not answer.HasField("error") or answer.error.error_code == 0:
        return None
    return from_code(answer.error.error_code, answer.error.error_message)


def only(answers: Sequence[Any], what: str) -> Any:
    """The one answer about one table.

    :raises CorruptMessage: there is none, or another one too; says ``what`` was asked.
    """
    if len(answers) != 1:
        raise CorruptMessage(f"{what}: {len(answers)} answers for one table")
    return answers[0]
