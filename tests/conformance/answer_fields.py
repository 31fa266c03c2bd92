"""The fields of an answer: which are set, and of which type, down to JSON in a field and in a file.

A client may need a field that another one never reads: Fluss's Java client reads ``records`` of
FetchLog before it asks for it (issue 20). So the scenarios ``fields_of_...`` compare the fields of
every answer with those of Apache Fluss 0.9.1, in ``answer_fields.json``. Values do not matter,
except the class of an error.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from sluice.errors import from_code

Shape = str | dict[str, "Shape"] | list["Shape"]
"""A type; the shapes of fields by name; or the distinct shapes of the elements of a list."""

RECORDED = Path(__file__).with_name("answer_fields.json")

_SCALARS = {
    getattr(FieldDescriptor, f"TYPE_{name.upper()}"): name
    for name in ("bool", "bytes", "double", "float", "int32", "int64", "string", "uint32", "uint64")
}
_JSON = {type(None): "null", bool: "boolean", int: "number", float: "number", str: "string"}


def fields_of(answer: Message) -> tuple[str, ...]:
    """One line for each field that is set: its path and type, in the order of the message.

    A list has the lines of an element. If its elements differ, each kind has a number.
    """
    return tuple(_lines("", _of_message(answer))) or ("nothing",)


def fields_of_json(content: bytes) -> tuple[str, ...]:
    """As ``fields_of``, for a JSON document."""
    return tuple(_lines("", _of_json(json.loads(content)))) or ("nothing",)


def differences(recorded: Iterable[str], answered: Iterable[str]) -> tuple[str, ...]:
    """The lines that only one of them has: "-" before a line that is missing, "+" before a new one.

    The order of fields does not matter.
    """
    expected, found = set(recorded), set(answered)
    missing = [f"- {line}" for line in sorted(expected - found)]
    return (*missing, *(f"+ {line}" for line in sorted(found - expected)))


@cache
def recorded_fields() -> Mapping[str, Mapping[str, list[str]]]:
    """Scenario -> question -> the lines of Apache Fluss 0.9.1."""
    found: dict[str, dict[str, list[str]]] = json.loads(RECORDED.read_text())
    return found


def write_recorded(scenario: str, fields: Mapping[str, list[str]]) -> None:
    """Replaces what is recorded of a scenario."""
    content = {**recorded_fields(), scenario: fields}
    RECORDED.write_text(json.dumps(dict(sorted(content.items())), indent=1) + "\n")
    recorded_fields.cache_clear()


def _is_repeated(field: Any) -> bool:
    if hasattr(field, "is_repeated"):
        return bool(field.is_repeated)
    return bool(field.label == field.LABEL_REPEATED)  # before protobuf 6.31


def _of_message(message: Message) -> Shape:
    shape: dict[str, Shape] = {}
    for field, value in message.ListFields():
        if _is_repeated(field):
            shape[field.name] = _distinct(_of_value(field, element) for element in value)
        else:
            shape[field.name] = _of_value(field, value)
    unknown: Any = UnknownFieldSet(message)
    for field in unknown:
        shape[f"field {field.field_number}"] = "unknown"
    return shape


def _of_value(field: FieldDescriptor, value: Any) -> Shape:
    if isinstance(value, Message):
        return _of_message(value)
    if field.name == "error_code":
        return "no error" if value == 0 else type(from_code(value, "")).__name__
    if field.name.endswith("_json"):
        return _of_json(json.loads(value))
    kind = _SCALARS[field.type]
    return f"empty {kind}" if isinstance(value, bytes | str) and not value else kind


def _of_json(value: Any) -> Shape:
    if isinstance(value, dict):
        return {key: _of_json(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return _distinct(map(_of_json, value))
    return _JSON[type(value)]


def _distinct(shapes: Iterable[Shape]) -> list[Shape]:
    found = {json.dumps(shape, sort_keys=True): shape for shape in shapes}
    return [found[key] for key in sorted(found)]


def _lines(path: str, shape: Shape) -> Iterator[str]:
    if isinstance(shape, str):
        yield f"{path}: {shape}"
    elif isinstance(shape, dict):
        if path and not shape:
            yield f"{path}: nothing"
        for name, inner in shape.items():
            yield from _lines(f"{path}.{name}" if path else name, inner)
    else:
        if not shape:
            yield f"{path}[]: no element"
        for number, inner in enumerate(shape, 1):
            yield from _lines(f"{path}[{number if len(shape) > 1 else ''}]", inner)
