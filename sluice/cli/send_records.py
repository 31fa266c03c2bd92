"""The records of files on their way into tables: where they lie, what is in one, who has it open.

A file of JSON lines in the user's state folder: a header, then a line for each batch before it is
sent, and at the end what a run that broke off knew.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import google_crc32c

from sluice.client.sent_batches import Cut, WriterStart
from sluice.model import TableBucket

_FORGOTTEN_S = 90 * 24 * 60 * 60
_READ_BYTES = 1024 * 1024
_LOOKING_S = 1.0
"""Nobody who only looks at a record has it locked for so long."""


def folder() -> Path:
    """Where records are kept: ``$XDG_STATE_HOME/sluice/append``."""
    try:
        home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    except RuntimeError:  # a user without a home, in some containers: no folder can be made there
        home = os.devnull
    return Path(home) / "sluice/append"


@dataclass
class Record:
    """What an earlier run left: the rows that it sent, and what is known of them."""

    header: dict[str, Any]
    start: WriterStart
    rows: int
    """Of the file."""
    skipped_rows: int
    """Of them, at the beginning: the writer was not given these."""
    stored_rows: int
    """So many rows of the file are stored, from the first on, by what is written down."""
    sent_at_s: int
    """When the last batch was sent, in seconds since 1970."""
    failure: str = ""
    """The cluster's answer to a run that wanted to go on, where nobody can."""
    known: dict[TableBucket, list[Cut]] = field(default_factory=dict)
    path: Path = Path()
    """Where it lies."""

    @classmethod
    def parse(cls, lines: bytes) -> Self:
        """:raises ValueError: :raises KeyError: :raises TypeError: it is damaged."""
        header, *others = (json.loads(line) for line in lines.splitlines())
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
            self.known.setdefault(bucket, []).append(Cut(first, rows))
        self.stored_rows = max(self.stored_rows, self.skipped_rows + stored)


def left_behind(table: str) -> Iterator[Record]:
    """Records of runs into tables of this path that broke off; of none that runs just now."""
    for path in folder().glob("*.jsonl"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            with path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                content = file.read()
            if json.loads(content.partition(b"\n")[0])["table"] == table:
                record = Record.parse(content[: content.rfind(b"\n") + 1])
                record.path = path
                yield record


def open_locked(path: Path, flags: int) -> int:
    """A file that no other process has locked, and that still lies there once it is locked.

    A process that only looks at it is waited for.

    :raises BlockingIOError: another process has it locked. :raises OSError: it cannot be opened, or
        not be locked.
    """
    until = time.monotonic() + _LOOKING_S
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
        os.close(file)  # its owner removed it meanwhile


def remove_old() -> None:
    """Removes what nobody has asked for in a long time."""
    for path in folder().glob("*.*"):
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > _FORGOTTEN_S:
                path.unlink()


def checksum(path: Path) -> int:
    """CRC-32C of a file, as in ``RowFile.fingerprint``."""
    found = 0
    with path.open("rb") as file:
        while piece := file.read(_READ_BYTES):
            found = google_crc32c.extend(found, piece)
    return found
