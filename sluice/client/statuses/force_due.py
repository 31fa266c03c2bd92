"""Makes a table due before its freshness has passed, on a Fluss without a call for that.

A forced finish for the tiering epoch of a Scheduled table queues the table at once (tried on Fluss
0.9.1). While a worker has the table, the same report would end that worker's claim. So a heartbeat
first queries the table's state under that epoch, and the forced finish is sent only for
``Scheduled``. As long as the coordinator runs, no worker can get a claim with that epoch: the epoch
increases when the table becomes due. A restarted coordinator counts tiering epochs from the start
and may reach the same number. The coordinator epoch does not reveal a restart, because Fluss 0.9.1
always sends 0. So a response is used only while it is recent, and only once.

For Fluss, a query under the epoch of an open claim is a heartbeat of that claim: repeated queries
would keep the claim of a dead worker alive. So the caller decides about each of them. The query for
the current epoch itself prolongs nothing, because it is sent under an epoch that no claim has.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sluice.client.connection.connection import Connection
from sluice.client.connection.heartbeat_entries import entry_of, error_of, only
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
"""These patterns match the texts of Fluss's own errors."""
_ANSWER_AGE_MAX_S = 1.0
"""Maximum age of a usable response; a coordinator restart takes longer."""
_QUESTIONS_MAX = 5


def make_due(
    connection: Connection,
    path: TablePath,
    table_id: int,
    before_asking: Callable[[Claim], None],
    when_refused: Callable[[Claim], None],
    clock: Clock | None = None,
) -> Claim | None:
    """Makes the coordinator assign the table to the next worker that claims.

    :param before_asking: called with a claim of the current epoch before the coordinator is asked
        about it; raises an error if that must not be done.
    :param when_refused: called with that claim if the answer shows that no such claim is open.
    :return: the claim that was reported as finished; None if the table was already due.
    :raises TableNotDue: a worker has the table (then the details have its ``tiering_epoch``); or
        this Fluss does not report the table's state; or each response was more than a second old.
    :raises TableNotExist: the coordinator does not list the table as a tiered one.
    """
    clock = clock or SystemClock()
    for _ in range(_QUESTIONS_MAX):
        found = _scheduled(connection, path, table_id, before_asking, when_refused, clock)
        if found is None:
            return None
        claim, asked = found
        if asked.age_s() <= _ANSWER_AGE_MAX_S:
            return claim if _finish(connection, claim) else None
    raise TableNotDue(
        f"table {path} was not made due: {_QUESTIONS_MAX} responses of the coordinator in a row"
        f" took more than {_ANSWER_AGE_MAX_S:.0f} s. The coordinator or this machine is"
        " overloaded: run this again later",
        waits=True,
    )


class _Instant:
    """A point in time by both clocks; a monotonic clock stops while the machine is suspended."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_s, self._since_ms = clock.monotonic_s(), clock.now_ms()

    def age_s(self) -> float:
        passed_ms = self._clock.now_ms() - self._since_ms
        return max(self._clock.monotonic_s() - self._since_s, passed_ms / 1000)


def _scheduled(
    connection: Connection,
    path: TablePath,
    table_id: int,
    before_asking: Callable[[Claim], None],
    when_refused: Callable[[Claim], None],
    clock: Clock,
) -> tuple[Claim, _Instant] | None:
    """Returns the claim with the epoch of the Scheduled table, and when it was queried.

    Returns None if the table is already due. Raises the errors of :func:`make_due`.
    """
    reply = connection.ask_coordinator(
        apis.LAKE_TIERING_HEARTBEAT, pb.LakeTieringHeartbeatRequest(), idempotent=True
    )
    claim = Claim(table_id, path, 0, reply.coordinator_epoch)  # no worker ever has epoch 0
    asked = _Instant(clock)
    said = _heartbeat(connection, claim)
    if isinstance(said, FencedTieringEpoch) and (current := _CURRENT.search(said.message)):
        claim = Claim(table_id, path, int(current[1]), reply.coordinator_epoch)
        before_asking(claim)
        asked = _Instant(clock)
        said = _heartbeat(connection, claim)
        if said is not None:  # a heartbeat that is refused prolongs nothing
            when_refused(claim)
        if isinstance(said, FencedTieringEpoch):
            return None  # it has become due in the meantime
    if said is None:
        raise TableNotDue(
            f"table {path} is being tiered (tiering epoch {claim.tiering_epoch}): run this again"
            " when that round has ended, or use `sluice tier` with --wait 5min to wait until the"
            " table is due",
            waits=True,
            tiering_epoch=claim.tiering_epoch,
        )
    if isinstance(said, TableNotExist):
        raise TableNotExist(
            f"the coordinator does not list table {path} (id {table_id}) as a tiered table: set"
            " table.datalake.enabled to true, or try again if the table was created just now"
        )
    state = _STATE.search(said.message) if isinstance(said, UnknownServerError) else None
    if state is None:
        raise TableNotDue(
            f"table {path} cannot be made due: this Fluss does not report its tiering state"
            f" ({said}). The table becomes due when its freshness has passed: use `sluice tier`"
            " with --wait 5min to wait for that",
            waits=True,
        )
    return None if state[1] == "Pending" else (claim, asked)


def _heartbeat(connection: Connection, claim: Claim) -> FlussError | None:
    request = pb.LakeTieringHeartbeatRequest(tiering_tables=[entry_of(claim)])
    reply = connection.ask_coordinator(apis.LAKE_TIERING_HEARTBEAT, request, idempotent=True)
    return error_of(only(reply.tiering_table_resp, f"heartbeat of {claim.path}"))


def _finish(connection: Connection, claim: Claim) -> bool:
    """Returns whether this report made the table due; False if another report was faster.

    The report is never sent twice: a restarted coordinator may have reached that epoch again.
    """
    request = pb.LakeTieringHeartbeatRequest(
        finished_tables=[entry_of(claim)], force_finished_tables=[claim.table_id]
    )
    reply = connection.ask_coordinator(
        apis.LAKE_TIERING_HEARTBEAT, request, idempotent=False, retry=False
    )
    error = error_of(only(reply.finished_table_resp, f"forced finish of {claim.path}"))
    if error is not None and not isinstance(error, FencedTieringEpoch):
        raise error
    return error is None
