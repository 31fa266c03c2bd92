"""Reads the values of a RocksDB folder with RocksDB; importing this module imports rocksdict.

The library returns one Python object per row; the loop over them runs in C.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from rocksdict import AccessType, BlockBasedOptions, Cache, Options, Rdict, ReadOptions

from sluice.errors import CorruptRecord

_BATCH_ROWS = 32 * 1024
_STEP_ROWS = 1024
_CACHE_BYTES = 8 * 1024 * 1024
_OPEN_FILES = 256


def read_with_rocksdict(
    folder: Path, name: str, batch_bytes: int, skipped: int = 0
) -> Iterator[pa.Array]:
    """Reads like ``rocksdb_values.read_values``, without the first ``skipped`` values."""
    try:
        db: Any = Rdict(str(folder), _options(), access_type=AccessType.read_only())
    except Exception as error:
        raise CorruptRecord(f"{name} cannot be opened: {error}") from error
    try:
        values = db.values(read_opt=_read_options())
        before = deque(islice(values, skipped), maxlen=1)
        last: bytes | None = before[0] if before else None
        while found := _some(values, batch_bytes):
            last = found[-1]
            yield pa.array(found, pa.binary())
        _check_end(db, last, name)
    finally:
        db.close()


def _some(values: Iterator[bytes], batch_bytes: int) -> list[bytes]:
    found: list[bytes] = []
    size = 0
    while len(found) < _BATCH_ROWS and size < batch_bytes:
        step = list(islice(values, _STEP_ROWS))
        if not step:
            break
        size += sum(map(len, step))
        found += step
    return found


def _check_end(db: Any, last: bytes | None, name: str) -> None:
    """Checks that the iterator reached the last value, because it ends silently at damage.

    Every value contains its key, so values are unique: the last value read must be the last one.
    """
    end = db.iter(_read_options())
    end.seek_to_last()
    expected = end.value() if end.valid() else None
    if last == expected:
        try:
            end.status()
        except Exception as error:
            raise CorruptRecord(f"{name} is damaged: {error}") from error
        return
    raise CorruptRecord(f"{name} is damaged: {_problem(db)}")


def _problem(db: Any) -> str:
    """Returns RocksDB's error where it stops; slower, because it checks the status at each row."""
    rows = db.iter(_read_options())
    rows.seek_to_first()
    count = 0
    while rows.valid():
        count += 1
        rows.next()
    try:
        rows.status()
    except Exception as error:
        return f"after row {count}: {error}"
    return "its last rows cannot be read"


def _read_options() -> ReadOptions:
    options = ReadOptions()
    options.fill_cache(False)  # type: ignore[call-arg]  # the library's stub lacks it
    return options


def _options() -> Options:
    """Bounds memory regardless of the folder's size: indexes and filters are only cached."""
    options = Options(raw_mode=True)
    blocks = BlockBasedOptions()
    blocks.set_block_cache(Cache(_CACHE_BYTES))
    blocks.set_cache_index_and_filter_blocks(True)
    options.set_block_based_table_factory(blocks)
    options.set_max_open_files(_OPEN_FILES)
    return options
