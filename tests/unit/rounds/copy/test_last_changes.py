"""The last change of each key, against dictionaries: every change type, both changelog images, keys
of all types, in memory and spilled.
"""

from __future__ import annotations

import datetime as dt
import math
import random
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.errors import CorruptRecord, UnsupportedType
from sluice.model import COMMIT_TIMESTAMP, LOG_OFFSET, ChangeType
from sluice.rounds.copy.last_changes import LastChanges
from sluice.rounds.values.types import LogRecords

SPILLS_AT_ONCE = 1
NEVER_SPILLS = 1 << 30
Key = tuple[Any, ...]
Change = tuple[ChangeType, Key, str | None]

KEY_TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "bool": (pa.bool_(), st.booleans()),
    "tinyint": (pa.int8(), st.integers(-128, 127)),
    "smallint": (pa.int16(), st.integers(-5, 5)),
    "int": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "bigint": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "float": (pa.float32(), st.floats(width=32, allow_nan=False)),
    "double": (pa.float64(), st.floats(allow_nan=False)),
    "decimal": (pa.decimal128(20, 2), st.decimals(-(10**17), 10**17, places=2)),
    "string": (pa.string(), st.text(max_size=40)),
    "long string": (pa.string(), st.text("ab", min_size=200, max_size=220)),
    "char": (pa.string(), st.sampled_from(["a", "b", "a ", " a", ""])),
    "binary": (pa.binary(), st.binary(max_size=20)),
    "fixed": (pa.binary(5), st.binary(min_size=5, max_size=5)),
    "fixed 16": (pa.binary(16), st.binary(min_size=16, max_size=16)),
    "date": (pa.date32(), st.dates()),
    "time": (pa.time64("us"), st.times()),
    "timestamp": (pa.timestamp("us"), st.datetimes(dt.datetime(1677, 9, 22))),
    "timestamp_ltz": (
        pa.timestamp("ms", tz="UTC"),
        st.integers(0, 2**40).map(lambda s: dt.datetime.fromtimestamp(s // 1000, dt.UTC)),
    ),
}


@st.composite
def keyed(draw: st.DrawFn) -> tuple[pa.Schema, list[Key]]:
    """A schema whose key has one to three columns of any type, and a few keys, no two the same."""
    kinds = [
        KEY_TYPES[draw(st.sampled_from(sorted(KEY_TYPES)))] for _ in range(draw(st.integers(1, 3)))
    ]
    values = st.tuples(*(strategy for _, strategy in kinds))
    keys = draw(st.lists(values, min_size=1, max_size=12, unique_by=bits))
    fields = [pa.field(f"k{i}", kind, nullable=False) for i, (kind, _) in enumerate(kinds)]
    # the key need not come first, nor in order
    return pa.schema([pa.field("v", pa.string()), *reversed(fields)]), keys


def bits(key: Key) -> Key:
    """Fluss knows keys by their bytes: 0.0 and -0.0 are two."""
    return tuple((v, math.copysign(1, v)) if isinstance(v, float) else v for v in key)


def key_names(schema: pa.Schema) -> list[str]:
    return [f"k{i}" for i in range(len(schema) - 1)]


def records(schema: pa.Schema, changes: Sequence[Change], base_offset: int) -> LogRecords:
    columns = [pa.array([value for _, _, value in changes], pa.string())]
    for name in schema.names[1:]:
        column = [key[int(name[1:])] for _, key, _ in changes]
        columns.append(pa.array(column, schema.field(name).type))
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    kinds = pa.array([kind for kind, _, _ in changes], pa.uint8())
    end = base_offset + max(1, len(changes))
    return LogRecords(batch, base_offset, end, 1000 + base_offset, 100, kinds)


def batched(schema: pa.Schema, log: Sequence[Change], rng: random.Random) -> Iterator[LogRecords]:
    """Batches of a few changes, some without any; a -U and its +U lie in one."""
    offset, at = 7, 0
    while at < len(log):
        end = at + rng.randrange(8)
        while at < end < len(log) and log[end - 1][0] is ChangeType.UPDATE_BEFORE:
            end += 1
        yield (found := records(schema, log[at:end], offset))
        offset, at = found.next_offset, min(end, len(log))


def rows_of(schema: pa.Schema, data: pa.Table | pa.RecordBatch) -> list[tuple[Key, Any]]:
    """Key and value of each row; ``v`` is None where there is no such column."""
    keys = list(zip(*(data.column(n).to_pylist() for n in key_names(schema)), strict=True))
    values = data.column("v").to_pylist() if "v" in data.schema.names else [None] * len(keys)
    return [(bits(key), value) for key, value in zip(keys, values, strict=True)]


def reduced(
    schema: pa.Schema,
    batches: Iterable[LogRecords],
    limit: int,
    snapshot: Sequence[pa.RecordBatch] = (),
    known_empty: bool = False,
) -> tuple[dict[Key, tuple[str, int, int]], set[Key], list[tuple[Key, Any]]]:
    """Upserts as key -> value, offset, timestamp (ms); keys of deletes; what the snapshot keeps."""
    upserts: dict[Key, tuple[str, int, int]] = {}
    deletes: set[Key] = set()
    with (
        tempfile.TemporaryDirectory() as folder,
        LastChanges(
            schema,
            key_names(schema),
            memory_limit_bytes=limit,
            spill_dir=Path(folder),
            known_empty=known_empty,
        ) as changes,
    ):
        for batch in batches:
            changes.add(batch)
        for part in changes.parts():
            assert part.upserts.schema.names == [*schema.names, LOG_OFFSET, COMMIT_TIMESTAMP]
            assert part.delete_keys.schema.names == key_names(schema)
            part.upserts.validate(full=True)
            offsets = part.upserts.column(LOG_OFFSET).to_pylist()
            assert offsets == sorted(offsets)
            stamps = part.upserts.column(COMMIT_TIMESTAMP).cast(pa.int64()).to_pylist()
            for (key, value), offset, stamp in zip(
                rows_of(schema, part.upserts), offsets, stamps, strict=True
            ):
                assert key not in upserts
                upserts[key] = value, offset, stamp // 1000
            gone = [key for key, _ in rows_of(schema, part.delete_keys)]
            assert len({*gone, *deletes}) == len(gone) + len(deletes)
            deletes.update(gone)
        kept = [row for rows in changes.unchanged_rows(snapshot) for row in rows_of(schema, rows)]
    return upserts, deletes, kept


@given(
    keyed(),
    st.lists(st.tuples(st.sampled_from(ChangeType), st.integers(0, 11)), max_size=60),
    st.sampled_from([SPILLS_AT_ONCE, 5_000, NEVER_SPILLS]),
    st.randoms(use_true_random=False),
)
def test_any_changes_against_a_dictionary(
    keyed: tuple[pa.Schema, list[Key]],
    drawn: list[tuple[ChangeType, int]],
    limit: int,
    rng: random.Random,
) -> None:
    schema, keys = keyed
    log = [(kind, keys[k % len(keys)], f"v{i}") for i, (kind, k) in enumerate(drawn)]
    batches = list(batched(schema, log, rng))
    at = [(b.base_offset + i, b.timestamp_ms) for b in batches for i in range(b.batch.num_rows)]
    last = {bits(key): (kind, (v, *at[i])) for i, (kind, key, v) in enumerate(log)}
    first = {bits(key): kind for kind, key, _ in reversed(log)}
    rows = (ChangeType.APPEND_ONLY, ChangeType.INSERT, ChangeType.UPDATE_AFTER)
    some = [records(schema, [(ChangeType.INSERT, key, "s")], 0).batch for key in keys]

    upserts, deletes, kept = reduced(schema, batches, limit, some)

    assert upserts == {key: row for key, (kind, row) in last.items() if kind in rows}
    assert deletes == {key for key, kind in first.items() if kind is not ChangeType.INSERT}
    assert Counter(kept) == Counter((bits(key), "s") for key in keys if bits(key) not in last)


def changelog(
    lake: dict[Key, str], operations: Sequence[tuple[Key, str | None]], image: str
) -> Iterator[Change]:
    """The changelog of puts (docs/fluss/kv-batches.md#changelog); updates ``lake`` with them."""
    for key, value in operations:
        known = bits(key)
        old = lake.pop(known, None)
        if value is None and old is not None:
            yield ChangeType.DELETE, key, old
        if value is None:
            continue
        lake[known] = value
        if image == "WAL":
            yield ChangeType.UPDATE_AFTER, key, value
        elif old is None:
            yield ChangeType.INSERT, key, value
        else:
            yield ChangeType.UPDATE_BEFORE, key, old
            yield ChangeType.UPDATE_AFTER, key, value


@given(
    keyed(),
    st.lists(st.tuples(st.integers(0, 11), st.booleans()), max_size=80),
    st.integers(0, 80),
    st.sampled_from(["FULL", "WAL"]),
    st.booleans(),
    st.sampled_from([SPILLS_AT_ONCE, 5_000, NEVER_SPILLS]),
    st.randoms(use_true_random=False),
)
def test_a_lake_that_takes_them_equals_the_table(
    keyed: tuple[pa.Schema, list[Key]],
    drawn: list[tuple[int, bool]],
    tiered: int,
    image: str,
    from_snapshot: bool,
    limit: int,
    rng: random.Random,
) -> None:
    """The lake has the table as it was after some operations, or a snapshot has and the lake is
    empty; then come the others.
    """
    schema, keys = keyed
    operations = [
        (keys[k % len(keys)], f"v{i}" if put else None) for i, (k, put) in enumerate(drawn)
    ]
    table: dict[Key, str] = {}
    list(changelog(table, operations[:tiered], image))
    lake = dict(table)
    snapshot = [
        records(schema, [(ChangeType.INSERT, key, lake[bits(key)])], 0).batch
        for key in keys
        if bits(key) in lake
    ]
    log = list(changelog(table, operations[tiered:], image))

    upserts, deletes, kept = reduced(
        schema, batched(schema, log, rng), limit, snapshot, known_empty=from_snapshot
    )

    if from_snapshot:
        assert not deletes
        assert len(kept) == len(dict(kept))
        lake = dict(kept)
    assert not deletes - lake.keys() or image == "WAL"  # of a key that is there, but for WAL
    lake = {key: value for key, value in lake.items() if key not in deletes}
    assert not upserts.keys() & lake.keys()  # no key twice
    assert lake | {key: value for key, (value, _, _) in upserts.items()} == table


SCHEMA = pa.schema([("v", pa.string()), ("k0", pa.int64())])


def test_an_update_whose_halves_have_different_keys_is_two_changes() -> None:
    log = [(ChangeType.UPDATE_BEFORE, (1,), "a"), (ChangeType.UPDATE_AFTER, (2,), "b")]
    upserts, deletes, _ = reduced(SCHEMA, [records(SCHEMA, log, 0)], NEVER_SPILLS)
    assert upserts == {(2,): ("b", 1, 1000)}
    assert deletes == {(1,), (2,)}


def test_a_nan_is_a_key_like_any_other() -> None:
    schema = pa.schema([("v", pa.string()), ("k0", pa.float64()), ("k1", pa.int32())])
    nan = math.nan
    log = [(ChangeType.INSERT, (nan, 1), "a"), (ChangeType.UPDATE_AFTER, (nan, 1), "b")]
    upserts, deletes, _ = reduced(schema, [records(schema, log, 0)], NEVER_SPILLS)
    assert [value for value, _, _ in upserts.values()] == ["b"]
    assert not deletes


@pytest.mark.parametrize("limit", [SPILLS_AT_ONCE, NEVER_SPILLS])
def test_a_window_without_changes_has_no_part_and_keeps_the_snapshot(limit: int) -> None:
    snapshot = [records(SCHEMA, [(ChangeType.INSERT, (1,), "s")], 0).batch]
    empty = records(SCHEMA, [], 3)
    assert reduced(SCHEMA, [empty], limit, snapshot) == ({}, set(), [((1,), "s")])


def test_batches_that_are_slices_and_have_nested_columns() -> None:
    schema = pa.schema(
        [
            ("v", pa.string()),
            ("k0", pa.string()),
            ("items", pa.list_(pa.int32())),
            ("entries", pa.map_(pa.string(), pa.int32())),
            ("part", pa.struct([("a", pa.int32())])),
        ]
    )
    rows = [
        {"v": f"v{i}", "k0": f"k{i % 5}", "items": [i], "entries": [("e", i)], "part": {"a": i}}
        for i in range(20)
    ]
    whole = pa.RecordBatch.from_pylist(rows, schema)
    kinds = pa.array([ChangeType.INSERT] * 5 + [ChangeType.UPDATE_AFTER] * 15, pa.uint8())
    with tempfile.TemporaryDirectory() as folder:
        for limit in (SPILLS_AT_ONCE, NEVER_SPILLS):
            with LastChanges(
                schema, ["k0"], memory_limit_bytes=limit, spill_dir=Path(folder)
            ) as changes:
                for at in range(1, 20, 3):
                    part, some = whole.slice(at, 3), kinds.slice(at, 3)
                    changes.add(LogRecords(part, at, at + part.num_rows, 5, 1, some))
                found = [row for p in changes.parts() for row in p.upserts.to_pylist()]
            found.sort(key=lambda row: int(row.pop(LOG_OFFSET)))
            assert [row.pop(COMMIT_TIMESTAMP).timestamp() for row in found] == [0.005] * 5
            assert found == rows[15:]


def test_a_key_column_that_no_table_has_is_refused(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.list_(pa.int32()))])
    with pytest.raises(UnsupportedType, match="key column k: type list"):
        LastChanges(schema, ["k"], memory_limit_bytes=1, spill_dir=tmp_path)


@pytest.mark.parametrize(
    ("kinds", "key", "text"),
    [
        (None, 1, "offset 4 does not have a change type for each of its 1 rows"),
        (
            pa.array([], pa.uint8()),
            1,
            "offset 4 does not have a change type for each of its 1 rows",
        ),
        (pa.array([5], pa.uint8()), 1, "offset 4 has the unknown change type 5"),
        (pa.array([1], pa.uint8()), None, "key column k0: 1 rows have a null in it"),
    ],
)
def test_records_that_cannot_be_right(
    tmp_path: Path, kinds: pa.UInt8Array | None, key: int | None, text: str
) -> None:
    batch = pa.RecordBatch.from_arrays(
        [pa.array(["a"]), pa.array([key], pa.int64())], schema=SCHEMA
    )
    with (
        LastChanges(SCHEMA, ["k0"], memory_limit_bytes=1, spill_dir=tmp_path) as changes,
        pytest.raises(CorruptRecord, match=text),
    ):
        changes.add(LogRecords(batch, 4, 5, 0, 1, kinds))


def test_decimals_are_compared_as_values(tmp_path: Path) -> None:
    schema = pa.schema([("v", pa.string()), ("k0", pa.decimal128(10, 2))])
    log = [
        (ChangeType.INSERT, (Decimal("1.5"),), "a"),
        (ChangeType.UPDATE_AFTER, (Decimal("1.50"),), "b"),
        (ChangeType.INSERT, (Decimal("-1.50"),), "c"),
    ]
    upserts, _, _ = reduced(schema, [records(schema, log, 0)], NEVER_SPILLS)
    assert {key[0]: value for key, (value, _, _) in upserts.items()} == {
        Decimal("1.50"): "b",
        Decimal("-1.50"): "c",
    }
