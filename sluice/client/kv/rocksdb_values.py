"""Reads the values of a RocksDB folder as Arrow, in key order.

Most folders are read directly from their files. RocksDB itself, which only servers install, reads
folders with unsupported features or damage.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from sluice.client.kv.sst_values import read_sst_values
from sluice.extras import require
from sluice.formats.kv.rocksdb_manifest import NeedsRocksDB

_LOG = logging.getLogger(__name__)


def read_values(folder: Path, name: str, batch_bytes: int) -> Iterator[pa.Array]:
    """Yields all values of the default column family as binary arrays.

    An array has about ``batch_bytes``, plus a thousand values at most.

    :param name: the name of the folder's content in error messages.
    :raises CorruptRecord: the folder is not a RocksDB store, lacks a file, or a file is damaged.
    :raises MissingExtra: RocksDB is needed, and rocksdict is not installed.
    """
    given = 0
    try:
        for array in read_sst_values(folder, batch_bytes):
            given += len(array)
            yield array
    except NeedsRocksDB as error:
        _LOG.debug("RocksDB reads %s after row %d: %s", name, given, error)
        what = f"{name} is damaged, or only RocksDB can read it: {error}"
        require("rocksdict", "server", f"{what}. Reading it with RocksDB")
        from sluice.client.kv.rocksdict_values import read_with_rocksdict

        yield from read_with_rocksdict(folder, name, batch_bytes, given)
