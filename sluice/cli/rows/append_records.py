"""The records of unfinished runs of `sluice append`: their folder, content and locks.

A file of JSON lines in the user's state folder: a header, then a line for each batch before it is
sent, and at the end the rows that an interrupted run knew to be stored.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import google_crc32c

from sluice.client.batches.sent_batches import RowRange, WriterStart
from sluice.json_text import json_of
from sluice.model import TableBucket
from sluice.state_folder import state_folder

_KEPT_S = 90 * 24 * 60 * 60
_READ_BYTES = 1024 * 1024
_READER_LOCK_S = 1.0
"""A process that only reads a record locks it for less than this."""


def folder() -> Path:
    """Where records are kept: ``$XDG_STATE_HOME/sluice/append``."""
    return state_folder() / "append"


@dataclass
class AppendRecord:
    """The record of an earlier run: the rows that it sent, and those known to be stored."""

    header: dict[str, Any]
    start: WriterStart
    rows: int
    """Rows of the file."""
    skipped_rows: int
    """The number of rows at the start of the file that were not sent."""
    stored_rows: int
    """The number of rows at the start of the file that are known to be stored."""
    sent_at_s: int
    """When the last batch was sent, in seconds since 1970."""
    failure: str = ""
    """The cluster's error to a resumed run, which rules out an exact resume."""
    known: dict[TableBucket, list[RowRange]] = field(default_factory=dict)
    path: Path = Path()
    """Where the record is stored."""

    @classmethod
    def parse(cls, lines: bytes) -> Self:
        """:raises ValueError: :raises KeyError: :raises TypeError: it is damaged."""
        header, *others = (json_of(line) for line in lines.splitlines())
        skipped = header["skipped"]
        found = cls(
            header, WriterStart(*header["writer"]), header["rows"], skipped, skipped, header["at"]
        )
        for line in others:
            found._add(line)
        return found

    def _add(self, line: Any) -> None:
        if isinstance(line, dict):
            stored = line["stored"]
            self.failure = line.get("failed", self.failure)
        else:
            partition_id, number, first, rows, stored, self.sent_at_s = line
            bucket = TableBucket(self.header["table_id"], partition_id, number)
            self.known.setdefault(bucket, []).append(RowRange(first, rows))
        self.stored_rows = max(self.stored_rows, self.skipped_rows + stored)


def unfinished_records(table: str) -> Iterator[AppendRecord]:
    """Records of interrupted runs into tables of this name; runs in progress are left out."""
    for path in folder().glob("*.jsonl"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            with path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                content = file.read()
            if json_of(content.partition(b"\n")[0])["table"] == table:
                record = AppendRecord.parse(content[: content.rfind(b"\n") + 1])
                record.path = path
                yield record


def open_locked(path: Path, flags: int) -> int:
    """Opens and locks a file that still exists once it is locked. Waits for short readers.

    :raises BlockingIOError: another process has it locked.
    :raises OSError: it cannot be opened or locked.
    """
    until = time.monotonic() + _READER_LOCK_S
    while True:
        file = os.open(path, flags, 0o600)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)
                os.close(file)
                continue
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file), path.stat()):
                    return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)  # its owner has deleted it in the meantime


def delete_old_records() -> None:
    """Deletes records that were not written for 90 days."""
    for path in folder().glob("*.*"):
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > _KEPT_S:
                path.unlink()


def checksum(path: Path) -> int:
    """CRC-32C of a file, as in ``RowFile.fingerprint``."""
    found = 0
    with path.open("rb") as file:
        while piece := file.read(_READ_BYTES):
            found = google_crc32c.extend(found, piece)
    return found
