"""Makes a table due before its freshness is over, on a Fluss that has no call for that.

A forced finish of the tiering epoch under which a table is Scheduled queues it at once (tried on
Fluss 0.9.1). Sent while somebody has the table, the same report would end that claim. So a
heartbeat asks first how the table stands under that epoch, and only ``Scheduled`` is acted on.
While that coordinator lives, nobody can claim the table under that epoch any more: it rises when
the table becomes due. A restarted one counts tiering epochs anew and may come to the same number.
Its coordinator epoch does not show that, since that of Fluss 0.9.1 stays 0. So an answer is acted
on only while it is young, and only once.
"""

from __future__ import annotations

import re

from sluice.client.connection import Connection
from sluice.client.heartbeat_entries import entry_of, error_of, only
from sluice.clock import Clock, SystemClock
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
_ANSWER_AGE_MAX_S = 1.0
"""So old an answer may be to be acted on: less than a coordinator takes to restart."""
_QUESTIONS_MAX = 5


def make_due(
    connection: Connection, path: TablePath, table_id: int, clock: Clock | None = None
) -> Claim | None:
    """Has the coordinator hand the table out to whoever claims next.

    :return: what was reported as finished, to have it so; None: the table was due already.
    :raises TableNotDue: somebody has it, which ``ask_again`` False in the details tells (each such
        question counts as a heartbeat of that round); or this Fluss does not say how it stands,
        or only after more than a second, each time.
    :raises TableNotExist: the coordinator does not know it as a table to be tiered.
    """
    clock = clock or SystemClock()
    for _ in range(_QUESTIONS_MAX):
        found = _scheduled(connection, path, table_id, clock)
        if found is None:
            return None
        claim, asked = found
        if asked.age_s() <= _ANSWER_AGE_MAX_S:
            return claim if _finish(connection, claim) else None
    raise TableNotDue(
        f"table {path} was not made due: {_QUESTIONS_MAX} times in a row the coordinator's answer"
        f" was more than {_ANSWER_AGE_MAX_S:.0f} s old when it could be used. The coordinator or"
        " this machine is too busy: run this again later",
        waits=True,
    )


class _Instant:
    """When it was made, by both clocks: the monotonic one stands while a machine is suspended."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_s, self._since_ms = clock.monotonic_s(), clock.now_ms()

    def age_s(self) -> float:
        passed_ms = self._clock.now_ms() - self._since_ms
        return max(self._clock.monotonic_s() - self._since_s, passed_ms / 1000)


def _scheduled(
    connection: Connection, path: TablePath, table_id: int, clock: Clock
) -> tuple[Claim, _Instant] | None:
    """The claim under which the table waits for its freshness, and when that was asked.

    None: it is due already. Raises as :func:`make_due`.
    """
    reply = _send(connection, pb.LakeTieringHeartbeatRequest())
    claim = Claim(table_id, path, 0, reply.coordinator_epoch)  # nobody ever has it under epoch 0
    asked = _Instant(clock)
    said = _heartbeat(connection, claim)
    if isinstance(said, FencedTieringEpoch) and (current := _CURRENT.search(said.message)):
        claim = Claim(table_id, path, int(current[1]), reply.coordinator_epoch)
        asked = _Instant(clock)
        said = _heartbeat(connection, claim)
        if isinstance(said, FencedTieringEpoch):
            return None  # it has become due meanwhile
    if said is None:
        raise TableNotDue(
            f"table {path} is being tiered (tiering epoch {claim.tiering_epoch}): run this again"
            " once that has ended; `sluice tier` with --wait 5min waits until the table is due",
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
            f" ({said}). It is due when its freshness is over: `sluice tier` with --wait 5min"
            " waits for that",
            waits=True,
        )
    return None if state[1] == "Pending" else (claim, asked)


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
