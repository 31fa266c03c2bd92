"""A writer of a table whose server numbers new rows: it leaves the number out."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from sluice.client import Client
from sluice.errors import DeletionDisabled, InvalidTargetColumn
from sluice.model import Column, Schema, TableDescriptor
from sluice.model import types as t
from tests.support.tables.keyed_orders import PATH, changelog, create, tuples

NUMBERED = Schema(
    (
        Column("key", t.STRING.not_null(), 0),
        Column("no", t.INT, 1),
        Column("a", t.STRING, 2),
        Column("b", t.INT, 3),
    ),
    ("key",),
    3,
    auto_increment=("no",),
)
TABLE = TableDescriptor(NUMBERED, bucket_count=1)


def rows(*keys: str, a: str | None = "a") -> pa.Table:
    return pa.table({"key": list(keys), "a": pa.array([a] * len(keys), pa.string())})


def test_rows_are_numbered_and_changed(client: Client) -> None:
    create(client, TABLE)
    with client.kv_writer(PATH) as writer:
        writer.upsert(rows("x", "y"))
        writer.upsert(rows("x", "z", a="b"))
    assert changelog(client) == [
        ("+I", ("x", 1, "a", None)),
        ("+I", ("y", 2, "a", None)),
        ("-U", ("x", 1, "a", None)),
        ("+U", ("x", 1, "b", None)),
        ("+I", ("z", 3, "b", None)),
    ]
    assert tuples(client.lookup(PATH, pa.table({"key": ["x", "y"]}))) == [
        ("x", 1, "b", None),
        ("y", 2, "a", None),
    ]


def test_numbered_rows_are_not_deleted(client: Client) -> None:
    create(client, TABLE)
    with client.kv_writer(PATH) as writer:
        writer.upsert(rows("x"))
        for delete in (writer.delete, writer.check_delete):
            with pytest.raises(DeletionDisabled, match="never deletes a row that has a number"):
                delete(pa.table({"key": ["x"]}))
    assert changelog(client) == [("+I", ("x", 1, "a", None))]


def test_some_columns_of_numbered_rows(client: Client) -> None:
    create(client, TABLE)
    with client.kv_writer(PATH, ["key", "b"]) as writer:
        writer.upsert(pa.table({"key": ["x"], "b": [1]}))
        writer.delete(pa.table({"key": ["x"]}))  # of these columns only
    assert changelog(client)[-1] == ("+U", ("x", 1, None, None))


def test_nobody_gives_numbers(client: Client) -> None:
    create(client, TABLE)
    with pytest.raises(InvalidTargetColumn, match="the server numbers column 'no'"):
        client.kv_writer(PATH, ["key", "no"])
    with client.kv_writer(PATH) as writer:
        data = rows("x").append_column("no", pa.array([7], pa.int32()))
        with pytest.raises(InvalidTargetColumn, match="'no': leave it out of the data"):
            writer.upsert(data)
        with pytest.raises(InvalidTargetColumn, match="'no': leave it out of the data"):
            writer.check_upsert(data)
        assert writer.check_upsert(rows("x")) == {()}
    assert changelog(client) == []


def test_a_number_that_is_not_null_cannot_be_left_out(client: Client) -> None:
    columns = tuple(
        replace(c, data_type=t.INT.not_null()) if c.name == "no" else c for c in NUMBERED.columns
    )
    create(client, replace(TABLE, schema=replace(NUMBERED, columns=columns)))
    with pytest.raises(InvalidTargetColumn, match="'no' is NOT NULL, so Fluss takes no rows"):
        client.kv_writer(PATH)
