"""The file through which executors get renewed keys of a table's storage.

Iceberg's REST catalogs have an endpoint for credentials, but not all catalogs do, and it needs the
catalog's login, which executors do not have. The driver writes the file next to the plan of its
round when it has renewed the keys, and deletes it when the lake is closed. If the driver is killed,
the task ``settle`` deletes it, or `sluice clean`. The keys in it end soon by themselves.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from sluice.clock import Clock, SystemClock
from sluice.errors import SluiceError
from sluice.lake.storage.table_storage import TableStorage
from sluice.masking import mask
from sluice.rounds.records.json_files import delete_file, read_json, write_json

_LOG = logging.getLogger(__name__)
_VERSION = 1
_LOOK_S = 5.0
"""Longest time between two looks at the keys, which another thread may have renewed, too."""
_LOOK_MIN_S = 0.2
_END_S = 10.0


def read_keys(uri: str) -> TableStorage | None:
    """The keys in a file; None if the driver has written none yet.

    :raises OSError: the file cannot be read.
    :raises ValueError, KeyError, TypeError, UnknownFileVersion: it is no keys file.
    """
    content = read_json(uri)
    if content is None:
        return None
    if content.get("version") != _VERSION:
        raise ValueError(
            f"{uri} has version {content.get('version')}, this Sluice reads {_VERSION}: install the"
            " same Sluice for the driver and for executors"
        )
    return TableStorage.from_json(content)


class KeysFile:
    """Keeps the file up to date from a thread of its own, until it is closed."""

    def __init__(
        self, uri: str, newest: Callable[[], TableStorage], clock: Clock | None = None
    ) -> None:
        """:param newest: returns the newest keys, and renews them when they are due."""
        self._uri, self._newest, self._clock = uri, newest, clock or SystemClock()
        first = newest()  # these keys are in the plan's writers already
        self._written_ms, self._due_ms = first.read_ms, first.renew_ms
        self._is_written = False
        self._lock = threading.Lock()  # guards the file
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sluice-keys", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread and deletes the file. Never raises."""
        with self._lock:  # a thread that still waits for the catalog writes nothing afterwards
            self._closed.set()
        self._thread.join(_END_S)
        if not self._is_written:
            return
        try:
            delete_file(self._uri)
        except (OSError, SluiceError) as error:
            _LOG.warning("delete the keys file %s: %s", self._uri, mask(str(error)))

    def _run(self) -> None:
        while not self._closed.wait(self._wait_s()):
            try:
                self._write_if_new()
            except Exception as error:  # whatever it is, it is tried again
                _LOG.warning("write the keys file %s: %s", self._uri, mask(str(error)))

    def _wait_s(self) -> float:
        """Until the keys are due, at most; never raises."""
        left_s = (self._due_ms - self._clock.now_ms()) / 1000
        return min(_LOOK_S, max(_LOOK_MIN_S, left_s))

    def _write_if_new(self) -> None:
        storage = self._newest()
        self._due_ms = storage.renew_ms
        if storage.read_ms == self._written_ms:  # not "<=": the clock may have been set back
            return
        with self._lock:
            if self._closed.is_set():
                return
            self._is_written = True
            write_json(self._uri, {"version": _VERSION, **storage.to_json()}, private=True)
            self._written_ms = storage.read_ms
