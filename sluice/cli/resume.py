"""What an earlier run of the same file left, and what the user is told and asked about it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from sluice.cli.going_on import Command, stored_text
from sluice.cli.row_files import RowFile
from sluice.cli.send_journal import RESUMABLE_S, SendJournal
from sluice.cli.send_records import Record, checksum, left_behind, open_locked
from sluice.model import TableInfo

_ANEW = "With --again the whole file is appended once more"
COME_TWICE = "rows after them that are stored come twice"


@dataclass(frozen=True)
class Appended:
    """Rows of a file on their way into a table, and the columns of it that are written."""

    table: TableInfo
    file: Path
    targets: list[str] | None

    @property
    def place(self) -> dict[str, Any]:
        """Where they go: a table that was dropped and made again is another one."""
        info = self.table
        return {"table": str(info.path), "table_id": info.table_id, "created_ms": info.created_ms}

    def journal(self, rows: RowFile) -> SendJournal:
        """The record of these rows, whatever the file's name is."""
        about = {"file": str(self.file.absolute())}
        return SendJournal({**self.place, **self._content(*rows.fingerprint)}, about)

    def schema_id(self) -> int | None:
        """Of the table's columns that an earlier run of this file began with, if it broke off."""
        for record in left_behind(str(self.table.path)):
            size_bytes, header = self.file.stat().st_size, record.header
            if self._goes_here(record) and header.get("size_bytes") == size_bytes:
                content = self._content(size_bytes, checksum(self.file))
                if content.items() <= header.items():
                    return record.start.schema_id
        return None

    def elsewhere(self, rows: RowFile) -> Record | None:
        """Of the same rows, into another table of this path: an earlier one, or a cluster's."""
        content = self._content(*rows.fingerprint)
        for record in left_behind(str(self.table.path)):
            if not self._goes_here(record) and content.items() <= record.header.items():
                return record
        return None

    def other_contents(self, rows: RowFile) -> Iterator[Record]:
        """Of other rows from a file of this name, into this table."""
        name, fingerprint = str(self.file.absolute()), rows.fingerprint
        for record in left_behind(str(self.table.path)):
            header = record.header
            found = (header.get("size_bytes"), header.get("checksum"))
            is_other = found != fingerprint and header.get("file") == name
            if is_other and self._goes_here(record):
                yield record

    def forget_other_contents(self, rows: RowFile) -> None:
        """Removes those records, once all rows of the file as it is now are in the table."""
        for record in self.other_contents(rows):
            with suppress(OSError):  # another process goes on with it
                file = open_locked(record.path, os.O_RDWR)
                record.path.unlink()
                os.close(file)

    def _goes_here(self, record: Record) -> bool:
        return self.place.items() <= record.header.items()

    def _content(self, size_bytes: int, found: int) -> dict[str, Any]:
        targets = sorted(self.targets) if self.targets else None
        return {"targets": targets, "size_bytes": size_bytes, "checksum": found}


def rows_to_skip(
    journal: SendJournal,
    appended: Appended,
    rows: RowFile,
    command: Command,
    skip_rows: int | None,
    *,
    again: bool,
) -> int:
    """How many rows the writer is not given, by what an earlier run left and the user wants.

    A writer that goes on in place of an earlier one is given the same rows as that one was.

    :raises click.UsageError: an earlier run did not end, of these rows or of what the file held
        before, and nobody says what to do about it; or what it left is not what the user says.
    """
    if again:
        journal.begin_again()
        return skip_rows or 0
    if journal.earlier is None:
        _tell_of_others(appended, rows, command, skip_rows)
        return skip_rows or 0
    earlier = journal.earlier
    stored = earlier.stored_rows
    told = f"An earlier run broke off. {stored_text(appended.file.name, stored, earlier.rows)}"
    if reason := _not_exactly(earlier):
        text = f"{told}. {reason}, so nobody can go on exactly: {COME_TWICE}"
        raise click.UsageError(command.told(text, stored, again=True).lines)
    if skip_rows is None and sys.stdin is not None and sys.stdin.isatty():
        if not click.confirm(f"{told}. Go on after them?", default=True, err=True):
            raise click.UsageError(f"nothing was sent. {_ANEW}")
    elif skip_rows != stored:
        raise click.UsageError(command.told(f"{told}. {_ANEW}", stored).lines)
    return journal.skipped_rows


def _not_exactly(earlier: Record) -> str:
    """Why nobody can go on exactly after an earlier run; empty if somebody can."""
    if earlier.failure:
        return f"The cluster answered {earlier.failure} when a run went on"
    if time.time() - earlier.sent_at_s > RESUMABLE_S:
        days = RESUMABLE_S // (24 * 60 * 60)
        return f"That is too long ago (more than {days} days)"
    return ""


def _tell_of_others(
    appended: Appended, rows: RowFile, command: Command, skip_rows: int | None
) -> None:
    """What the user should know where there is no record of just these rows into this table."""
    path, name = appended.table.path, appended.file.name
    if appended.elsewhere(rows):
        other = (
            f"{path} was created anew since an earlier run of {name} broke off, or is another"
            " cluster's"
        )
        if skip_rows:
            raise click.UsageError(
                command.told(
                    f"{other}: what that run stored is not in it, so no row is left out. With"
                    f" --again --skip-rows {skip_rows} rows are left out all the same"
                ).lines
            )
        click.echo(f"note: {other}: the whole file is sent", err=True)
        return
    if skip_rows:
        click.echo(
            f"note: no record of an earlier run of {name} as it is now was found: rows after the"
            f" first {skip_rows:,} that are stored already come twice",
            err=True,
        )
    elif record := next(appended.other_contents(rows), None):
        stored = stored_text(f"{name} as it was then", record.stored_rows, record.rows)
        text = f"An earlier run broke off, and {name} was changed since. {stored}. {_ANEW};"
        text += f" else {COME_TWICE}"
        raise click.UsageError(command.told(text, record.stored_rows).lines)
