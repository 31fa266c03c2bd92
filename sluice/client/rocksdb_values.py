"""The values of a RocksDB folder as Arrow, in the order of their keys.

Most folders are read from their files. What is not known there, or is damaged, is left to RocksDB,
which only servers install.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from sluice.client.sst_values import read_sst_values
from sluice.extras import require
from sluice.formats.rocksdb_manifest import NeedsRocksDB

_LOG = logging.getLogger(__name__)


def read_values(folder: Path, name: str, batch_bytes: int) -> Iterator[pa.Array]:
    """All values of the default column family, as binary arrays.

    An array has at most about ``batch_bytes``, and a thousand values more at most.

    :param name: of what lies there, for errors.
    :raises CorruptRecord: the folder is no RocksDB, lacks a file, or a file is damaged.
    :raises MissingExtra: it is left to RocksDB, and rocksdict is not installed.
    """
    given = 0
    try:
        for array in read_sst_values(folder, batch_bytes):
            given += len(array)
            yield array
    except NeedsRocksDB as error:
        _LOG.debug("%s is read by RocksDB behind row %d: %s", name, given, error)
        what = f"{name} is damaged, or of a form that only RocksDB reads: {error}"
        require("rocksdict", "server", f"{what}. Trying RocksDB")
        from sluice.client.rocksdict_values import read_with_rocksdict

        yield from read_with_rocksdict(folder, name, batch_bytes, given)
