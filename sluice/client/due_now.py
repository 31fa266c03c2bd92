"""Makes a table due before its freshness is over, on a Fluss that has no call for that.

A forced finish of the tiering epoch under which a table is Scheduled queues it at once (tried on
Fluss 0.9.1). Sent while somebody has the table, the same report would end that claim. So a
heartbeat asks first how the table stands under that epoch, and only ``Scheduled`` is acted on.
Nobody can claim the table under that epoch any more, since it rises when the table becomes due.
Coordinator epochs prove nothing here: that of Fluss 0.9.1 stays 0 over restarts of the coordinator,
while tiering epochs begin anew.
"""

from __future__ import annotations

import re

from sluice.client.connection import Connection
from sluice.client.reports import entry_of, error_of, only
from sluice.errors import (
    FencedTieringEpoch,
    FlussError,
    TableNotDue,
    TableNotExist,
    UnknownServerError,
)
from sluice.model import Claim, TablePath
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb

_CURRENT = re.compile(r"current epoch (\d+)")
_STATE = re.compile(r"in (Scheduled|Pending) state")
"""What Fluss's errors say of a table, in their own words."""


def make_due(connection: Connection, path: TablePath, table_id: int) -> Claim | None:
    """Has the coordinator hand the table out to whoever claims next.

    :return: what was reported as finished, to have it so; None: the table was due already.
    :raises TableNotDue: somebody has it, which ``ask_again`` False in the details tells (each such
        question counts as a heartbeat of that round); or this Fluss does not say how it stands.
    :raises TableNotExist: the coordinator does not know it as a table to be tiered.
    """
    reply = _send(connection, pb.LakeTieringHeartbeatRequest())
    claim = Claim(table_id, path, 0, reply.coordinator_epoch)  # nobody ever has it under epoch 0
    said = _heartbeat(connection, claim)
    if isinstance(said, FencedTieringEpoch) and (current := _CURRENT.search(said.message)):
        claim = Claim(table_id, path, int(current[1]), reply.coordinator_epoch)
        said = _heartbeat(connection, claim)
        if isinstance(said, FencedTieringEpoch):
            return None  # it has become due meanwhile
    if said is None:
        raise TableNotDue(
            f"table {path} is being tiered (tiering epoch {claim.tiering_epoch}): run this again"
            f" once that has ended, or wait for its freshness by `sluice tier {path} --wait 5min`",
            waits=True,
            ask_again=False,
        )
    if isinstance(said, TableNotExist):
        raise TableNotExist(
            f"the coordinator does not know table {path} (id {table_id}) as one to be tiered: is"
            " table.datalake.enabled true, and was the table created a moment ago?"
        )
    state = _STATE.search(said.message) if isinstance(said, UnknownServerError) else None
    if state is None:
        raise TableNotDue(
            f"table {path} cannot be made due: this Fluss does not say how its tiering stands"
            f" ({said}). It is due when its freshness is over: `sluice tier {path} --wait 5min`",
            waits=True,
        )
    if state[1] == "Pending":
        return None
    return claim if _finish(connection, claim) else None


def _heartbeat(connection: Connection, claim: Claim) -> FlussError | None:
    request = pb.LakeTieringHeartbeatRequest(tiering_tables=[entry_of(claim)])
    reply = _send(connection, request)
    return error_of(only(reply.tiering_table_resp, f"heartbeat of {claim.path}"))


def _finish(connection: Connection, claim: Claim) -> bool:
    """Whether this report has made the table due; False: somebody else's was faster.

    Never sent twice: a coordinator that has started anew may have reached that epoch again.
    """
    request = pb.LakeTieringHeartbeatRequest(
        finished_tables=[entry_of(claim)], force_finished_tables=[claim.table_id]
    )
    reply = _send(connection, request, once=True)
    error = error_of(only(reply.finished_table_resp, f"forced finish of {claim.path}"))
    if error is not None and not isinstance(error, FencedTieringEpoch):
        raise error
    return error is None


def _send(
    connection: Connection, request: pb.LakeTieringHeartbeatRequest, *, once: bool = False
) -> pb.LakeTieringHeartbeatResponse:
    reply: pb.LakeTieringHeartbeatResponse = connection.call_coordinator(
        apis.LAKE_TIERING_HEARTBEAT,
        request,
        lambda reply: reply,
        idempotent=not once,
        retry=not once,
    )
    return reply
