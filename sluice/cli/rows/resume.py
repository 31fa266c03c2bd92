"""Unfinished runs of the same file: where to resume, and what the user decides about it."""

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

from sluice.cli.rows.append_recorder import RESUMABLE_S, AppendRecorder
from sluice.cli.rows.append_records import AppendRecord, checksum, open_locked, unfinished_records
from sluice.cli.rows.resume_command import ResumeCommand, stored_text
from sluice.cli.rows.row_files import RowFile
from sluice.cli.terminal.output import say
from sluice.masking import line
from sluice.model import TableInfo

_AGAIN = "--again appends the complete file again"
MAY_DUPLICATE = "rows after them may be stored twice"


@dataclass(frozen=True)
class AppendJob:
    """A file, the table that it is appended to, and the columns that are written."""

    table: TableInfo
    file: Path
    targets: list[str] | None

    @property
    def target(self) -> dict[str, Any]:
        """The table. One that was dropped and created again is another table."""
        info = self.table
        return {"table": str(info.path), "table_id": info.table_id, "created_ms": info.created_ms}

    def recorder(self, rows: RowFile) -> AppendRecorder:
        """The recorder of these rows, whatever the name of the file."""
        about = {"file": str(self.file.absolute())}
        return AppendRecorder({**self.target, **self._content(*rows.fingerprint)}, about)

    def schema_id(self) -> int | None:
        """The schema that an unfinished run of this file started with; None without such a run."""
        for record in unfinished_records(str(self.table.path)):
            size_bytes, header = self.file.stat().st_size, record.header
            if self._is_for_target(record) and header.get("size_bytes") == size_bytes:
                content = self._content(size_bytes, checksum(self.file))
                if content.items() <= header.items():
                    return record.start.schema_id
        return None

    def record_for_other_table(self, rows: RowFile) -> AppendRecord | None:
        """A record of the same rows for a dropped table of this name, or another cluster's."""
        content = self._content(*rows.fingerprint)
        for record in unfinished_records(str(self.table.path)):
            if not self._is_for_target(record) and content.items() <= record.header.items():
                return record
        return None

    def records_of_other_contents(self, rows: RowFile) -> Iterator[AppendRecord]:
        """Records of this file name and table for other contents of the file."""
        name, fingerprint = str(self.file.absolute()), rows.fingerprint
        for record in unfinished_records(str(self.table.path)):
            header = record.header
            found = (header.get("size_bytes"), header.get("checksum"))
            is_other = found != fingerprint and header.get("file") == name
            if is_other and self._is_for_target(record):
                yield record

    def delete_records_of_other_contents(self, rows: RowFile) -> None:
        """Deletes those records; call it when the table has all rows of the present file."""
        for record in self.records_of_other_contents(rows):
            with suppress(OSError):  # another process resumes it
                file = open_locked(record.path, os.O_RDWR)
                record.path.unlink()
                os.close(file)

    def _is_for_target(self, record: AppendRecord) -> bool:
        return self.target.items() <= record.header.items()

    def _content(self, size_bytes: int, found: int) -> dict[str, Any]:
        targets = sorted(self.targets) if self.targets else None
        return {"targets": targets, "size_bytes": size_bytes, "checksum": found}


def rows_to_skip(
    recorder: AppendRecorder,
    job: AppendJob,
    rows: RowFile,
    command: ResumeCommand,
    skip_rows: int | None,
    *,
    again: bool,
) -> int:
    """The number of rows to skip, from the record of an earlier run and the user's choice.

    A writer that resumes an earlier run gets the same rows as the earlier writer.

    :raises click.UsageError: a run of these rows, or of earlier contents of the file, is unfinished
        and the user did not choose; or the choice contradicts the record.
    """
    if again:
        recorder.begin_again()
        return skip_rows or 0
    if recorder.earlier is None:
        _check_other_records(job, rows, command, skip_rows)
        return skip_rows or 0
    earlier = recorder.earlier
    stored = earlier.stored_rows
    status = f"An earlier run is unfinished. {stored_text(job.file.name, stored, earlier.rows)}"
    if reason := _why_not_resumable(earlier):
        text = f"{status}. {reason}, so an exact resume is not possible: {MAY_DUPLICATE}"
        raise command.advice(text, stored, again=True).usage_error()
    if skip_rows is None and sys.stdin is not None and sys.stdin.isatty():
        if not click.confirm(line(f"{status}. Resume after them?"), default=True, err=True):
            raise click.UsageError(f"nothing was sent; {_AGAIN}")
    elif skip_rows != stored:
        raise command.advice(f"{status}. {_AGAIN}", stored).usage_error()
    return recorder.skipped_rows


def _why_not_resumable(earlier: AppendRecord) -> str:
    """Why an exact resume is not possible; empty if it is."""
    if earlier.failure:
        return f"The cluster answered {earlier.failure} to a resumed run"
    if time.time() - earlier.sent_at_s > RESUMABLE_S:
        days = RESUMABLE_S // (24 * 60 * 60)
        return f"Its last batch is more than {days} days old"
    return ""


def _check_other_records(
    job: AppendJob, rows: RowFile, command: ResumeCommand, skip_rows: int | None
) -> None:
    """Warnings where no record of these rows and this table exists.

    :raises click.UsageError: a record of similar rows shows that the user must choose.
    """
    path, name = job.table.path, job.file.name
    if job.record_for_other_table(rows):
        other = f"the unfinished run of {name} was into another table named {path}"
        if skip_rows:
            text = (
                f"{other}, so no row of it is in this table. --again --skip-rows {skip_rows} skips"
                " these rows anyway"
            )
            raise command.advice(text).usage_error()
        say(f"note: {other}; all rows are sent", err=True)
        return
    if skip_rows:
        say(
            f"note: no record of an unfinished run of {name} with its present content was found;"
            f" rows after the first {skip_rows:,} may be stored twice",
            err=True,
        )
    elif record := next(job.records_of_other_contents(rows), None):
        stored = stored_text(f"the earlier {name}", record.stored_rows, record.rows)
        text = f"An earlier run is unfinished, and {name} was changed since. {stored}. {_AGAIN};"
        text += f" otherwise {MAY_DUPLICATE}"
        raise command.advice(text, record.stored_rows).usage_error()
