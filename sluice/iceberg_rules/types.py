"""The Iceberg type of each Fluss type, and which types of the lake take its values.

Types are Iceberg's JSON: a text, or an object for list, map and struct.

See docs/fluss/iceberg.md#types
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from itertools import count
from typing import Any

from sluice.model import Column, DataType, TypeRoot

JsonType = str | dict[str, Any]
_PRIMITIVES = {
    TypeRoot.BOOLEAN: "boolean",
    TypeRoot.TINYINT: "int",
    TypeRoot.SMALLINT: "int",
    TypeRoot.INT: "int",
    TypeRoot.BIGINT: "long",
    TypeRoot.FLOAT: "float",
    TypeRoot.DOUBLE: "double",
    TypeRoot.CHAR: "string",
    TypeRoot.STRING: "string",
    TypeRoot.BINARY: "binary",
    TypeRoot.BYTES: "binary",
    TypeRoot.DATE: "date",
    TypeRoot.TIME: "time",
    TypeRoot.TIMESTAMP: "timestamp",
    TypeRoot.TIMESTAMP_LTZ: "timestamptz",
}
_SPARK = {
    "long": "BIGINT",
    "timestamp": "TIMESTAMP_NTZ",
    "timestamptz": "TIMESTAMP",
}
"""Where Spark SQL has another name for one of Iceberg's types."""
_WIDER = {("int", "long"), ("float", "double")}
"""Promotions that Iceberg allows (table specification, schema evolution)."""
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")


class Fit(Enum):
    """Whether a type of the lake takes the values of a Fluss type."""

    EQUAL = "equal"
    WIDER = "a wider type"
    NO = "another type"


def iceberg_type(data_type: DataType, ids: Iterator[int]) -> JsonType:
    """The Iceberg type of a Fluss type, as in schema JSON; ``ids`` are for nested fields."""
    if data_type.root is TypeRoot.DECIMAL:
        return f"decimal({data_type.precision}, {data_type.scale})"
    if data_type.root in _PRIMITIVES:
        return _PRIMITIVES[data_type.root]
    if data_type.root is TypeRoot.ARRAY:
        assert data_type.element is not None
        return {
            "type": "list",
            "element-id": next(ids),
            "element": iceberg_type(data_type.element, ids),
            "element-required": not data_type.element.nullable,
        }
    if data_type.root is TypeRoot.MAP:
        assert data_type.key is not None
        assert data_type.value is not None
        return {
            "type": "map",
            "key-id": next(ids),
            "key": iceberg_type(data_type.key, ids),
            "value-id": next(ids),
            "value": iceberg_type(data_type.value, ids),
            "value-required": not data_type.value.nullable,
        }
    fields = [
        iceberg_field(next(ids), one.name, one.data_type, one.description, ids)
        for one in data_type.fields
    ]
    return {"type": "struct", "fields": fields}


def iceberg_field(
    field_id: int, name: str, data_type: DataType, doc: str | None, ids: Iterator[int]
) -> dict[str, Any]:
    """A field of a schema or struct."""
    field = {
        "id": field_id,
        "name": name,
        "required": not data_type.nullable,
        "type": iceberg_type(data_type, ids),
    }
    if doc:
        field["doc"] = doc
    return field


def column_type_json(column: Column) -> JsonType:
    """The type of one column that is added to an existing table; Iceberg assigns the ids."""
    return iceberg_type(column.data_type, count(1_000_000))


def fit(fluss: JsonType, lake: JsonType) -> Fit:
    """Whether a type of the lake takes the values of another one, which Fluss would make.

    The lake may have more fields in a struct, if these are optional, and may allow nulls.
    """
    if isinstance(fluss, str) or isinstance(lake, str):
        return _fit_primitive(str(fluss), str(lake))
    if fluss["type"] != lake["type"]:
        return Fit.NO
    if fluss["type"] == "struct":
        return _fit_struct(fluss, lake)
    inside = [
        (fluss[part], lake[part], fluss.get(f"{part}-required"), lake.get(f"{part}-required"))
        for part in (("element",) if fluss["type"] == "list" else ("key", "value"))
    ]
    if any(required and not expected for _, _, expected, required in inside):
        return Fit.NO
    return _worst(fit(one, other) for one, other, _, _ in inside)


def written_type(fluss: JsonType, lake: JsonType) -> JsonType:
    """The lake's type without the fields that only the lake has: what a data file contains."""
    if isinstance(fluss, str) or isinstance(lake, str):
        return lake
    if fluss["type"] == "struct":
        by_name = {one["name"]: one for one in lake["fields"]}
        pairs = [(one, by_name[one["name"]]) for one in fluss["fields"]]
        fields = [{**own, "type": written_type(one["type"], own["type"])} for one, own in pairs]
        return {**lake, "fields": fields}
    parts = ("element",) if fluss["type"] == "list" else ("key", "value")
    return {**lake, **{part: written_type(fluss[part], lake[part]) for part in parts}}


def type_text(kind: JsonType) -> str:
    """A type as text, without ids."""
    if isinstance(kind, str):
        return kind.replace(" ", "")
    if kind["type"] == "list":
        required = " required" * kind["element-required"]
        return f"list<{type_text(kind['element'])}{required}>"
    if kind["type"] == "map":
        required = " required" * kind["value-required"]
        return f"map<{type_text(kind['key'])},{type_text(kind['value'])}{required}>"
    return f"struct<{','.join(field_text(one) for one in kind['fields'])}>"


def field_text(field: Mapping[str, Any]) -> str:
    """A field with its name and type as text."""
    return f"{field['name']} {type_text(field['type'])}{' required' * field['required']}"


def quoted(*path: str) -> str:
    """A column, or a field inside one, as Spark SQL names it."""
    return ".".join(one if _PLAIN.fullmatch(one) else f"`{one.replace('`', '``')}`" for one in path)


def spark_type(kind: JsonType) -> str:
    """A type as Spark SQL writes it."""
    if isinstance(kind, str):
        return _SPARK.get(kind, kind.replace(" ", "").upper())
    if kind["type"] == "list":
        return f"ARRAY<{spark_type(kind['element'])}>"
    if kind["type"] == "map":
        return f"MAP<{spark_type(kind['key'])}, {spark_type(kind['value'])}>"
    fields = [f"{quoted(one['name'])}: {spark_type(one['type'])}" for one in kind["fields"]]
    return f"STRUCT<{', '.join(fields)}>"


def _fit_primitive(fluss: str, lake: str) -> Fit:
    one, other = _DECIMAL.fullmatch(fluss), _DECIMAL.fullmatch(lake)
    if one and other:
        if one[2] != other[2] or int(one[1]) > int(other[1]):
            return Fit.NO
        return Fit.EQUAL if one[1] == other[1] else Fit.WIDER
    if fluss == lake:
        return Fit.EQUAL
    return Fit.WIDER if (fluss, lake) in _WIDER else Fit.NO


def _fit_struct(fluss: dict[str, Any], lake: dict[str, Any]) -> Fit:
    known = {one["name"]: one for one in fluss["fields"]}
    found = {one["name"]: one for one in lake["fields"]}
    if known.keys() - found.keys():
        return Fit.NO
    if any(one["required"] and not known.get(name, one)["required"] for name, one in found.items()):
        return Fit.NO
    if any(found[name]["required"] for name in found.keys() - known.keys()):
        return Fit.NO
    return _worst(fit(one["type"], found[name]["type"]) for name, one in known.items())


def _worst(fits: Iterator[Fit]) -> Fit:
    found = set(fits)
    for one in (Fit.NO, Fit.WIDER):
        if one in found:
            return one
    return Fit.EQUAL
