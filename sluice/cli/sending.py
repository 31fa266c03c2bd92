"""Sends a file's rows into a table: all are checked first, and a break says how to go on."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import click
import pyarrow as pa

from sluice.cli.earlier_runs import COME_TWICE
from sluice.cli.going_on import Command, Told, stored_text
from sluice.cli.output import counted
from sluice.cli.row_files import ROW_ERRORS, RowFile, first_that_fails
from sluice.cli.send_journal import SendJournal
from sluice.client.bucket_writer import BucketWriter
from sluice.errors import (
    InvalidTable,
    OutOfOrderSequence,
    PartitionNotExists,
    SluiceError,
    TableNotExist,
    UnknownWriterId,
)
from sluice.failpoints import failpoint
from sluice.model import TablePath

Values = tuple[str, ...]
Check = Callable[[pa.RecordBatch], set[Values]]
Send = Callable[[pa.RecordBatch], None]
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
    command: Command
    """As it was given, to tell how to go on."""
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
            text = f"{found.message}. {self._left(total, skipped_rows).lines}"
            raise click.ClickException(text) from error
        except SluiceError as error:
            raise self._left(total, skipped_rows, error).told_by(error) from error
        except BaseException:
            click.echo(f"\n{self._left(total, skipped_rows).lines}", err=True)
            raise
        if self.journal is not None:
            self.journal.forget()

    def _checked(self, batch: pa.RecordBatch, row: int, seen: set[Values]) -> set[Values]:
        """The partitions of rows of which the first is number ``row`` of the file."""
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
                    f"table {self.table} has no partition {spec}: create it first, or let this"
                    " command do so with --create-partitions"
                )
        return found

    def _left(self, total: int, skipped_rows: int, error: BaseException | None = None) -> Told:
        """What a run that broke off leaves behind, and how to go on."""
        stored, journal = skipped_rows + self.writer.stored_rows, self.journal
        name = self.rows.path.name
        if journal is None:
            return self.command.told(stored_text(name, stored, total, self.done), stored)
        if not journal.has_begun:
            return Told("Nothing was sent")
        nobody = journal.is_unfinished and isinstance(error, _NOBODY_GOES_ON)
        is_lost = nobody and not isinstance(error, InvalidTable)
        journal.break_off(self.writer.stored_rows, type(error).__name__ if is_lost else "")
        stored = journal.stored_rows
        text = stored_text(name, stored, total, self.done)
        if isinstance(error, TableNotExist):
            return Told(text)
        if nobody:
            text = (
                "So nobody can go on exactly where the earlier run broke off."
                f" {text}. With --again {COME_TWICE}"
            )
        elif not journal.is_kept:
            most = skipped_rows + self.writer.sent_rows - stored
            text += f". No record was kept: {COME_TWICE}, at most {counted(most, 'row')}"
        elif self.rows.change():
            text += f". To go on exactly, put the file back as it was; else {COME_TWICE}"
        return self.command.told(text, stored, again=nobody)


@contextmanager
def nothing_sent() -> Iterator[None]:
    """What is raised inside says that nothing was sent."""
    try:
        yield
    except click.ClickException as error:
        raise click.ClickException(f"{error.message}. Nothing was sent") from error
    except SluiceError as error:
        raise Told("Nothing was sent").told_by(error) from error
    except KeyboardInterrupt:
        click.echo("\nNothing was sent", err=True)
        raise


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
