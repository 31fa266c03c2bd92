"""Whether the folder of a table is also another table's."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from sluice.lake.iceberg.snapshots.stored_files import StoredFiles
from sluice.rounds.upkeep.orphans import StoredFile

_TABLE_METADATA = re.compile(r"\.metadata\.json(\.gz)?$")
_UUID = re.compile(rb'"table-uuid"\s*:\s*"([^"]+)"')
_HEAD_BYTES = 4096
"""Iceberg writes a table's uuid as the second field of its metadata."""
_READ_THREADS, _BATCH_FILES = 16, 1_000
"""A table that keeps its old metadata files may have a hundred thousand of them."""


def is_table_metadata(name: str) -> bool:
    """Whether a file has one state of a table, by its name."""
    return _TABLE_METADATA.search(name) is not None


def is_shared(stored: StoredFiles, metadata: Sequence[StoredFile], table_uuid: str) -> bool:
    """Whether one of these metadata files may be another table's.

    A table that was renamed keeps its folder, and a new one of the old name gets the same.

    :raises LakeNotWritable: a file cannot be read.
    """
    with ThreadPoolExecutor(_READ_THREADS) as pool:
        for start in range(0, len(metadata), _BATCH_FILES):
            some = metadata[start : start + _BATCH_FILES]
            heads = pool.map(lambda one: stored.head(one.path, _HEAD_BYTES), some)
            if any(head is not None and _uuid_in(head) != table_uuid for head in heads):
                return True
    return False


def _uuid_in(head: bytes) -> str:
    if head.startswith(b"\x1f\x8b"):
        try:
            head = zlib.decompressobj(wbits=31).decompress(head)
        except zlib.error:  # damaged: it may be another table's
            return ""
    found = _UUID.search(head)
    return "" if found is None else found[1].decode()
