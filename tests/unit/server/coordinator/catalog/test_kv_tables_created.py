"""Which tables with a primary key there may be, and what they get by default."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sluice.errors import InvalidConfig, InvalidTable, SluiceError
from sluice.model import AggFunction, Column, DataType, Schema, TableDescriptor, TypeRoot
from sluice.model.types import BIGINT, BOOLEAN, INT, STRING
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from tests.unit.server.kv_support import KEYED, KvCaller
from tests.unit.server.support import Caller


def not_null(data_type: DataType) -> DataType:
    return replace(data_type, nullable=False)


def schema(*types: DataType, key: tuple[str, ...] = ("c0",), **more: Any) -> Schema:
    columns = tuple(Column(f"c{i}", kind, i) for i, kind in enumerate(types))
    return Schema(columns, key, len(columns) - 1, **more)


ID, NAME = not_null(BIGINT), not_null(STRING)
ARRAY = DataType(TypeRoot.ARRAY, element=INT)
VERSION = "table.merge-engine.versioned.ver-column"


def test_defaults_are_those_of_fluss(caller: Caller) -> None:
    info = KvCaller(caller).info
    assert info.descriptor.bucket_keys == ("id",)
    assert dict(info.descriptor.properties) == {
        "table.replication.factor": "1",
        "table.datalake.format": "iceberg",
        "table.kv.format-version": "2",
    }
    caller.drop_table(KvCaller(caller, create=False).path)
    again = KvCaller(caller, properties={"table.merge-engine": "first_row"})
    assert again.info.descriptor.properties["table.delete.behavior"] == "IGNORE"


def test_partition_keys_are_no_bucket_keys(caller: Caller) -> None:
    keyed = schema(NAME, ID, STRING, key=("c0", "c1"))
    info = KvCaller(caller, schema=keyed, partition_keys=("c0",)).info
    assert info.descriptor.bucket_keys == ("c1",)


def test_options_without_effect_are_kept(caller: Caller) -> None:
    """A version column without its merge engine; Fluss 0.9.1 accepts it too."""
    info = KvCaller(caller, properties={VERSION: "n"}).info
    assert info.descriptor.properties[VERSION] == "n"


@pytest.mark.parametrize(
    ("error", "match", "changes"),
    [
        (
            InvalidTable,
            "'x' is not a column of the",
            {"schema": replace(KEYED, primary_key=("x",))},
        ),
        (InvalidTable, "listed twice", {"schema": schema(ID, key=("c0", "c0"))}),
        (InvalidTable, "which a key cannot have", {"schema": schema(not_null(ARRAY))}),
        (InvalidTable, "one key column", {"schema": schema(ID, ID, key=("c0", "c1"))}),
        (
            InvalidTable,
            "'c1' is not one of c0",
            {"schema": schema(ID, INT), "bucket_keys": ("c1",)},
        ),
        (
            InvalidTable,
            "'c1' is not in the primary key",
            {"schema": schema(ID, STRING), "partition_keys": ("c1",)},
        ),
        (
            InvalidTable,
            "needs a column in addition",
            {"schema": schema(NAME), "partition_keys": ("c0",)},
        ),
        (InvalidTable, "BOOLEAN", {"schema": schema(not_null(BOOLEAN))}),
        (
            InvalidTable,
            "one key column",
            {
                "schema": schema(ID, ID, key=("c0", "c1")),
                "bucket_keys": ("c0",),
                "properties": {"table.kv.format-version": "1"},
            },
        ),
        (InvalidConfig, "use 1 or 2", {"properties": {"table.kv.format-version": "3"}}),
        (
            InvalidConfig,
            "INDEXED requires table.kv.format = INDEXED",
            {"properties": {"table.log.format": "INDEXED"}},
        ),
        (InvalidConfig, "FULL, WAL", {"properties": {"table.changelog.image": "HALF"}}),
        (
            InvalidTable,
            "does not support aggregation",
            {"properties": {"table.merge-engine": "aggregation"}},
        ),
        (
            InvalidTable,
            "does not support aggregation",
            {
                "schema": Schema(
                    (Column("c0", ID, 0), Column("c1", INT, 1, None, AggFunction("sum"))),
                    ("c0",),
                    1,
                )
            },
        ),
        (
            InvalidConfig,
            "does not support deletes",
            {"properties": {"table.merge-engine": "first_row", "table.delete.behavior": "ALLOW"}},
        ),
        (InvalidConfig, "not None", {"properties": {"table.merge-engine": "versioned"}}),
        (
            InvalidConfig,
            "'text' has the type STRING",
            {"properties": {"table.merge-engine": "versioned", VERSION: "text"}},
        ),
        (
            InvalidConfig,
            "not 'missing'",
            {"properties": {"table.merge-engine": "versioned", VERSION: "missing"}},
        ),
    ],
)
def test_bad_tables_are_refused(
    caller: Caller, error: type[SluiceError], match: str, changes: dict[str, Any]
) -> None:
    with pytest.raises(error, match=match):
        caller.create_table(descriptor=TableDescriptor(KEYED), **changes)
    assert caller.call(apis.LIST_TABLES, pb.ListTablesRequest(database_name="db")).table_name == []
