"""Sends a file's rows into a table: all are checked first, and a break says how to go on."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import click
import pyarrow as pa

from sluice.cli.output import counted
from sluice.cli.row_files import RowFile, first_that_fails
from sluice.cli.send_journal import RESUMABLE_S, SendJournal
from sluice.client.bucket_writer import BucketWriter
from sluice.errors import (
    InvalidTable,
    OutOfOrderSequence,
    PartitionNotExists,
    SluiceError,
    UnknownWriterId,
)
from sluice.model import TablePath

Values = tuple[str, ...]
Check = Callable[[pa.RecordBatch], set[Values]]
Send = Callable[[pa.RecordBatch], None]
_ANEW = "With --again the whole file is appended once more"
_NOBODY_GOES_ON = (OutOfOrderSequence, UnknownWriterId, InvalidTable)
"""The cluster has lost batches or forgotten the writer; or it would be given other batches."""
_PARTITIONS_MAX = 100_000
"""A column of so many values is no partition key."""


@dataclass(frozen=True)
class Sending:
    """A file, a table, and how the one gets into the other."""

    table: TablePath
    rows: RowFile
    writer: BucketWriter
    check: Check
    """Raises what sending these rows would raise; answers their partitions."""
    send: Send
    command: Callable[[int], str]
    """The command that goes on after so many rows."""
    create_partitions: bool = False
    needs_partitions: bool = True
    """Whether rows of a partition that is missing are wrong; else they are passed over."""
    journal: SendJournal | None = None
    """Of a table where a row that comes twice is there twice."""
    done: str = "stored"
    """What has become of a row that was sent."""

    def check_all(self) -> int:
        """Reads the whole file and answers how many rows it has; nothing is sent.

        :raises click.ClickException: :raises SluiceError: what is wrong, with its place.
        """
        total, seen = 0, set[Values]()
        try:
            with _bar(f"checking {self.rows.path.name}", self.rows.rows) as advance:
                for batch in self.rows.batches():
                    seen |= self._checked(batch, total, seen)
                    total += batch.num_rows
                    advance(batch.num_rows)
            self.rows.check_unchanged()
            if self.create_partitions:
                self.writer.ensure_partitions(sorted(seen - {()}))
        except click.ClickException as error:
            raise click.ClickException(f"{error.message}. Nothing was sent") from error
        except SluiceError as error:
            raise type(error)(f"{error}. Nothing was sent", **error.details) from error
        except KeyboardInterrupt:
            click.echo("\nNothing was sent", err=True)
            raise
        return total

    def send_all(self, total: int, skipped_rows: int) -> None:
        """Sends all rows but the first ones, and returns when they are stored.

        :raises click.ClickException: :raises SluiceError: with what is stored and how to go on;
            whatever else is raised, that was printed.
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
        except click.ClickException as error:  # all could be read before
            found = self.rows.change() or error
            text = f"{found.message}. {self._left(total, skipped_rows)}"
            raise click.ClickException(text) from error
        except SluiceError as error:
            text = f"{error}. {self._left(total, skipped_rows, error)}"
            raise type(error)(text, **error.details) from error
        except BaseException:
            click.echo(f"\n{self._left(total, skipped_rows)}", err=True)
            raise
        if self.journal is not None:
            self.journal.forget()

    def _checked(self, batch: pa.RecordBatch, row: int, seen: set[Values]) -> set[Values]:
        """The partitions of rows of which the first is number ``row`` of the file."""
        try:
            return self._partitions(batch, seen)
        except SluiceError as error:
            at = first_that_fails(
                batch.num_rows,
                lambda start, count: self._partitions(batch.slice(start, count), seen),
            )
            place = f"{self.rows.path}: {self.rows.place(row + at)}"
            try:
                self._partitions(batch.slice(at, 1), seen)
            except SluiceError as one:
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
                    f"table {self.table} has no partition {spec}: create it first, or let this"
                    " command do so with --create-partitions"
                )
        return found

    def _left(self, total: int, skipped_rows: int, error: BaseException | None = None) -> str:
        """What a run that broke off leaves behind, and how to go on."""
        stored = skipped_rows + self.writer.stored_rows
        twice = ""
        if self.journal is not None:
            if not self.journal.has_begun:
                return "Nothing was sent"
            self.journal.break_off(self.writer.stored_rows)
            if self.journal.is_unfinished and isinstance(error, _NOBODY_GOES_ON):
                return f"So nobody can go on exactly where the earlier run broke off. {_ANEW}"
            stored = max(stored, self.journal.stored_rows)
            if not self.journal.is_kept:
                twice = " (rows after them that are stored come twice then)"
        return (
            f"{_stored_text(self.rows.path.name, stored, total, self.done)}. Go on with:"
            f" {self.command(stored)}{twice}"
        )


def _stored_text(name: str, stored: int, total: int, done: str = "stored") -> str:
    return f"The first {stored:,} of {counted(total, 'row')} of {name} are {done}, maybe more"


def rows_to_skip(
    journal: SendJournal,
    name: str,
    command: Callable[[int], str],
    skip_rows: int | None,
    *,
    again: bool,
) -> int:
    """How many rows the writer is not given, by what an earlier run left and the user wants.

    A writer that goes on in place of an earlier one is given the same rows as that one was.

    :param name: of the file. :param command: goes on after so many rows.
    :raises click.UsageError: an earlier run did not end, and nobody says what to do about it.
    """
    if again:
        journal.forget()
    if not journal.is_unfinished:
        return skip_rows or 0
    stored = journal.stored_rows
    told = f"An earlier run broke off. {_stored_text(name, stored, journal.rows)}"
    if time.time() - journal.sent_at_s > RESUMABLE_S:
        raise click.UsageError(
            f"{told}. It is too long ago to go on exactly. {_ANEW}; with --again --skip-rows"
            f" {stored} only what is stored after row {stored:,} comes twice"
        )
    if skip_rows is None and sys.stdin.isatty():
        if not click.confirm(f"{told}. Go on after them?", default=True, err=True):
            raise click.UsageError(f"nothing was sent. {_ANEW}")
    elif skip_rows != stored:
        raise click.UsageError(f"{told}. Go on with: {command(stored)}. {_ANEW}")
    return journal.skipped_rows


@contextmanager
def stopped_by_sigterm() -> Iterator[None]:
    """SIGTERM is as Ctrl-C inside: a run that somebody ends says what it leaves behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _bar(description: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, where that is a terminal; it is told how many rows are done."""
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
        task = progress.add_task(description, total=total)
        yield lambda rows: progress.advance(task, rows)
