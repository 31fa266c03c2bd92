"""Entries of a LakeTieringHeartbeat request and of its response, one per table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sluice.errors import CorruptMessage, FlussError, from_code
from sluice.model import Claim
from sluice.wire import fluss_api_pb2 as pb

LIVENESS_TIMEOUT_S = 120.0
"""Apache Fluss revokes a claim after this time without a heartbeat, in seconds.

See docs/fluss/tiering.md#timers
"""


def entry_of(claim: Claim) -> pb.PbHeartbeatReqForTable:
    """Returns the entry that names a round in a request."""
    return pb.PbHeartbeatReqForTable(
        table_id=claim.table_id,
        coordinator_epoch=claim.coordinator_epoch,
        tiering_epoch=claim.tiering_epoch,
    )


def error_of(answer: Any) -> FlussError | None:
    """Returns the coordinator's error for a round; None if there is none."""
    if not answer.HasField("error") or answer.error.error_code == 0:
        return None
    return from_code(answer.error.error_code, answer.error.error_message)


def only(answers: Sequence[Any], what: str) -> Any:
    """Returns the single entry of a response about one table.

    :raises CorruptMessage: there is not exactly one entry; the message names ``what``.
    """
    if len(answers) != 1:
        raise CorruptMessage(
            f"{what}: the coordinator returned {len(answers)} results for one table"
        )
    return answers[0]
