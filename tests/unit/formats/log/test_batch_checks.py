"""What a server asks of a batch: nothing of valid ones, and of others all that a reader needs."""

from __future__ import annotations

import io
import struct
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluice.errors import CorruptRecord
from sluice.formats.log.batch import (
    V0_HEADER_SIZE,
    LogBatchHeader,
    decode_log_batch,
    encode_log_batch,
    iter_batches,
    read_header,
)
from sluice.formats.log.checks import CHECKS, check_arrow_batch, declared_bytes
from sluice.formats.log.lake_values import lake_problem
from sluice.formats.log.log_format import LOG_FORMAT
from sluice.formats.log.projection import project, projection
from sluice.formats.types.types import arrow_schema
from sluice.model import Column, DataType, RowField, Schema, TypeRoot
from sluice.model import types as t
from sluice.server.coordinator.catalog.options import CHOICES
from tests.golden import tables
from tests.golden.files import read
from tests.support.programs.arrow_memory import all_given_back
from tests.support.tables.forged_batches import forged, sealed_again
from tests.unit.formats.nested_strategies import (
    ANY_TYPE,
    array_of,
    make_column,
    map_of,
    row_of,
    typed_batches,
)
from tests.unit.formats.strategies import NESTED, SCALARS

COMPRESSIONS = ("ZSTD", "LZ4_FRAME", "NONE")
LARGE = 1 << 24


def schema_of(types: list[DataType]) -> Schema:
    return Schema(tuple(Column(f"c{i}", of, i) for i, of in enumerate(types)))


def check(batch: bytes, schema: Schema) -> LogBatchHeader:
    """As a server does before it stores a batch."""
    header = read_header(batch)
    if header.size != len(batch):
        raise CorruptRecord("another size")
    if (declared := declared_bytes(batch, header, schema)) > LARGE:
        raise CorruptRecord("too large")
    check_arrow_batch(batch, header, schema, declared)
    return header


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    typed_batches(ANY_TYPE | st.sampled_from(SCALARS + NESTED)),
    st.sampled_from(COMPRESSIONS),
    st.booleans(),
)
def test_no_valid_batch_of_our_writer_is_refused(
    typed: tuple[list[DataType], pa.RecordBatch], compression: str, changelog: bool
) -> None:
    types, batch = typed
    batch = batch.cast(arrow_schema(schema_of(types)))
    kinds = bytes(batch.num_rows) if changelog else None
    encoded = encode_log_batch(batch, 1, compression=compression, change_types=kinds)
    check(encoded, schema_of(types))


@pytest.mark.parametrize("compression", tables.COMPRESSIONS)
@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("log/nullable", tables.NULLABLE),
        ("log/not_null", tables.NOT_NULL),
        ("changelog/keyed_arrow", tables.KEYED),
    ],
)
def test_no_batch_of_pyfluss_and_of_a_real_server_is_refused(
    name: str, schema: Schema, compression: str
) -> None:
    batches = list(iter_batches(read(f"{name}_{compression.lower()}.log")))
    assert sum(header.record_count for header, _ in batches) > 2
    for header, view in batches:
        check_arrow_batch(view, header, schema, declared_bytes(view, header, schema))


@pytest.mark.parametrize("magic", [1, 2])
def test_a_batch_with_statistics_is_not_refused(magic: int) -> None:
    """As Fluss's Java client sends for a table with table.statistics.columns."""
    statistics = b"any statistics"
    base, length, _, stamp, _, *rest = struct.unpack_from("<qibqIhbiqii", PLAIN)
    epoch = (7,) if magic == 2 else ()
    layout = "<qibqiIhbiqiii" if magic == 2 else "<qibqIhbiqiii"
    size = length + struct.calcsize(layout) - V0_HEADER_SIZE + len(statistics)
    head = struct.pack(layout, base, size, magic, stamp, *epoch, 0, *rest, len(statistics))
    assert check(head + statistics + PLAIN[V0_HEADER_SIZE:], SCHEMA).record_count == 3


# ---- what breaks a rule


ROWS = [("n", t.BIGINT.not_null()), ("text", t.STRING), ("ok", t.BOOLEAN)]
SCHEMA = Schema(tuple(Column(name, of, i) for i, (name, of) in enumerate(ROWS)))
BATCH = pa.record_batch(
    [pa.array([1, 2, 3]), pa.array(["a", None, "ccc"]), pa.array([True, None, False])],
    schema=arrow_schema(SCHEMA),
)
SCHEMA_NAMES = [name for name, _ in ROWS]
PLAIN = encode_log_batch(BATCH, 1, compression="NONE")


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (Schema(SCHEMA.columns[:2]), "3 fields in 7 buffers, but its schema has 2 in 5"),
        (
            Schema((*SCHEMA.columns, Column("x", t.INT, 3))),
            "3 fields in 7 buffers, but its schema has 4 in 9",
        ),
        (
            Schema((*SCHEMA.columns[:2], Column("ok", array_of(t.INT), 2))),
            "3 fields in 7 buffers, but its schema has 4 in 9",
        ),
        (Schema((SCHEMA.columns[0], SCHEMA.columns[2], SCHEMA.columns[1])), "columns n, ok, text"),
        (Schema((*SCHEMA.columns[:2], Column("ok", t.BIGINT, 2))), "does not have the columns"),
    ],
)
def test_a_batch_of_another_schema_is_refused(schema: Schema, problem: str) -> None:
    with pytest.raises(CorruptRecord, match=problem):
        check(PLAIN, schema)


def test_records_of_an_empty_batch_are_refused() -> None:
    empty = encode_log_batch(BATCH[:0], 1)
    check(empty, SCHEMA)
    with pytest.raises(CorruptRecord, match="no records, but 5 bytes of them"):
        check(sealed_again(empty + b"12345"), SCHEMA)


def test_buffers_that_two_columns_share_are_refused() -> None:
    """A projection copies each; a small batch could become a large answer."""
    schema = schema_of([t.BIGINT] * 3)
    column = pa.array(range(100))
    batch = pa.record_batch([column] * 3, names=["c0", "c1", "c2"])
    content = bytearray(encode_log_batch(batch, 1, compression="NONE"))
    there = struct.pack("<12q", 0, 0, 0, 800, 800, 0, 800, 800, 1600, 0, 1600, 800)
    shared = struct.pack("<12q", 0, 0, 0, 800, 800, 0, 0, 800, 1600, 0, 800, 800)
    for before, after in ((there, shared), (struct.pack("<q", 2400), struct.pack("<q", 1600))):
        at = content.index(before)
        content[at : at + len(before)] = after
    del content[-800:]
    with pytest.raises(CorruptRecord, match="buffers overlap"):
        check(sealed_again(bytes(content)), schema)


def not_null(of: DataType) -> DataType:
    return replace(of, nullable=False)


NESTED_NOT_NULL = [
    (array_of(t.INT.not_null()), [[1], None, [2, 3]], [[1], None, [None]], "'c0'.'element'"),
    (
        map_of(t.STRING, t.INT.not_null()),
        [[("a", 1)], None],
        [[("a", None)], None],
        "'c0'.'value'",
    ),
    (
        DataType(TypeRoot.ROW, fields=(RowField("x", t.INT.not_null()),)),
        [(1,), None],
        [(None,), None],
        "'c0'.'x'",
    ),
    (array_of(row_of(t.INT).not_null()), [[(None,)]], [[None]], "'c0'.'element'"),
]


@pytest.mark.parametrize(("of", "valid", "wrong", "named"), NESTED_NOT_NULL)
def test_a_null_in_a_nested_not_null_field_is_refused(
    of: DataType, valid: list[object], wrong: list[object], named: str
) -> None:
    """Below a null row there may be anything, also nulls."""
    schema = schema_of([of])
    for values, fails in ((valid, False), (wrong, True)):
        batch = pa.record_batch([make_column(of, values)], names=["c0"])
        encoded = encode_log_batch(batch, 1)
        if fails:
            with pytest.raises(CorruptRecord, match=f"column {named} is NOT NULL"):
                check(encoded, schema)
        else:
            check(encoded, schema)


def test_a_null_in_a_not_null_column_is_refused() -> None:
    columns = [pa.array([1, None]), *(column[:2] for column in BATCH.columns[1:])]
    batch = pa.record_batch(columns, names=SCHEMA_NAMES)
    with pytest.raises(CorruptRecord, match="column 'n' is NOT NULL but contains nulls"):
        check(encode_log_batch(batch, 1), SCHEMA)


@pytest.mark.parametrize("compression", ["ZSTD", "LZ4_FRAME"])
@pytest.mark.parametrize("said", [-2, 0, 1, 79_999, 80_001, 1 << 20])
def test_a_forged_size_of_a_buffer_is_refused_and_keeps_no_memory(
    compression: str, said: int
) -> None:
    schema = schema_of([t.BIGINT])
    batch = pa.record_batch([pa.array([0] * 10_000)], ["c0"])
    content = bytearray(encode_log_batch(batch, 1, compression=compression))
    struct.pack_into("<q", content, content.index(struct.pack("<q", 80_000)), said)
    with all_given_back(), pytest.raises(CorruptRecord):
        check(sealed_again(bytes(content)), schema)


def test_each_log_format_of_the_server_has_a_check() -> None:
    assert set(CHECKS) == set(CHOICES[LOG_FORMAT])


# ---- random changes


def read_in_every_way(batch: bytes, header: LogBatchHeader, schema: Schema) -> None:
    """As our reader, as pyarrow, as a projection, and into a file of the lake."""
    columns = arrow_schema(schema)
    rows = decode_log_batch(batch, header, columns)
    assert rows.num_rows == header.record_count
    if not header.record_count:
        return
    start = header.records_at + (0 if header.append_only else header.record_count)
    theirs = pa.ipc.read_record_batch(pa.py_buffer(batch[start:]), columns)
    theirs.validate(full=True)
    if not lake_problem(theirs):  # such rows are readable, and rounds name them
        pq.write_table(pa.Table.from_batches([theirs]), io.BytesIO())
    for position in range(len(columns)):
        parts = project(memoryview(batch), header, projection(schema, (position,)))
        ((cut, view),) = iter_batches(b"".join(parts))
        decode_log_batch(view, cut, pa.schema([columns.field(position)]))


NEST = schema_of([array_of(row_of(t.STRING, t.INT)), map_of(t.STRING, t.BIGINT), row_of(t.BOOLEAN)])
NEST_ROWS = pa.table(
    [
        make_column(NEST.columns[0].data_type, [[("a", 1), None], None, []]),
        make_column(NEST.columns[1].data_type, [[("k", None), ("l", 2)], [], None]),
        make_column(NEST.columns[2].data_type, [(True,), None, (None,)]),
    ],
    schema=arrow_schema(NEST),
)
TABLES = [
    (NEST, NEST_ROWS),
    (SCHEMA, pa.Table.from_batches([BATCH])),
    (tables.NULLABLE, tables.rows(tables.NULLABLE, nulls=True)),
    (tables.NOT_NULL, tables.rows(tables.NOT_NULL, nulls=False)),
]
SEEDS = [
    (encode_log_batch(rows.to_batches()[0], 1, compression=compression), schema)
    for compression in COMPRESSIONS
    for schema, rows in TABLES
]


def refused_or_read(batch: bytes, schema: Schema) -> bool:
    try:
        header = check(batch, schema)
    except CorruptRecord:
        return False
    read_in_every_way(batch, header, schema)
    return True


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.integers(0, len(SEEDS) - 1), st.data())
def test_a_changed_batch_is_refused_or_read(which: int, data: st.DataObject) -> None:
    batch, schema = SEEDS[which]
    refused_or_read(data.draw(forged(batch)), schema)


@pytest.mark.long
@pytest.mark.parametrize("which", range(len(SEEDS)))
def test_a_changed_batch_is_refused_or_read_many_times(which: int) -> None:
    batch, schema = SEEDS[which]
    outcomes = set()

    @settings(max_examples=3_000, suppress_health_check=list(HealthCheck), deadline=None)
    @given(forged(batch))
    def run(changed: bytes) -> None:
        outcomes.add(refused_or_read(changed, schema))

    run()
    assert outcomes == {False, True}
