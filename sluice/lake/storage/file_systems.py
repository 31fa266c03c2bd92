"""Opens the storage of one lake table's files, with keys that are still valid."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections.abc import Callable, Iterable
from typing import Any

from sluice.clock import Clock, SystemClock
from sluice.errors import ConfigurationError, SluiceError
from sluice.lake.storage.keys_file import read_keys
from sluice.lake.storage.table_storage import TableStorage
from sluice.masking import know, mask
from sluice.storage import file_system, root_and_path

_LOG = logging.getLogger(__name__)
_AGAIN_MS = 5_000
"""Longest time between two attempts to renew keys after one that failed."""
_AGAIN_PART = 20
"""Keys of a short life are asked for again after a twentieth of it."""
_WAIT_S = 120.0
"""Longest wait for another thread that asks for keys, once the old ones have ended."""
Renew = Callable[[], TableStorage | None]


class FileSystems:
    """The file systems of one table. Used by many threads; ``_lock`` guards what is kept.

    When keys are due, the driver asks the catalog for new ones. Executors have no login of the
    catalog: a pickled copy reads them from the file that the driver writes (``keys_uri``).
    """

    def __init__(
        self,
        storage: TableStorage | None = None,
        keys_uri: str = "",
        renew: Renew | None = None,
        clock: Clock | None = None,
    ) -> None:
        """:param storage: None: local files, and stores that the environment configures.
        :param keys_uri: where the driver writes renewed keys for executors; empty: nowhere.
        :param renew: returns newer keys, or None if there are none yet. None: reads ``keys_uri``.
        """
        self._storage = storage or TableStorage()
        self._keys_uri, self._clock = keys_uri, clock or SystemClock()
        self._renew = renew or self._read
        self._lock, self._renewing = threading.Lock(), threading.Lock()
        self._opened: dict[tuple[str, str], tuple[Any, str]] = {}
        """File system and path of each root, by prefix and root: each keeps connections open."""
        self._try_ms = 0.0
        self._trouble = ""
        know(self._storage.secrets(), are_short_lived=True)

    def __reduce__(self) -> tuple[Any, ...]:
        return FileSystems, (self.newest(), self._keys_uri)

    @property
    def keys_uri(self) -> str:
        """Where the driver writes renewed keys for executors; empty: nowhere."""
        return self._keys_uri

    def newest(self) -> TableStorage:
        """The storage options with the newest keys; asks for new ones when they are due.

        One thread asks. Others go on with the keys that they have, as long as these are valid;
        after that they wait for its answer.
        """
        now_ms = self._clock.now_ms()
        storage = self._storage
        if now_ms < storage.renew_ms:
            return storage
        is_valid = not storage.has_ended(now_ms)
        if is_valid and now_ms < self._try_ms:
            return storage
        if not self._renewing.acquire(timeout=0 if is_valid else _WAIT_S):
            return self._storage
        try:
            is_first = self._storage is storage  # no other thread was faster
            if is_first and self._clock.now_ms() >= self._try_ms:
                self._try_to_renew()
        finally:
            self._renewing.release()
        return self._storage

    def use(self, storage: TableStorage) -> None:
        """Uses these options from now on."""
        know(storage.secrets(), are_short_lived=True)
        with self._lock:
            self._storage, self._trouble = storage, ""
            self._opened.clear()

    def open(self, uri: str) -> tuple[Any, str]:
        """The file system of a location, and the path on it.

        :raises ConfigurationError: an option is wrong, or the scheme has no file system.
        :raises OSError, ValueError, ImportError: as :func:`sluice.storage.file_system`.
        """
        storage = self.newest()
        root, path = root_and_path(uri)
        if not root:
            return file_system(uri, {})
        place = storage.place_of(uri)
        key = (place.prefix, root)
        with self._lock:
            found = self._opened.get(key)
        if found is None:
            try:
                found = file_system(f"{root}/", place.options)
            except ConfigurationError as error:
                raise storage.refusal(error) from error
            with self._lock:
                if storage is self._storage:
                    found = self._opened.setdefault(key, found)
        return found[0], f"{found[1].rstrip('/')}/{path}"

    def delete(self, uri: str) -> None:
        """Deletes one file; a missing one is ignored.

        :raises OSError: from the file system, with its path.
        """
        filesystem, path = self.open(uri)
        with contextlib.suppress(FileNotFoundError):
            filesystem.delete_file(path)

    def try_to_delete(self, uris: Iterable[str]) -> None:
        """Deletes files of work that failed; `sluice clean` finds those that stay."""
        for uri in uris:
            with contextlib.suppress(OSError):
                self.delete(uri)

    def trouble(self) -> str:
        """Why the keys may be old, for the error of a store that refuses them; usually empty."""
        if not self._trouble or not self._storage.has_ended(self._clock.now_ms()):
            return ""
        return f"; the keys of the catalog have ended, and {self._trouble}"

    def _try_to_renew(self) -> None:
        storage = self._storage
        life_ms = (storage.expires_ms or math.inf) - storage.read_ms
        try:
            renewed = self._renew()
        except (SluiceError, OSError, ValueError, KeyError, TypeError) as error:
            self._trouble = mask(f"new ones could not be read: {error}")
            _LOG.warning("the keys of the lake table stay in use: %s", self._trouble)
            return
        finally:  # after the answer: a catalog that hangs is not asked again at once
            self._try_ms = self._clock.now_ms() + min(_AGAIN_MS, life_ms / _AGAIN_PART)
        # not "<=": this machine's clock may have been set back
        if renewed is None or renewed.read_ms == self._storage.read_ms:
            self._trouble = f"{self._keys_uri or 'the catalog'} has no new ones"
            return
        self.use(renewed)

    def _read(self) -> TableStorage | None:
        return read_keys(self._keys_uri) if self._keys_uri else None
