"""The tiering statuses and rounds that a coordinator itself reports."""

from __future__ import annotations

from sluice.client.connection.connection import Connection
from sluice.model import TablePath, TieringRound, TieringStatus
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.messages.status_messages import round_from_message, status_from_message
from sluice.wire.messages.table_paths import table_path


def statuses_of_coordinator(
    connection: Connection, path: TablePath | None = None
) -> list[TieringStatus]:
    """Returns the statuses of one table, or of all lake tables.

    :raises UnsupportedVersion: the coordinator keeps no statuses, as in Apache Fluss.
    """
    request = pb.ListTieringStatusesRequest()
    if path is not None:
        request.table_path.CopyFrom(table_path(path))
    reply = connection.ask_coordinator(apis.LIST_TIERING_STATUSES, request)
    return [status_from_message(entry) for entry in reply.tiering_statuses]


def rounds_of_coordinator(
    connection: Connection, path: TablePath, limit: int
) -> list[TieringRound]:
    """Returns the newest ended rounds of a table, the newest first.

    :raises UnsupportedVersion: the coordinator keeps no rounds, as in Apache Fluss.
    """
    request = pb.ListTieringRoundsRequest(table_path=table_path(path), limit=limit)
    reply = connection.ask_coordinator(apis.LIST_TIERING_ROUNDS, request)
    return [round_from_message(entry) for entry in reply.rounds]
