"""Converts tiering statuses to the messages of the embedded server and back."""

from __future__ import annotations

from typing import Any

from sluice.model import TieringStatus
from sluice.model.record_fields import fields_of
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.table_paths import path_of, table_path

_SENT = tuple(
    entry
    for entry in fields_of(TieringStatus)
    if entry.column in pb.PbTableTieringStatus.DESCRIPTOR.fields_by_name
)


def to_message(status: TieringStatus) -> pb.PbTableTieringStatus:
    """The message of a status; fields that are None are absent."""
    values = {entry.column: getattr(status, entry.name) for entry in _SENT}
    return pb.PbTableTieringStatus(table_path=table_path(status.path), **values)


def from_message(entry: pb.PbTableTieringStatus) -> TieringStatus:
    """The status in a message; fields that the server does not report are None."""
    values: dict[str, Any] = {
        field.name: getattr(entry, field.column) if entry.HasField(field.column) else None
        for field in _SENT
    }
    if values["table_id"] is None:
        values["table_id"] = -1
    return TieringStatus(path=path_of(entry.table_path), **values)
