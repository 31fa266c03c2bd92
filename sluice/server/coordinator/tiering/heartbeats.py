"""Answers the heartbeat of a worker by the rules of :mod:`sluice.statuses`.

See docs/fluss/tiering.md#heartbeat
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sluice.errors import FlussError
from sluice.masking import reason_text
from sluice.model import TieringRound
from sluice.model.round_record import SUCCESSES
from sluice.statuses import TableStatus, TieringStatuses
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.error_codes import to_error_response
from sluice.wire.messages.status_messages import round_from_message
from sluice.wire.messages.table_paths import path_of, table_path

DETAIL_CHARS_MAX = 500
"""Longest text of a worker's details that is stored."""

Report = Callable[..., object]
"""Called with each event and its details."""


def made_safe(request: pb.LakeTieringHeartbeatRequest) -> pb.LakeTieringHeartbeatRequest:
    """A copy of a request without secrets, with bounded texts: any client may have sent it.

    Masking takes time, so the caller does this before it locks the statuses.
    """
    safe = pb.LakeTieringHeartbeatRequest()
    safe.CopyFrom(request)
    for entry in safe.released_tables:
        entry.error_message = reason_text(entry.error_message)
    for entry in safe.failed_tables:  # an old client sends no reason
        entry.error_message = reason_text(entry.error_message)
    safe.worker = reason_text(safe.worker)[:DETAIL_CHARS_MAX]
    for entry in (*safe.failed_tables, *safe.finished_tables):
        if entry.HasField("round"):
            _make_safe(entry.round)
    return safe


def answer_heartbeat(
    statuses: TieringStatuses,
    request: pb.LakeTieringHeartbeatRequest,
    now_ms: int,
    monotonic_ms: int,
    report: Report,
    warn: Report,
) -> pb.LakeTieringHeartbeatResponse:
    """Process failed, tiering and finished tables, then assign one: Fluss's order.

    Released tables are processed before the assignment, so the same call may assign them again.

    :param request: as :func:`made_safe` returns it.
    :param warn: called for a failure whose reason is not that of the failure before.
    """
    response = pb.LakeTieringHeartbeatResponse(
        coordinator_epoch=statuses.coordinator_epoch, claim_timeout_ms=statuses.timeout_ms
    )
    forced = set(request.force_finished_tables)
    for entry in request.failed_tables:
        reason = entry.error_message
        known = statuses.get(entry.table_id)
        with _error_in(response.failed_table_resp.add(table_id=entry.table_id), report):
            changed = statuses.failed(*_round(entry), now_ms, reason or None, _details(entry))
            is_new = changed and known is not None and reason != known.last_error
            table = {} if known is None else {"table": str(known.path)}
            tell = warn if is_new else report
            _report(tell, "tiering failed", entry, changed, **table, reason=reason)
    for entry in request.tiering_tables:
        with _error_in(response.tiering_table_resp.add(table_id=entry.table_id), report):
            statuses.heartbeat(*_round(entry), monotonic_ms)
    for entry in request.finished_tables:
        stats = entry.lake_tiering_stats
        with _error_in(response.finished_table_resp.add(table_id=entry.table_id), report):
            changed = statuses.finished(
                *_round(entry),
                now_ms,
                forced=entry.table_id in forced,
                file_size=stats.file_size if stats.HasField("file_size") else None,
                record_count=stats.record_count if stats.HasField("record_count") else None,
                details=_details(entry),
            )
            _report(report, "tiering finished", entry, changed)
    for entry in request.released_tables:
        with _error_in(response.released_table_resp.add(table_id=entry.table_id), report):
            released = statuses.release(*_round(entry), entry.error_message or None)
            _report(report, "claim released", entry, released, reason=entry.error_message)
    worker = request.worker or None
    if request.list_held and worker is not None:
        for status in statuses.held_by(worker):
            _put(status, response.held_tables.add())
    if request.request_table:
        wanted = {path_of(path) for path in request.requested_tables}
        assigned = statuses.claim(now_ms, monotonic_ms, wanted or None, worker)
        if assigned is not None:
            _put(assigned, response.tiering_table)
            path, epoch = str(assigned.path), assigned.tiering_epoch
            report("table assigned", table=path, tiering_epoch=epoch, worker=worker)
    return response


def _put(status: TableStatus, table: pb.PbLakeTieringTableInfo) -> None:
    table.table_id, table.tiering_epoch = status.table_id, status.tiering_epoch
    table.table_path.CopyFrom(table_path(status.path))


def _round(entry: pb.PbHeartbeatReqForTable) -> tuple[int, int, int]:
    return entry.table_id, entry.coordinator_epoch, entry.tiering_epoch


def _details(entry: pb.PbHeartbeatReqForTable) -> TieringRound | None:
    return round_from_message(entry.round) if entry.HasField("round") else None


def _make_safe(details: pb.PbTieringRound) -> None:
    """Masks what a worker reports of its round: no negative numbers, only outcomes of successes."""
    for field, value in details.ListFields():
        if isinstance(value, str):
            setattr(details, field.name, reason_text(value)[:DETAIL_CHARS_MAX])
        elif field.name not in ("table_id", "lake_snapshot_id"):
            setattr(details, field.name, max(value, 0))
    if details.outcome not in SUCCESSES:
        details.ClearField("outcome")


def _report(
    report: Report, event: str, entry: pb.PbHeartbeatReqForTable, changed: bool, **more: str
) -> None:
    if not changed:
        event = f"{event}: ignored as late or repeated"
    report(event, table_id=entry.table_id, tiering_epoch=entry.tiering_epoch, **more)


@contextmanager
def _error_in(answer: pb.PbHeartbeatRespForTable, report: Report) -> Iterator[None]:
    """Puts an error about one table into that table's response; the call continues."""
    try:
        yield
    except FlussError as error:
        report("report refused", table_id=answer.table_id, error=str(error))
        answer.error.CopyFrom(to_error_response(error))
