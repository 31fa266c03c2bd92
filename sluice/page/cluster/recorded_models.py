"""Models of what is recorded of tiering, made from the one description of its fields."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field, create_model

from sluice.model import TieringRound, TieringStatus
from sluice.model.record_fields import RecordField, fields_of
from sluice.model.types import TypeRoot
from sluice.page.cluster.masked import masked

_TYPES: dict[TypeRoot, type] = {
    TypeRoot.STRING: str,
    TypeRoot.BOOLEAN: bool,
    TypeRoot.INT: int,
    TypeRoot.BIGINT: int,
    TypeRoot.TIMESTAMP_LTZ: int,
}


def is_wide_id(entry: RecordField) -> bool:
    """Whether a field is an id of 64 bits, which a browser's numbers would round."""
    return entry.name.endswith("snapshot_id")


def _model_of(name: str, recorded: type, doc: str) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for entry in fields_of(recorded):
        kind = str if is_wide_id(entry) else _TYPES[entry.data_type.root]
        unit = _unit(entry)
        comment = f"{entry.comment}{unit}"
        if entry.data_type.nullable:
            fields[entry.name] = (kind | None, Field(default=None, description=comment))
        else:
            fields[entry.name] = (kind, Field(description=comment))
    return create_model(name, __doc__=doc, **fields)


def _unit(entry: RecordField) -> str:
    if entry.is_time:
        return " (epoch milliseconds)"
    if entry.is_duration:
        return " (milliseconds)"
    return ""


RecordedStatusModel = _model_of("RecordedStatus", TieringStatus, "The tiering status of a table.")
RecordedRoundModel = _model_of("Round", TieringRound, "One ended round. Null: not known.")


def recorded_values(record: object) -> dict[str, Any]:
    """The described fields of a record by name; 64-bit ids as text. Texts have no secrets."""
    values: dict[str, Any] = {}
    for entry in fields_of(type(record)):
        value = getattr(record, entry.name)
        if isinstance(value, str):
            value = masked(value)
        values[entry.name] = str(value) if is_wide_id(entry) and value is not None else value
    return values
