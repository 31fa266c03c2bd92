"""The record of a file on its way into a table: what a later run needs to go on exactly there.

A file of JSON lines in the user's state folder: a header, then a line for each batch before it is
sent. It is there from the first batch until the last one is stored.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import click

from sluice.client.sent_batches import Cut, WriterStart
from sluice.errors import StorageError
from sluice.model import TableBucket

RESUMABLE_S = 6 * 24 * 60 * 60
"""A cluster forgets a writer that was silent for seven days, and then stores its batches again."""
_FORGOTTEN_S = 90 * 24 * 60 * 60


def folder() -> Path:
    """Where records are kept: ``$XDG_STATE_HOME/sluice/append``."""
    try:
        home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    except RuntimeError:  # a user without a home, in some containers: no folder can be made there
        home = os.devnull
    return Path(home) / "sluice/append"


class SendJournal:
    """A ``WriterJournal`` in a file that one process at a time has open.

    Lines are written whole and in order, each by one call; what a killed process wrote is there.
    The header alone is forced to the disk: a batch without a line is sent again, and stored once.
    """

    def __init__(self, name: Mapping[str, object]) -> None:
        """Looks for the record of an earlier run.

        :param name: what makes it the same rows into the same table.
        :raises click.ClickException: another process has it open.
        """
        digest = hashlib.sha256(json.dumps(name, sort_keys=True).encode()).hexdigest()
        self.path = folder() / f"{digest[:32]}.jsonl"
        self.rows = 0
        """Of the file."""
        self.skipped_rows = 0
        """Of them, at the beginning: the writer is not given these."""
        self.stored_rows = 0
        """So many rows of the file are stored, from the first on, by what is written down."""
        self.sent_at_s = 0
        """When the last batch was sent, in seconds since 1970."""
        self._name = dict(name)
        self._start: WriterStart | None = None
        self._known: dict[TableBucket, list[Cut]] = {}
        self._lock = threading.Lock()  # guards the two below
        self._file: int | None = None
        self._is_closed = False
        self._has_begun = False
        self.is_kept = True
        """False once it could not be written."""
        self._load()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Lets others have the record, if there still is one."""
        with self._lock:
            self._is_closed = True
            if self._file is not None:
                os.close(self._file)
                self._file = None

    @property
    def is_unfinished(self) -> bool:
        """Whether an earlier run has begun to send and has not come to its end."""
        return self._start is not None

    @property
    def has_begun(self) -> bool:
        """Whether anything was sent, by this run or an earlier one."""
        return self._has_begun or self.is_unfinished

    def forget(self) -> None:
        """Removes the record: all is stored, or nobody wants to go on."""
        if self._file is not None:
            self.path.unlink(missing_ok=True)
            os.close(self._file)
        self._file = self._start = None
        self._known = {}
        self.rows = self.skipped_rows = self.stored_rows = 0

    def expect(self, rows: int, skipped_rows: int) -> None:
        """What a new record says of its file."""
        self.rows, self.skipped_rows = rows, skipped_rows

    def break_off(self, stored_rows: int) -> None:
        """Notes how many of the writer's rows are stored; nothing is sent from now on."""
        self.stored_rows = max(self.stored_rows, self.skipped_rows + stored_rows)
        with self._lock:
            self._is_closed = True
            if self._file is not None:
                with suppress(StorageError):  # the lines before tell as much or a little less
                    self._write({"stored": self.stored_rows - self.skipped_rows})

    # ---- what the writer calls ----

    @property
    def start(self) -> WriterStart | None:
        return self._start

    def begin(self, start: WriterStart) -> None:
        header = {
            "rows": self.rows,
            "skipped": self.skipped_rows,
            "writer": [start.writer_id, start.next_bucket, start.batch_bytes],
            "at": int(time.time()),
            **self._name,
        }
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._remove_old()
            self._file = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_APPEND, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._write(header)
            os.fsync(self._file)
        except FileExistsError:
            raise self._busy() from None
        except OSError as error:
            if self._file is not None:
                os.close(self._file)
            self._file = None
            self.is_kept = False
            click.echo(
                f"note: no record of this run is kept in {self.path.parent} ({error.strerror}): if"
                " it breaks off, a few rows may be sent twice",
                err=True,
            )
        self._has_begun = True

    def known(self, bucket: TableBucket) -> list[Cut]:
        return self._known.get(bucket, [])

    def sending(self, bucket: TableBucket, cut: Cut, stored_rows: int) -> None:
        line = [bucket.partition_id, bucket.bucket, cut.first, cut.rows, stored_rows]
        with self._lock:
            if self._is_closed:  # a thread of the writer that was on its way here
                raise StorageError(f"{self.path} is closed: nothing more is sent")
            if self._file is not None:
                self._write([*line, int(time.time())])

    # ---- the file ----

    def _write(self, line: object) -> None:
        assert self._file is not None
        text = json.dumps(line).encode() + b"\n"
        try:
            written = os.write(self._file, text)
            if written < len(text):
                os.ftruncate(self._file, os.fstat(self._file).st_size - written)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise StorageError(f"{self.path}: {error.strerror}: nothing more is sent") from error

    def _load(self) -> None:
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_APPEND)
        except OSError:
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            raise self._busy() from None
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:  # a killed process may have left half a line
            os.ftruncate(self._file, len(whole))
        if not whole:
            self.forget()
            return
        try:
            header, *lines = (json.loads(line) for line in whole.splitlines())
            self._read(header, lines)
        except (ValueError, KeyError, TypeError) as error:
            os.close(self._file)
            raise click.ClickException(
                f"{self.path}: the record of an earlier run is damaged: remove the file, then begin"
                " again from the first row, or with --skip-rows"
            ) from error

    def _read(self, header: dict[str, Any], lines: list[Any]) -> None:
        self._start = WriterStart(*header["writer"])
        self.rows, self.skipped_rows = header["rows"], header["skipped"]
        stored, self.sent_at_s = 0, header["at"]
        for line in lines:
            if isinstance(line, dict):
                stored = max(stored, line["stored"])
                continue
            partition_id, number, first, rows, stored_then, self.sent_at_s = line
            bucket = TableBucket(header["table_id"], partition_id, number)
            self._known.setdefault(bucket, []).append(Cut(first, rows))
            stored = max(stored, stored_then)
        self.stored_rows = self.skipped_rows + stored

    def _busy(self) -> click.ClickException:
        return click.ClickException(
            f"{self._name['table']}: another `sluice append` sends this file just now: wait for it"
        )

    def _remove_old(self) -> None:
        for path in self.path.parent.glob("*.jsonl"):
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > _FORGOTTEN_S:
                    path.unlink()
