"""Checks the checksums of an SST file: each block has one, so no other record of it is needed."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import numpy as np

from sluice.formats.kv import sst_table as sst
from sluice.formats.kv.rocksdb_manifest import Cursor, UnreadableStore

_READ_BYTES = 4 * 1024 * 1024


def check_sst(path: Path) -> None:
    """Reads the whole file, a few MiB at once.

    :raises ValueError: a block is damaged. :raises OSError: the file cannot be read.
    """
    with path.open("rb", buffering=0) as file:
        handle = file.fileno()
        try:
            _check(handle, os.fstat(handle).st_size)
        except UnreadableStore as error:
            raise ValueError(str(error)) from error


def _check(file: int, size: int) -> None:
    tail = _read(file, max(size - sst.FOOTER_SIZE, 0), size)
    footer = sst.read_footer(tail, size)
    metaindex = _block(file, footer, footer.metaindex)
    index, properties = sst.find_parts(footer, metaindex, size)
    for _, value in sst.metadata(metaindex):  # the filter, and more
        cursor = Cursor(value)
        part = sst.Handle(cursor.number(), cursor.number())
        if part not in (index, properties):
            _block(file, footer, part)
    found = sst.read_properties(_block(file, footer, properties))
    starts, sizes = sst.read_index(_block(file, footer, index), found, index.start)
    # the first block of each part that is read at once
    parts = np.flatnonzero(np.diff(starts // _READ_BYTES, prepend=-1)).tolist()
    for first, stop in pairwise([*parts, len(starts)]):
        begin, end = int(starts[first]), int(starts[stop - 1] + sizes[stop - 1])
        data = _read(file, begin, end + sst.BLOCK_TRAILER)
        sst.check_blocks(footer, data, starts[first:stop] - begin, sizes[first:stop], begin)


def _block(file: int, footer: sst.Footer, handle: sst.Handle) -> object:
    return sst.read_block(footer, _read(file, handle.start, handle.end), handle)


def _read(file: int, start: int, end: int) -> bytes:
    data = os.pread(file, end - start, start)
    if len(data) != end - start:
        raise UnreadableStore("the file is truncated")
    return data
