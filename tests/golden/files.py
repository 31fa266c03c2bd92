"""Where the golden bytes are (see scripts/make_golden.py), and what pyfluss read from them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from sluice.formats.types.types import arrow_schema
from sluice.model.table import Schema

DATA = Path(__file__).with_name("data")


def read(name: str) -> bytes:
    return (DATA / name).read_bytes()


def read_arrow(name: str) -> pa.Table:
    with pa.ipc.open_file(pa.py_buffer(read(name))) as reader:
        return reader.read_all()


def columns(table: pa.Table, schema: Schema) -> pa.Table:
    """The schema's columns in the log's Arrow types: pyfluss puts zones on LTZ."""
    target = arrow_schema(schema)
    arrays = [table[field.name].combine_chunks().cast(field.type) for field in target]
    return pa.Table.from_arrays(arrays, schema=target)
