"""A bucket's log for a round, on an executor: travels by pickle and connects where it arrives."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from sluice.client.admin import Admin
from sluice.client.connection import Connection
from sluice.client.log_reader import LogReader
from sluice.config import ClientConfig
from sluice.model import TableInfo, TablePath
from sluice.rounds.types import LogRecords, Split


class ClientLogSource:
    """A round's LogSource. Safe for use by many threads; they share one connection.

    The connection is made at the first read, and closed with the last reference to it.
    """

    def __init__(
        self, config: ClientConfig | str, path: TablePath, info: TableInfo | None = None
    ) -> None:
        """:param info: the table as the round was planned: rows come in its schema. Without it each
        executor takes the schema that it finds.
        """
        self.config = ClientConfig(bootstrap=config) if isinstance(config, str) else config
        self.path = path
        self.info = info
        self._lock = threading.Lock()  # guards _reader
        self._reader: LogReader | None = None

    def __getstate__(self) -> tuple[ClientConfig, TablePath, TableInfo | None]:
        return self.config, self.path, self.info

    def __setstate__(self, state: tuple[ClientConfig, TablePath, TableInfo | None]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def read(self, split: Split) -> Iterator[LogRecords]:
        """Batches in offset order from the split's start to its stop, empty ones included.

        :raises LogOffsetOutOfRange: the log no longer holds the start offset.
        """
        return self._open().read(split.bucket, split.start_offset, split.stop_offset)

    def _open(self) -> LogReader:
        with self._lock:
            if self._reader is None:
                connection: Any = Connection(self.config)
                self._reader = LogReader(connection, Admin(connection), self.path, self.info)
            return self._reader
