"""Log batches that pyfluss wrote to a real tablet server, read by our decoder."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sluice.errors import CorruptRecord
from sluice.formats.log.batch import check_crc, decode_log_batch, iter_batches, seal
from sluice.formats.types.types import arrow_schema
from tests.golden import tables
from tests.golden.files import columns, read, read_arrow

SCHEMAS = {"nullable": tables.NULLABLE, "not_null": tables.NOT_NULL}
PROJECTED = (0, 4, 9, 12)


@pytest.mark.parametrize("compression", tables.COMPRESSIONS)
@pytest.mark.parametrize("label", SCHEMAS)
def test_batches_hold_what_was_written(label: str, compression: str) -> None:
    schema = SCHEMAS[label]
    as_arrow = tables.rows(schema, nulls=label == "nullable")
    written = [as_arrow, tables.for_python(as_arrow)]
    found = []
    offset = 0
    for header, view in iter_batches(read(f"log/{label}_{compression.lower()}.log")):
        check_crc(view, header)
        assert (header.base_offset, header.magic, header.schema_id) == (offset, 0, 1)
        assert header.append_only
        assert header.writer_id >= 0
        assert header.timestamp_ms > 1_700_000_000_000
        found.append(pa.Table.from_batches([decode_log_batch(view, header, arrow_schema(schema))]))
        offset = header.next_offset
    assert len(found) == 2
    for ours, given in zip(found, written, strict=True):
        assert ours.equals(given)
    theirs = read_arrow(f"log/{label}_{compression.lower()}.arrow")
    assert pa.concat_tables(found).combine_chunks().equals(columns(theirs, schema))


def test_codecs_are_the_ones_asked_for() -> None:
    """Else the three compressions would be one and the same test."""
    magic = {"zstd": b"\x28\xb5\x2f\xfd", "lz4_frame": b"\x04\x22\x4d\x18"}
    for name in ("zstd", "lz4_frame", "none"):
        content = read(f"log/nullable_{name}.log")
        assert {codec: bytes_ in content for codec, bytes_ in magic.items()} == {
            codec: codec == name for codec in magic
        }


def test_projected_batches_decode_and_keep_the_old_checksum() -> None:
    schema = arrow_schema(tables.NULLABLE)
    some = pa.schema([schema.field(position) for position in PROJECTED])
    as_arrow = tables.rows(tables.NULLABLE, nulls=True)
    batches = list(iter_batches(read("log/projected.log")))
    for (header, view), given in zip(batches, (as_arrow, tables.for_python(as_arrow)), strict=True):
        with pytest.raises(CorruptRecord, match="checksum"):
            check_crc(view, header)
        found = pa.Table.from_batches([decode_log_batch(view, header, some)])
        assert found.equals(given.select(PROJECTED))


def test_header_is_written_as_the_client_wrote_it() -> None:
    """``seal`` puts the same header before the same records, but for what the server sets."""
    for header, view in iter_batches(read("log/nullable_none.log")):
        again = seal(
            [bytes(view[header.records_at :])],
            header.schema_id,
            header.attributes,
            header.writer_id,
            header.batch_sequence,
            header.record_count,
        )
        assert again[8:13] == bytes(view[8:13])
        assert again[21:] == bytes(view[21:])
