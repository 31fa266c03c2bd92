"""Converts tiering statuses and rounds to the messages of the embedded server and back."""

from __future__ import annotations

from typing import Any

from sluice.model import TieringRound, TieringStatus
from sluice.model.record_fields import RecordField, fields_of
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.messages.table_paths import path_of, table_path

_ROUND = tuple(
    entry
    for entry in fields_of(TieringRound)
    if entry.column in pb.PbTieringRound.DESCRIPTOR.fields_by_name
)
_STATUS = tuple(
    entry
    for entry in fields_of(TieringStatus)
    if entry.column in pb.PbTableTieringStatus.DESCRIPTOR.fields_by_name
)


def status_to_message(status: TieringStatus) -> pb.PbTableTieringStatus:
    """The message of a status; fields that are None are absent."""
    return pb.PbTableTieringStatus(table_path=table_path(status.path), **_columns(status, _STATUS))


def status_from_message(entry: pb.PbTableTieringStatus) -> TieringStatus:
    """The status in a message; fields that the server does not report are None."""
    values = _values(entry, _STATUS)
    if values["table_id"] is None:
        values["table_id"] = -1
    return TieringStatus(path=path_of(entry.table_path), **values)


def round_to_message(ended: TieringRound) -> pb.PbTieringRound:
    """The message of a round; fields that are None are absent."""
    return pb.PbTieringRound(**_columns(ended, _ROUND))


def round_from_message(entry: pb.PbTieringRound) -> TieringRound:
    """The round in a message."""
    return TieringRound(**_values(entry, _ROUND))


def _columns(record: object, sent: tuple[RecordField, ...]) -> dict[str, Any]:
    return {entry.column: getattr(record, entry.name) for entry in sent}


def _values(message: Any, sent: tuple[RecordField, ...]) -> dict[str, Any]:
    return {
        entry.name: getattr(message, entry.column) if message.HasField(entry.column) else None
        for entry in sent
    }
