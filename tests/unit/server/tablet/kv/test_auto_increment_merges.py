"""Random partial puts into a table with an auto-increment column, against a model row by row."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.formats.keys.primary_keys import primary_keys
from sluice.formats.kv.kv_batch import KvBatch
from sluice.formats.rows.arrays import encode_rows
from sluice.formats.types.descriptors import descriptor_to_json, schema_to_json
from sluice.formats.types.types import arrow_schema
from sluice.model import TableDescriptor, TableInfo
from sluice.server.coordinator.catalog.entries import TableEntry
from sluice.server.tablet.kv.merge import RowBytesLimit, merge
from sluice.server.tablet.kv.rows import KvTable
from tests.unit.server.kv_support import SYMBOLS
from tests.unit.server.support import PATH
from tests.unit.server.tablet.kv.test_auto_increment import NUMBERED

Row = tuple[Any, ...]
Record = tuple[str, str | None, int | None, bool]
"""Key, a, b, and whether it is a delete."""
KEYS = st.sampled_from(["x", "y", "z"])
RECORDS = st.lists(
    st.tuples(
        KEYS, st.sampled_from([None, "a", "b"]), st.sampled_from([None, 1, 2]), st.booleans()
    ),
    max_size=6,
)
PUTS = st.lists(st.tuples(st.sampled_from([(0,), (0, 2), (0, 3), (0, 2, 3)]), RECORDS), max_size=4)


def table_of(image: str) -> KvTable:
    properties = {"table.changelog.image": image, "table.kv.format-version": "2"}
    descriptor = TableDescriptor(NUMBERED, bucket_keys=("key",), properties=properties)
    info = TableInfo(PATH, 1, 1, replace(descriptor, bucket_count=1), 0, 0)
    schemas = MappingProxyType({1: schema_to_json(NUMBERED)})
    return KvTable(TableEntry(info, descriptor_to_json(descriptor), schemas, MappingProxyType({})))


class Model:
    """What Fluss does, record by record: ``PartialUpdater`` and ``AutoIncrementUpdater``."""

    def __init__(self, image: str) -> None:
        self.image = image
        self.rows: dict[str, Row] = {}
        self.log: list[tuple[str, Row]] = []
        self.next = 1

    def put(self, targets: tuple[int, ...], record: Record) -> None:
        key, a, b, is_delete = record
        given_row = (key, None, None, None) if is_delete else (key, None, a, b)
        old = self.rows.get(key)
        if old is None:
            if not is_delete:
                new = tuple(v if i in targets else None for i, v in enumerate(given_row))
                self.rows[key] = (new[0], self.next, *new[2:])
                self.next += 1
                self.log.append(("+I", self.rows[key]))
            return
        if targets == (0,) and not is_delete:
            return
        self.rows[key] = tuple(
            given_row[i] if i in targets else value for i, value in enumerate(old)
        )
        self.log += [("-U", old)] if self.image == "FULL" else []
        self.log.append(("+U", self.rows[key]))


@settings(max_examples=40)
@given(PUTS, st.sampled_from(["FULL", "WAL"]))
def test_puts_are_merged_as_record_by_record(puts: list[Any], image: str) -> None:
    table, model = table_of(image), Model(image)
    types = [column.data_type for column in NUMBERED.columns]
    loose = pa.schema([field.with_nullable(True) for field in arrow_schema(NUMBERED)])
    stored: dict[bytes, bytes] = {}
    logged: list[tuple[str, Row]] = []
    given_numbers = 0

    def read(keys: list[bytes]) -> list[bytes | None]:
        return [stored.get(key) for key in keys]

    def numbers(count: int) -> np.ndarray:
        nonlocal given_numbers
        first, given_numbers = given_numbers + 1, given_numbers + count
        return np.arange(first, first + count, dtype=np.int64)

    for targets, records in puts:
        for record in records:
            model.put(targets, record)
        batch = pa.RecordBatch.from_pylist(
            [{"key": key, "no": None, "a": a, "b": b} for key, a, b, _ in records], schema=loose
        )
        gone = pa.array([is_delete for *_, is_delete in records], pa.bool_())
        rows = pa.compute.if_else(gone, None, encode_rows(batch, types, "COMPACTED"))
        merged = merge(
            table,
            KvBatch(1, -1, -1, primary_keys(batch, table.hosted.info), rows),
            targets,
            read,
            RowBytesLimit("b", 1 << 20),
            numbers,
            overwrite=False,
        )
        assert merged.deletes == []
        stored.update(merged.puts)
        changed = [] if merged.rows is None else merged.rows.to_pylist()
        logged += [
            (SYMBOLS[kind], tuple(row.values()))
            for kind, row in zip(merged.change_types, changed, strict=True)
        ]
    assert logged == model.log
    found = table.decode(pa.array(list(stored.values()), pa.binary())).to_pylist()
    assert {row["key"]: tuple(row.values()) for row in found} == model.rows
