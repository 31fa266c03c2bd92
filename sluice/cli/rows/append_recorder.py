"""Writes the record of a run of `sluice append`, which makes an exact resume possible.

The record exists from the first batch until all rows are stored. ``append_records`` has its form.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Self

from sluice.cli.rows.append_records import AppendRecord, delete_old_records, folder, open_locked
from sluice.cli.terminal.errors import ResumeError
from sluice.cli.terminal.output import say
from sluice.client.batches.sent_batches import RowRange, WriterStart
from sluice.errors import StorageError
from sluice.failpoints import failpoint
from sluice.model import TableBucket

RESUMABLE_S = 6 * 24 * 60 * 60
"""A cluster forgets a writer that has sent nothing for seven days, the default of its setting
server.writer-id.expiration-time. After that it refuses the writer's batches, or stores the first
one of a bucket again."""


class AppendRecorder:
    """A ``WriterJournal`` that writes the record of a run; one process at a time has it open.

    Each line is written by one call, complete and in order, so a killed process loses no line.
    Only the header is synced to disk. After a power loss, batches whose lines are lost are sent
    again. The server stores them once if it still knows their sequences (Fluss: the last five of
    a bucket). Otherwise it returns OutOfOrderSequence.
    """

    def __init__(self, name: Mapping[str, object], about: Mapping[str, object]) -> None:
        """Opens the record of an earlier run, if there is one.

        :param name: the properties that identify the rows and the table.
        :param about: further properties for a new record.
        :raises ResumeError: another process has the record open, or it cannot be read.
        """
        digest = hashlib.sha256(json.dumps(name, sort_keys=True).encode()).hexdigest()
        self.path = folder() / f"{digest[:32]}.jsonl"
        self.rows = 0
        """Rows of the file."""
        self.skipped_rows = 0
        """The number of rows at the start of the file that are not sent."""
        self.stored_rows = 0
        """The number of rows at the start of the file that are known to be stored."""
        self.is_kept = True
        """False after the record could not be written."""
        self._name, self._about = dict(name), dict(about)
        self._lock = threading.Lock()  # guards the two below
        self._file: int | None = None
        self._is_closed = False
        self._has_begun = False
        self.earlier = self._load()
        """The record of an earlier run, if this one resumes it."""
        if self.earlier is not None:
            self.expect(self.earlier.rows, self.earlier.skipped_rows)
            self.stored_rows = self.earlier.stored_rows

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        """Releases the record, if it still exists."""
        with self._lock:
            self._is_closed = True
            self._close()

    @property
    def is_unfinished(self) -> bool:
        """Whether this run resumes an earlier one."""
        return self.earlier is not None

    @property
    def has_begun(self) -> bool:
        """Whether this run or the earlier one sent anything."""
        return self._has_begun or self.is_unfinished

    def begin_again(self) -> None:
        """Discards the earlier run. Its record stays until this run starts to send."""
        self.earlier = None
        self.rows = self.skipped_rows = self.stored_rows = 0

    def forget(self) -> None:
        """Deletes the record, because all rows are stored."""
        self._delete()
        self.begin_again()

    def expect(self, rows: int, skipped_rows: int) -> None:
        """Sets the numbers that a new record holds."""
        self.rows, self.skipped_rows = rows, skipped_rows

    def break_off(self, stored_rows: int, failure: str = "") -> None:
        """Records how many of the writer's rows are stored; nothing is sent from now on.

        The next run reads ``stored_rows`` from the record.

        :param failure: why an exact resume is not possible.
        """
        line: dict[str, object] = {"stored": stored_rows}
        if failure:
            line["failed"] = failure
        with self._lock:
            self._is_closed = True
            if self._file is not None:
                try:
                    _write(self._file, line)
                except OSError:  # the lines before say the same or a little less
                    return
            self.stored_rows = max(self.stored_rows, self.skipped_rows + stored_rows)

    # ---- the WriterJournal ----

    @property
    def start(self) -> WriterStart | None:
        return None if self.earlier is None else self.earlier.start

    def begin(self, start: WriterStart) -> None:
        header = {
            "rows": self.rows,
            "skipped": self.skipped_rows,
            "writer": [start.writer_id, start.next_bucket, start.batch_bytes, start.schema_id],
            "at": int(time.time()),
            **self._name,
            **self._about,
        }
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            delete_old_records()
            made = self._create(header)
        except (FileExistsError, BlockingIOError):
            raise self._busy() from None
        except OSError as error:
            with suppress(OSError):
                self._delete()  # no run may resume the earlier one once this one sends
            self._close()
            self.is_kept = False
            say(
                f"note: no record of this run is kept in {self.path.parent} ({error.strerror}); if"
                " the run is interrupted, a resumed run may store rows twice",
                err=True,
            )
        else:
            self._close()
            self._file = made
        self._has_begun = True

    def known(self, bucket: TableBucket) -> list[RowRange]:
        return [] if self.earlier is None else self.earlier.known.get(bucket, [])

    def sending(self, bucket: TableBucket, cut: RowRange, stored_rows: int) -> None:
        line = [bucket.partition_id, bucket.bucket, cut.first, cut.rows, stored_rows]
        with self._lock:
            if self._is_closed:  # since a thread of the writer made this call
                raise StorageError(f"{self.path} is closed; nothing more is sent")
            if self._file is not None:
                try:
                    _write(self._file, [*line, int(time.time())])
                    self.stored_rows = max(self.stored_rows, self.skipped_rows + stored_rows)
                except OSError as error:
                    raise StorageError(
                        f"{self.path}: {error.strerror}; nothing more is sent"
                    ) from error

    # ---- the file ----

    def _create(self, header: object) -> int:
        """Creates a locked record. An earlier run's record stays locked until this one replaces it.

        :raises FileExistsError: :raises BlockingIOError: another process was faster.
        """
        replaces = self._file is not None
        path = self.path.with_suffix(".new") if replaces else self.path
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | (os.O_TRUNC if replaces else os.O_EXCL)
        try:
            file = open_locked(path, flags)
        except (FileExistsError, BlockingIOError):
            raise
        except OSError:
            with suppress(OSError):
                path.unlink(missing_ok=True)
            raise
        try:
            _write(file, header)
            os.fsync(file)
            failpoint("client.append.record_made")
            if replaces:
                path.replace(self.path)
            failpoint("client.append.record_replaced")
        except BaseException:
            path.unlink(missing_ok=True)
            os.close(file)
            raise
        return file

    def _load(self) -> AppendRecord | None:
        try:
            self._file = open_locked(self.path, os.O_RDWR | os.O_APPEND)
        except BlockingIOError:
            raise self._busy() from None
        except OSError as error:
            if not os.path.lexists(self.path):
                return None
            raise ResumeError(
                f"{self.path}: the record of an earlier run cannot be read or locked:"
                f" {error.strerror}. Nothing was sent"
            ) from error
        content = self.path.read_bytes()
        lines = content[: content.rfind(b"\n") + 1]
        if lines != content:  # a killed process may have left half a line
            os.ftruncate(self._file, len(lines))
        if not lines:
            self._delete()
            return None
        try:
            return AppendRecord.parse(lines)
        except (ValueError, KeyError, TypeError) as error:
            self._close()
            raise ResumeError(
                f"{self.path}: the record of an earlier run is damaged; delete the file, then run"
                " the command again, from the first row or with --skip-rows"
            ) from error

    def _delete(self) -> None:
        """Deletes the locked record, if any, and what a killed process left of a new one."""
        if self._file is not None:
            self.path.with_suffix(".new").unlink(missing_ok=True)
            self.path.unlink(missing_ok=True)
        self._close()

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _busy(self) -> ResumeError:
        return ResumeError(
            f"{self._name['table']}: another `sluice append` is sending this file; wait for it"
        )


def _write(file: int, line: object) -> None:
    """Appends a complete line, or nothing."""
    text = json.dumps(line).encode() + b"\n"
    written = os.write(file, text)
    if written < len(text):
        os.ftruncate(file, os.fstat(file).st_size - written)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
