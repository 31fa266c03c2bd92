"""Opens files of a lake on executors: the small ones with one request each."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from sluice.errors import CorruptRecord, LakeFileUnreadable
from sluice.lake.storage.file_systems import FileSystems
from sluice.rounds.values.lake_files import LiveFile

_WHOLE_FILE_BYTES = 256 * 1024
"""A smaller file is read as a whole: its footer and columns would cost more requests."""
_AHEAD = 16
"""Files of an object store that are fetched at the same time: at most 4 MiB."""


class LakeReader:
    """Opens files by their URI. Used by one thread."""

    def __init__(self, files: FileSystems) -> None:
        """:param files: opens the storage of the table."""
        self._files = files

    def open(self, uri: str, size_bytes: int) -> Any:
        """The file for random access: in memory if it is small.

        :raises OSError: it cannot be read. :raises ValueError, ImportError: no installed library
            supports its scheme.
        """
        filesystem, path = self._files.open(uri)
        if size_bytes > _WHOLE_FILE_BYTES:
            return filesystem.open_input_file(path)
        with filesystem.open_input_stream(path) as source:
            return pa.BufferReader(source.read())

    def open_all(self, files: Sequence[LiveFile]) -> Iterator[tuple[LiveFile, Any]]:
        """All files in their order; of an object store, the next ones are fetched meanwhile.

        :raises OSError, ValueError, ImportError: as :meth:`open`.
        """
        if not files or self.is_local(files[0].path):
            for file in files:
                yield file, self.open(file.path, file.size_bytes)
            return
        waiting: collections.deque[tuple[LiveFile, Future[Any]]] = collections.deque()
        with ThreadPoolExecutor(_AHEAD, thread_name_prefix="sluice-look-up") as pool:
            try:
                for file in files:
                    waiting.append((file, pool.submit(self.open, file.path, file.size_bytes)))
                    if len(waiting) == _AHEAD:
                        first, future = waiting.popleft()
                        yield first, future.result()
                while waiting:
                    first, future = waiting.popleft()
                    yield first, future.result()
            finally:
                for _, future in waiting:
                    future.cancel()

    @contextmanager
    def reading(self, kind: str, path: str) -> Iterator[None]:
        """Names the file in errors of its content, which Arrow does not.

        :param kind: what the file is.
        :raises LakeFileUnreadable: it is damaged, or not what it should be; or its keys have ended.
        """
        try:
            yield
        except (OSError, pa.ArrowException, ValueError, CorruptRecord) as error:
            raise LakeFileUnreadable(
                f"{kind} {path} cannot be read: {type(error).__name__}: {error}"
                f"{self._files.trouble()}"
            ) from error

    def is_local(self, uri: str) -> bool:
        """Whether requests cost no time."""
        return bool(self._files.open(uri)[0].type_name == "local")
