"""Sends the rows of a file into a table. All rows are checked before the first is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from sluice.cli.rows.append_recorder import AppendRecorder
from sluice.cli.rows.resume import MAY_DUPLICATE
from sluice.cli.rows.resume_command import Advice, ResumeCommand, stored_text
from sluice.cli.rows.row_files import ROW_ERRORS, RowFile, first_that_fails
from sluice.cli.terminal.errors import InvalidFile
from sluice.cli.terminal.output import say
from sluice.client.batches.bucket_writer import BucketWriter
from sluice.errors import (
    FlussError,
    InvalidTable,
    OutOfOrderSequence,
    PartitionNotExists,
    SluiceError,
    TableNotExist,
    UnknownWriterId,
)
from sluice.failpoints import failpoint
from sluice.masking import line
from sluice.model import TablePath
from sluice.quantities import counted

Values = tuple[str, ...]
Check = Callable[[pa.RecordBatch], set[Values]]
Send = Callable[[pa.RecordBatch], None]
_NOT_RESUMABLE = (OutOfOrderSequence, UnknownWriterId, InvalidTable)
"""The cluster has lost batches or the writer's state, or the batches would differ."""
_PARTITIONS_MAX = 100_000
"""A column with more values than this is not a partition key."""


@dataclass(frozen=True)
class FileSender:
    """Checks the rows of a file and sends them into a table."""

    table: TablePath
    rows: RowFile
    writer: BucketWriter
    check: Check
    """Raises the errors that sending these rows would raise; returns their partitions."""
    send: Send
    command: ResumeCommand
    """The command as the user gave it, to print how to resume."""
    create_partitions: bool = False
    needs_partitions: bool = True
    """Whether rows of a missing partition are an error; otherwise they are skipped."""
    recorder: AppendRecorder | None = None
    """The record of the run, for tables that store a repeated row twice."""
    done: str = "stored"
    """The word for rows that were sent."""

    def check_all(self) -> int:
        """Checks the complete file and returns its number of rows; nothing is sent.

        :raises InvalidFile: :raises SluiceError: the error with its place in the file.
        """
        total, seen = 0, set[Values]()
        with nothing_sent():
            with _bar(f"checking {self.rows.path.name}", self.rows.rows) as advance:
                for batch in self.rows.batches():
                    seen |= self._checked(batch, total, seen)
                    total += batch.num_rows
                    advance(batch.num_rows)
            self.rows.check_unchanged()
            if self.create_partitions:
                self.writer.ensure_partitions(sorted(seen - {()}))
            failpoint("client.append.checked")
        return total

    def send_all(self, total: int, skipped_rows: int) -> None:
        """Sends all rows but the first ones, and returns when they are stored.

        :raises InvalidFile: :raises SluiceError: with the rows that are stored and how
            to resume; for other exceptions both were printed.
        """
        try:
            with self.writer, _bar(f"{self.rows.path.name} to {self.table}", total) as advance:
                at = 0
                for batch in self.rows.batches():
                    self.rows.check_unchanged()
                    if at + batch.num_rows > skipped_rows:
                        self.send(batch.slice(max(0, skipped_rows - at)))
                    at += batch.num_rows
                    advance(batch.num_rows)
                self.writer.flush()
        except InvalidFile as error:  # the check had read all rows without an error
            changed = self.rows.change() or error
            raise self._advice(total, skipped_rows).added_to(changed) from error
        except SluiceError as error:
            raise self._advice(total, skipped_rows, error).added_to(error) from error
        except BaseException:
            say(err=True)
            self._advice(total, skipped_rows).say()
            raise
        if self.recorder is not None:
            self.recorder.forget()

    def _checked(self, batch: pa.RecordBatch, row: int, seen: set[Values]) -> set[Values]:
        """The partitions of a batch whose first row is number ``row`` of the file."""
        try:
            return self._partitions(batch, seen)
        except ROW_ERRORS as error:
            at = first_that_fails(
                batch.num_rows,
                lambda start, count: self._partitions(batch.slice(start, count), seen),
            )
            place = f"{self.rows.path}: {self.rows.place(row + at)}"
            try:
                self._partitions(batch.slice(at, 1), seen)
            except ROW_ERRORS as one:
                reason = str(one).removeprefix("row 0: ")
                raise type(one)(f"{place}: {reason}", **one.details) from error
            raise

    def _partitions(self, batch: pa.RecordBatch, seen: set[Values]) -> set[Values]:
        found = self.check(batch)
        new = found - seen
        if len(seen) > _PARTITIONS_MAX:
            raise PartitionNotExists(f"more than {_PARTITIONS_MAX:,} partitions for {self.table}")
        if self.needs_partitions and not self.create_partitions and () not in new:
            for values in self.writer.missing_partitions(sorted(new)):
                keys = self.writer.info.descriptor.partition_keys
                spec = ", ".join(f"{k}={v}" for k, v in zip(keys, values, strict=True))
                raise PartitionNotExists(
                    f"table {self.table} has no partition {spec}; --create-partitions creates it"
                )
        return found

    def _advice(self, total: int, skipped_rows: int, error: BaseException | None = None) -> Advice:
        """The rows that an interrupted run has stored, and how to resume."""
        stored, recorder = skipped_rows + self.writer.stored_rows, self.recorder
        name = self.rows.path.name
        if isinstance(error, FlussError) and not (error.retryable or self.writer.has_begun):
            return Advice("Nothing was sent")  # a resumed run would be refused like this one
        if recorder is None:
            return self.command.advice(stored_text(name, stored, total, self.done), stored)
        if not recorder.has_begun:
            return Advice("Nothing was sent")
        is_final = recorder.is_unfinished and isinstance(error, _NOT_RESUMABLE)
        is_lost = is_final and not isinstance(error, InvalidTable)
        recorder.break_off(self.writer.stored_rows, type(error).__name__ if is_lost else "")
        stored = recorder.stored_rows
        text = stored_text(name, stored, total, self.done)
        if isinstance(error, TableNotExist):
            return Advice(text)
        if is_final:
            text = (
                f"An exact resume of the earlier run is not possible. {text}. With --again"
                f" {MAY_DUPLICATE}"
            )
        elif not recorder.is_kept:
            most = skipped_rows + self.writer.sent_rows - stored
            text += f". No record was kept: {MAY_DUPLICATE}, at most {counted(most, 'row')}"
        elif self.rows.change():
            text += f". For an exact resume restore the file; otherwise {MAY_DUPLICATE}"
        return self.command.advice(text, stored, again=is_final)


@contextmanager
def nothing_sent() -> Iterator[None]:
    """Adds to errors inside that nothing was sent."""
    try:
        yield
    except (InvalidFile, SluiceError) as error:
        raise Advice("Nothing was sent").added_to(error) from error
    except KeyboardInterrupt:
        say(err=True)
        say("Nothing was sent", err=True)
        raise


@contextmanager
def _bar(description: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error, if that is a terminal; advanced by a number of rows."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = Console(stderr=True)
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=console,
        transient=True,
    )
    if not console.is_terminal:  # older versions of rich print a line, even if it is disabled
        yield lambda _: None
        return
    with progress:
        task = progress.add_task(line(description), total=total)
        yield lambda rows: progress.advance(task, rows)
