"""How commands print recorded fields: cells of tables, and JSON documents."""

from __future__ import annotations

from typing import Any

from sluice.cli.terminal.output import span, when
from sluice.model import TablePath
from sluice.model.record_fields import RecordField, fields_of

LONG_TEXTS = ("stopped", "last_error", "last_error_ms", "reason", "note")
"""These fields are the last columns."""


def headed_fields(recorded: type) -> list[RecordField]:
    """The fields of a recorded class that have a heading, long texts last."""
    shown = [entry for entry in fields_of(recorded) if entry.heading]
    return sorted(shown, key=lambda entry: entry.name in LONG_TEXTS)


def cell(entry: RecordField, value: Any) -> object:
    """A cell of a field: times in UTC, durations with units, ids without thousands marks."""
    if entry.name.endswith("_id") and value is not None:
        return str(value)
    if entry.is_time:
        return when(value)
    if entry.is_duration and value is not None:
        return duration(value)
    return value


def document(path: TablePath, record: object) -> dict[str, Any]:
    """All fields of a record by name, and the path of its table."""
    values = {entry.name: getattr(record, entry.name) for entry in fields_of(type(record))}
    return {"path": str(path), **values}


def age(then_ms: int | None, now_ms: int) -> str | None:
    """``3 min ago``; the server's clock may be a little ahead of this machine's."""
    return None if then_ms is None else f"{span(max(now_ms - then_ms, 0) // 1000, 1)} ago"


def duration(ms: int) -> str:
    """``35 ms``, ``2.7 s``, ``3 min 5 s``."""
    if 0 < ms < 1000:
        return f"{ms} ms"
    return f"{ms / 1000:.1f} s" if 0 < ms < 10_000 else span(ms // 1000, 2)
