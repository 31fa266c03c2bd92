"""Reads broken rows that end where readable memory ends: a read behind them kills the process.

    python -m tests.support.tables.guarded_rows SEED CASES

Prints how many cases were read and how many were refused.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import random
import sys
from typing import Any

import numpy as np
import pyarrow as pa

from sluice.errors import CorruptRecord
from sluice.formats.rows import records
from sluice.formats.rows.arrays import COMPACTED, INDEXED, decode_rows, encode_rows
from sluice.formats.types.types import arrow_type
from sluice.model import DataType, RowField, TypeRoot
from sluice.model import types as t
from tests.golden import tables

_PAGE = mmap.PAGESIZE
_PROT_NONE = 0


class Guarded:
    """A page of memory between two that nobody may touch."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, 3 * _PAGE)
        self._view = ctypes.c_char.from_buffer(self._map)
        self._start = ctypes.addressof(self._view)
        libc = ctypes.CDLL(None, use_errno=True)
        for page in (0, 2):
            place = ctypes.c_void_p(self._start + page * _PAGE)
            if libc.mprotect(place, ctypes.c_size_t(_PAGE), _PROT_NONE):
                raise OSError(ctypes.get_errno(), "mprotect")

    def at_end(self, content: bytes) -> pa.Buffer:
        """The content with the guard right behind it."""
        address = self._start + 2 * _PAGE - len(content)
        ctypes.memmove(address, content, len(content))
        return pa.foreign_buffer(address, len(content), self)

    def at_start(self, content: bytes) -> pa.Buffer:
        """The content with the guard right before it."""
        address = self._start + _PAGE
        ctypes.memmove(address, content, len(content))
        return pa.foreign_buffer(address, len(content), self)


def samples() -> list[tuple[DataType, pa.Array]]:
    """Types of every kind with some values of theirs."""
    found = [(of, tables.column(name, of, values)) for name, (of, values) in tables.VALUES.items()]
    row = DataType(TypeRoot.ROW, fields=(RowField("x", t.BIGINT), RowField("y", t.STRING)))
    nested: list[tuple[DataType, list[Any]]] = [
        (DataType(TypeRoot.ARRAY, element=t.INT), [[1, None, 3], []]),
        (DataType(TypeRoot.ARRAY, element=t.STRING), [["a", "a longer text"], [None]]),
        (DataType(TypeRoot.ARRAY, element=t.timestamp(6)), [[1, None], [2]]),
        (DataType(TypeRoot.ARRAY, element=t.decimal(30, 0)), [[1, None], [2]]),
        (DataType(TypeRoot.MAP, key=t.STRING.not_null(), value=t.INT), [[("a", 1)], []]),
        (row, [{"x": 1, "y": "one"}, {"x": None, "y": None}]),
        (DataType(TypeRoot.ARRAY, element=row), [[{"x": 1, "y": "one"}, None], []]),
    ]
    return found + [(of, pa.array(values, arrow_type(of))) for of, values in nested]


def case(random_: random.Random, memory: Guarded, known: list[tuple[DataType, pa.Array]]) -> bool:
    """Whether some row, broken in a few places, could be read all the same."""
    chosen = [random_.choice(known) for _ in range(random_.randint(1, 4))]
    types = [of for of, _ in chosen]
    row_format = random_.choice((COMPACTED, INDEXED))
    columns = [array.slice(random_.randrange(len(array)), 1) for _, array in chosen]
    batch = pa.RecordBatch.from_arrays(columns, names=[str(i) for i in range(len(types))])
    content = bytearray(encode_rows(batch, types, row_format)[0].as_py())
    for _ in range(random_.randint(0, 3)):
        content[random_.randrange(len(content))] = random_.choice((0, 1, 127, 128, 255, 64))
    broken = bytes(content[: len(content) - random_.randint(0, 2)])
    place = random_.choice((memory.at_end, memory.at_start))
    offsets = pa.py_buffer(np.array([0, len(broken)], np.int32))
    rows = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, place(broken)])
    with contextlib.suppress(CorruptRecord):
        records.split_keys(records.find("any", memoryview(place(broken)), random_.randint(0, 2)))
    try:
        for array in decode_rows(rows, types, row_format):
            array.validate(full=True)
    except CorruptRecord:
        return False
    return True


def main(seed: int, cases: int) -> None:
    random_, memory, known = random.Random(seed), Guarded(), samples()
    read = sum(case(random_, memory, known) for _ in range(cases))
    print(f"read {read}, refused {cases - read}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
