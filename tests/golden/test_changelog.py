"""Changelogs that a real tablet server wrote, in Java, for the upserts and deletes of pyfluss."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from sluice.formats.log.batch import (
    change_types,
    check_crc,
    decode_log_batch,
    iter_batches,
    set_offset_and_timestamp,
)
from sluice.formats.log.row_log import RowLog, parse_row_log_batch
from sluice.formats.rows.arrays import COMPACTED, decode_rows, encode_rows
from sluice.formats.types.types import arrow_schema
from sluice.model import ChangeType, TableDescriptor, TableInfo, TablePath
from tests.golden import tables
from tests.golden.files import columns, read, read_arrow
from tests.support.network.fetch_server import BUCKET, reading
from tests.support.tables.row_by_row import row_log_batch

CHANGES = ["+A", "+I", "-U", "+U", "-D"]
SCHEMA = tables.KEYED
TYPES = [column.data_type for column in SCHEMA.columns]


@pytest.mark.parametrize("compression", tables.COMPRESSIONS)
def test_arrow_changelog_is_read_as_pyfluss_reads_it(compression: str) -> None:
    theirs = read_arrow(f"changelog/keyed_arrow_{compression.lower()}.arrow")
    found, changes, offsets, empty = [], [], [], 0
    for header, view in iter_batches(read(f"changelog/keyed_arrow_{compression.lower()}.log")):
        check_crc(view, header)
        batch = decode_log_batch(view, header, arrow_schema(SCHEMA))
        found.append(pa.Table.from_batches([batch]))
        changes += [CHANGES[change] for change in change_types(view, header) or b""]
        offsets += range(header.base_offset, header.base_offset + header.record_count)
        empty += header.record_count == 0
    assert empty == 1, "the delete of an unknown key takes an offset and has no record"
    assert changes == theirs["_change"].to_pylist()
    assert set(changes) == {"+I", "-U", "+U", "-D"}
    assert offsets == theirs["_offset"].to_pylist()
    assert pa.concat_tables(found).combine_chunks().equals(columns(theirs, SCHEMA))


@pytest.mark.parametrize("name", ["arrow_zstd", "arrow_lz4_frame", "arrow_none", "compacted_none"])
def test_the_client_reads_each_row_with_its_change(name: str) -> None:
    theirs = read_arrow("changelog/keyed_arrow_zstd.arrow")
    log = read(f"changelog/keyed_{name}.log")
    end = list(iter_batches(log))[-1][0].next_offset
    properties = {"table.log.format": name.partition("_")[0].upper()}
    info = TableInfo(
        TablePath("golden", name), 1, 1, TableDescriptor(SCHEMA, properties=properties), 0, 0
    )

    def answer(asked: Any, bucket: Any) -> None:
        bucket.records = b"".join(
            bytes(view)
            for header, view in iter_batches(log)
            if header.next_offset > asked.fetch_offset
        )

    with reading(answer, info) as reader:
        found = list(reader.read(BUCKET, 0, end))
    changes = [kind for each in found for kind in each.change_types.to_pylist()]
    assert [ChangeType(kind).symbol for kind in changes] == theirs["_change"].to_pylist()
    rows = pa.Table.from_batches([each.batch for each in found]).combine_chunks()
    assert rows.equals(columns(theirs, SCHEMA))


def rows_of(log: RowLog) -> pa.RecordBatch:
    arrays = decode_rows(log.rows, TYPES, COMPACTED)
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(SCHEMA))


def test_changelog_of_compacted_rows_holds_the_same() -> None:
    theirs = read_arrow("changelog/keyed_arrow_zstd.arrow")
    changes, found = [], []
    for header, view in iter_batches(read("changelog/keyed_compacted_none.log")):
        check_crc(view, header)
        log = parse_row_log_batch(view, header)
        changes += [CHANGES[change] for change in log.change_types.tolist()]
        found.append(rows_of(log))
    assert changes == theirs["_change"].to_pylist()
    assert pa.Table.from_batches(found).combine_chunks().equals(columns(theirs, SCHEMA))


def test_changelog_of_compacted_rows_is_written_byte_for_byte() -> None:
    for header, view in iter_batches(read("changelog/keyed_compacted_none.log")):
        log = parse_row_log_batch(view, header)
        again = bytearray(
            row_log_batch(
                RowLog(log.change_types, encode_rows(rows_of(log), TYPES, COMPACTED)),
                header.schema_id,
                writer_id=header.writer_id,
                batch_sequence=header.batch_sequence,
            )
        )
        set_offset_and_timestamp(again, header.base_offset, header.timestamp_ms)
        assert again == view
