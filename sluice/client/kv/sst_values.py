"""Reads the values of a RocksDB folder from its SST files, without RocksDB.

A merge source is one file of level 0, or all files of another level, whose keys do not overlap.
Each source reads a few blocks at a time; the merge of their keys runs in compiled code.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import groupby, pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from sluice.errors import CorruptRecord
from sluice.formats.kernels import sst_layout as layout
from sluice.formats.kv import sst_table as sst
from sluice.formats.kv.rocksdb_manifest import LiveFile, UnreadableStore, live_files
from sluice.formats.rows.column_memory import binary_array, load_kernels

_BATCH_ROWS = 32 * 1024
_READ_BYTES = 4 * 1024 * 1024
"""Bytes of stored blocks in memory over all sources; uncompressed blocks take as much again."""
_READ_BYTES_MIN = 64 * 1024
_SOURCES_MAX = 64
_INDEX_BYTES_MAX = 8 * 1024 * 1024
_MANIFEST_BYTES_MAX = 64 * 1024 * 1024
_KEY_CAPACITY = 64 * 1024
_ROOM_MAX = 1 << 30


def read_values(folder: Path, name: str, batch_bytes: int) -> Iterator[pa.Array]:
    """Yields all values of the default column family as binary arrays, in key order.

    An array has about ``batch_bytes``, or one larger value. The values before an error are correct.

    :param name: the name of the folder's content in error messages.
    :raises CorruptRecord: the folder is not a RocksDB store, lacks a file, or a file is damaged or
        has something that Sluice does not read.
    """
    try:
        with ExitStack() as stack:
            sources = [_Source(folder, files) for files in _sorted_runs(folder)]
            share = max(_READ_BYTES // max(len(sources), 1), _READ_BYTES_MIN)
            for source in sources:
                stack.enter_context(source)
                source.read_bytes = share
            yield from _Merge(sources).arrays(batch_bytes)
    except (UnreadableStore, OSError) as error:
        why = f"{folder} cannot be read: {error}" if isinstance(error, OSError) else error
        raise CorruptRecord(f"{name} is damaged, or Sluice cannot read it: {why}") from error


def _sorted_runs(folder: Path) -> list[list[LiveFile]]:
    """Groups the live files of the store so that keys within a group do not overlap."""
    if any(path.stat().st_size for path in folder.glob("*.log")):
        raise UnreadableStore("the store has a write-ahead log that RocksDB must replay")
    name = (folder / "CURRENT").read_text("utf-8", "replace")
    if not name.startswith("MANIFEST-") or not name[9:].rstrip("\n").isdigit():
        raise UnreadableStore("the file CURRENT does not name a MANIFEST file")
    manifest = folder / name.rstrip("\n")
    if manifest.stat().st_size > _MANIFEST_BYTES_MAX:
        raise UnreadableStore("the MANIFEST file is too large")
    files = sorted(live_files(manifest.read_bytes()), key=lambda f: (f.level, f.smallest))
    runs = []
    for level, found in groupby(files, key=lambda file: file.level):
        of_level = list(found)
        runs += [[file] for file in of_level] if level == 0 else [of_level]
        if level and any(a.largest >= b.smallest for a, b in pairwise(of_level)):
            raise UnreadableStore(f"files of level {level} overlap")
    if len(runs) > _SOURCES_MAX:
        raise UnreadableStore(f"{len(runs)} merge sources are too many")
    return runs


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Names the file in what is wrong with it."""
    try:
        yield
    except UnreadableStore as error:
        raise UnreadableStore(f"{error} in {path}") from error


class _Table:
    """One open SST file; its footer, index and properties are read at creation."""

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self._file = path.open("rb", buffering=0)
        try:
            if os.fstat(self._file.fileno()).st_size != size:
                raise UnreadableStore("its size differs from the MANIFEST")
            tail = self._read(max(size - sst.FOOTER_SIZE, 0), min(size, sst.FOOTER_SIZE))
            self.footer = sst.read_footer(tail, size)
            metaindex = self._block(self.footer.metaindex)
            index, properties = sst.find_parts(self.footer, metaindex, size)
            if max(index.size, properties.size) > _INDEX_BYTES_MAX:
                raise UnreadableStore("its index is too large")
            self._index = index
            self.properties = sst.read_properties(self._block(properties))
        except BaseException:
            self._file.close()
            raise

    def blocks(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns positions and sizes of the data blocks."""
        block = self._block(self._index)
        return sst.read_index(block, self.properties, self._index.start)

    def read(self, start: int, end: int) -> bytes:
        return self._read(start, end - start)

    def close(self) -> None:
        self._file.close()

    def _block(self, handle: sst.Handle) -> pa.Buffer:
        data = self._read(handle.start, handle.end - handle.start)
        return sst.read_block(self.footer, data, handle)

    def _read(self, start: int, size: int) -> bytes:
        data = os.pread(self._file.fileno(), size, start)
        if len(data) != size:
            raise UnreadableStore("it is truncated")
        return data


class _Source:
    """Files whose keys do not overlap, in key order, read a few blocks at a time."""

    def __init__(self, folder: Path, files: list[LiveFile]) -> None:
        self.read_bytes = _READ_BYTES_MIN
        self._folder = folder
        self._files = files
        self._next = 0
        self._expected = 0
        self._table: _Table | None = None
        self._at = 0
        self._starts = self._sizes = np.zeros(0, np.int64)
        self._kept: list[pa.Buffer] = []
        self._where = np.zeros((0, 2), np.int64)

    def __enter__(self) -> _Source:
        """Opens every file first, so that an unsupported store yields no values at all."""
        for file in self._files:
            self._open(file).close()
        return self

    def __exit__(self, *_: object) -> None:
        if self._table is not None:
            self._table.close()
            self._table = None

    def load(self, entries_read: int) -> np.ndarray | None:
        """Returns addresses and sizes of the next blocks until the next call; None at the end.

        :param entries_read: the number of entries read from all earlier blocks.
        """
        while self._at == len(self._starts):
            self.__exit__(None, None, None)
            if entries_read != self._expected:
                raise UnreadableStore(
                    f"{entries_read} entries were read instead of {self._expected}"
                )
            if self._next == len(self._files):
                self._kept = []
                return None
            file = self._files[self._next]
            self._next += 1
            self._table = self._open(file)
            self._expected += self._table.properties.entries
            with _named(self._table.path):
                self._starts, self._sizes = self._table.blocks()
            self._at = 0
        self._load_blocks()
        return self._where

    def _open(self, file: LiveFile) -> _Table:
        path = self._folder / file.name
        with _named(path):
            return _Table(path, file.size)

    def _load_blocks(self) -> None:
        assert self._table is not None
        first = self._at
        origin = int(self._starts[first])
        ends = self._starts[first:] + self._sizes[first:] + sst.BLOCK_TRAILER
        count = max(int(np.searchsorted(ends, origin + self.read_bytes, "right")), 1)
        starts = self._starts[first : first + count] - origin
        sizes = self._sizes[first : first + count].copy()
        with _named(self._table.path):
            data = self._table.read(origin, int(ends[count - 1]))
            sst.check_blocks(self._table.footer, data, starts, sizes, origin)
            # blocks that do not fit are read again later
            kept = sst.uncompress(data, starts, sizes, 2 * self.read_bytes)
        self._kept = kept
        self._at = first + len(kept)
        self._where = np.array([(block.address, block.size) for block in kept], np.int64)


class _Merge:
    """Merges the values of several sources in key order."""

    def __init__(self, sources: list[_Source]) -> None:
        self._kernels = load_kernels()
        self._sources = sources
        self._words = np.zeros((max(len(sources), 1), layout.SOURCE_WORDS), np.int64)
        self._keys = np.empty((len(sources) + 1, _KEY_CAPACITY), np.uint8)
        self._state = np.zeros(layout.MERGE_WORDS + len(sources), np.int64)
        for index in range(len(sources)):
            self._words[index, layout.KEY] = self._keys[index].ctypes.data
        self._words[:, layout.KEY_CAPACITY] = _KEY_CAPACITY
        self._state[layout.LAST] = self._keys[-1].ctypes.data
        self._state[layout.LAST_SIZE] = layout.NO_KEY

    def arrays(self, batch_bytes: int) -> Iterator[pa.Array]:
        state = self._state
        for index in range(len(self._sources)):
            self._feed(index)
        capacity = min(max(batch_bytes, 1), _ROOM_MAX)
        answer = layout.FULL
        while answer == layout.FULL:
            offsets = np.zeros(_BATCH_ROWS + 1, np.int32)
            data = pa.allocate_buffer(capacity)
            state[layout.ROWS] = state[layout.BYTES] = 0
            while (answer := self._merge(offsets, data)) == layout.NEEDS_BLOCKS:
                self._feed(int(state[layout.EMPTY]))
            if answer < 0:
                raise UnreadableStore(layout.PROBLEMS[answer])
            rows = int(state[layout.ROWS])
            if rows:
                content = data.slice(0, int(state[layout.BYTES]))
                yield binary_array(offsets[: rows + 1], content)
                capacity = min(max(batch_bytes, 1), _ROOM_MAX)
            elif answer == layout.FULL:  # a single value larger than batch_bytes
                capacity = int(self._words[state[layout.MERGE_WORDS], layout.VALUE_SIZE])

    def _merge(self, offsets: np.ndarray, data: pa.Buffer) -> int:
        return int(
            self._kernels.merge(self._words, self._state, offsets, _BATCH_ROWS, data, data.size)
        )

    def _feed(self, index: int) -> None:
        """Loads the next blocks of a source without entries, if there are any."""
        words = self._words[index]
        found = 0
        while not found:
            blocks = self._sources[index].load(int(words[layout.READ]))
            if blocks is None:
                return
            words[layout.BLOCKS], words[layout.BLOCK_COUNT] = blocks.ctypes.data, len(blocks)
            words[layout.NEXT_BLOCK] = words[layout.AT] = words[layout.END] = 0
            found = self._kernels.enter(self._words, self._state, index)
        if found < 0:
            raise UnreadableStore(layout.PROBLEMS[found])
