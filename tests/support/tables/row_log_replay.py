"""The log of one bucket, record by record in plain Python: what the lake is held against."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from sluice.formats.log.batch import iter_batches
from sluice.model import DataType
from tests.support.tables.row_by_row import decode_row

_LENGTH = struct.Struct("<i")

Record = tuple[int, int, tuple[Any, ...]]
"""Offset, change type, and the row's values, which are plain: see ``row_by_row``."""


def replayed(log: bytes, types: Sequence[DataType], row_format: str) -> list[Record]:
    """Every record of a fetched log in a row format."""
    found: list[Record] = []
    for header, view in iter_batches(log):
        at = header.records_at
        for number in range(header.record_count):
            (size,) = _LENGTH.unpack_from(view, at)
            row = view[at + _LENGTH.size + 1 : at + _LENGTH.size + size]
            kind = view[at + _LENGTH.size]
            values = tuple(decode_row(row, types, row_format))
            found.append((header.base_offset + number, kind, values))
            at += _LENGTH.size + size
        assert at == header.size
    return found
