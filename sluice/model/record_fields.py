"""The fields of what is recorded of tiering, each described once.

Messages, SQLite, tables of the cluster, SQL, the command line and metrics derive from the
descriptions of :class:`~sluice.model.tiering.TieringStatus` and the other recorded classes.
"""

from __future__ import annotations

from dataclasses import Field, dataclass, field, fields
from functools import cache
from typing import Any

from sluice.model import types as t
from sluice.model.types import DataType, TypeRoot

TIME = t.timestamp_ltz(3)
"""A point in time. Its attribute ends in ``_ms`` (epoch milliseconds), its column in ``_time``."""

_DESCRIPTION = "sluice"


@dataclass(frozen=True, slots=True)
class RecordField:
    """One field of a recorded class."""

    name: str
    """The attribute, and the column in SQLite. Times and durations end in ``_ms``."""
    data_type: DataType
    """The type of its column in tables of the cluster and in SQL."""
    comment: str
    """What it says, for SQL and as the help of the metric."""
    heading: str
    """The heading of its column on the command line; empty: it has none."""
    gauge: bool
    """Whether it is a metric of its table."""
    number: int
    """Its place in SQL and JSON, and its number in the server's message if that has the field."""

    @property
    def is_time(self) -> bool:
        return self.data_type.root is TypeRoot.TIMESTAMP_LTZ

    @property
    def is_duration(self) -> bool:
        """Whether it is a number of milliseconds."""
        return self.name.endswith("_ms") and not self.is_time

    @property
    def column(self) -> str:
        """The name in messages, tables of the cluster and SQL."""
        return f"{self.name.removesuffix('_ms')}_time" if self.is_time else self.name


def described(
    data_type: DataType,
    comment: str,
    *,
    number: int = 0,
    heading: str = "",
    gauge: bool = False,
    default: Any = None,
    required: bool = False,
) -> Any:
    """A dataclass field with a description: see :class:`RecordField`.

    :param required: the field has no default.
    """
    metadata = {_DESCRIPTION: (data_type, comment, heading, gauge, number)}
    return field(metadata=metadata) if required else field(default=default, metadata=metadata)


def fields_of(recorded: type) -> tuple[RecordField, ...]:
    """The described fields of a recorded class, by number; those without one as they are declared.

    Other fields of the class are left out.
    """
    return _fields_of(recorded)


@cache  # every status and row asks for them
def _fields_of(recorded: type) -> tuple[RecordField, ...]:
    found = [_described(entry) for entry in fields(recorded) if _DESCRIPTION in entry.metadata]
    return tuple(sorted(found, key=lambda entry: entry.number))


def _described(entry: Field[Any]) -> RecordField:
    return RecordField(entry.name, *entry.metadata[_DESCRIPTION])
