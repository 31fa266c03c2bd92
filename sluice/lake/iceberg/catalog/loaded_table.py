"""A table as its catalog has loaded it, with keys that the catalog gives for some time only."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sluice.clock import Clock, SystemClock
from sluice.errors import LakeTableMismatch
from sluice.lake.iceberg.catalog.file_io import (
    check_file_io,
    contradictions,
    read_file_io,
    storage_of,
)
from sluice.lake.iceberg.catalog.java import JavaThrew, java_errors, lake_errors
from sluice.lake.storage.file_systems import FileSystems
from sluice.lake.storage.table_storage import TableStorage
from sluice.masking import mask
from sluice.model import TablePath

_LOG = logging.getLogger(__name__)
_AGAIN_MS = 5_000
"""Time between two attempts to renew keys that are still valid."""


@dataclass(frozen=True, slots=True)
class LakeOptions:
    """How all tables of a lake are reached, beside what the catalog says of each one."""

    user: Mapping[str, str] = field(repr=False)
    """The user's options of the catalog."""
    hadoop: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Hadoop's own settings of object stores."""
    keys_uri: str = ""
    """How the address of a keys file begins, for executors; empty: there are none."""
    clock: Clock = field(default_factory=SystemClock)


class LoadedTable:
    """Iceberg's object of one table, and the storage of its files.

    Used by one thread, except for ``files``, which many threads use. When the keys of the object's
    FileIO are due, :meth:`refresh` loads the table again: Iceberg renews the keys of a FileIO only
    where the catalog has an endpoint for credentials.
    """

    def __init__(
        self,
        gateway: Any,
        path: TablePath,
        java: Any,
        load: Callable[[], Any],
        options: LakeOptions,
    ) -> None:
        """:param java: Iceberg's object. :param load: asks the catalog for another one.

        :raises UnsupportedLakeOption: its files can only be written by Iceberg's own client.
        """
        self._gateway, self._path, self._load, self._options = gateway, path, load, options
        self.java = java
        self._uuid = _uuid_of(java)
        self._storage = self._storage_of(java)
        self._try_ms = 0
        keys_uri = options.keys_uri and f"{options.keys_uri}-{path}.json"
        self.files = FileSystems(self._storage, keys_uri, self._newer_keys, options.clock)

    @property
    def is_local(self) -> bool:
        """Whether the table's data is on a local disk.

        :raises ConfigurationError, OSError, ValueError, ImportError: as :meth:`FileSystems.open`.
        """
        uri = str(self.java.locationProvider().newDataLocation("file"))
        return bool(self.files.open(uri)[0].type_name == "local")

    def refresh(self) -> None:
        """Reads the newest metadata. The caller turns Java's exceptions into errors.

        :raises LakeTableMismatch: as of :meth:`renew`.
        """
        if not self.renew():
            self.java.refresh()

    def renew(self) -> bool:
        """Loads the table again if its keys are due; returns whether it did.

        If the catalog does not answer, the keys stay in use as long as they are valid. The caller
        turns Java's exceptions into errors.

        :raises LakeTableMismatch: another table has its name by now. The old object stays.
        """
        now_ms, storage = self._options.clock.now_ms(), self._storage
        if now_ms < storage.renew_ms:
            return False
        is_valid = not storage.has_ended(now_ms)
        if is_valid and now_ms < self._try_ms:
            return False
        try:
            with java_errors():
                self.java = self._loaded_again()
        except JavaThrew as thrown:
            if not is_valid:
                raise
            self._try_ms = self._options.clock.now_ms() + _AGAIN_MS
            _LOG.warning("the keys of lake table %s stay in use: %s", self._path, mask(str(thrown)))
            return False
        self._storage = self._storage_of(self.java)
        self.files.use(self._storage)
        return True

    def _newer_keys(self) -> TableStorage:
        """Newer keys for files; any thread may call it.

        :raises LakeNotWritable: the catalog does not answer, or refuses.
        :raises LakeTableMismatch: another table has its name by now.
        """
        with lake_errors(f"renew the keys of lake table {self._path}"):
            return self._storage_of(self._loaded_again())

    def contradictions(self) -> tuple[str, ...]:
        """The user's options of stores to which Iceberg's client prefers the catalog's, by name."""
        return contradictions(read_file_io(self._gateway, self.java.io()), self._options.user)

    def _loaded_again(self) -> Any:
        """Iceberg's object from the catalog; Iceberg itself compares uuids in a refresh only."""
        java = self._load()
        uuid = _uuid_of(java)
        if self._uuid and uuid and uuid != self._uuid:
            raise LakeTableMismatch(
                f"lake table {self._path} was dropped and created again: its uuid was {self._uuid}"
                f" when it was loaded, and is {uuid}. The new table was not changed. Check who"
                " created it, and run the command again",
                table=str(self._path),
            )
        return java

    def _storage_of(self, java: Any) -> TableStorage:
        options = self._options
        file_io = read_file_io(self._gateway, java.io())
        check_file_io(file_io, options.user, str(self._path))
        now_ms = options.clock.now_ms()
        return storage_of(file_io, options.user, options.hadoop, str(java.location()), now_ms)


def _uuid_of(java: Any) -> str:
    """The uuid of Iceberg's object of a table; empty: Iceberg's first format may have none."""
    return str(java.operations().current().uuid() or "")
