"""Sends the rows of a file into a table. All rows are checked before the first is sent."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import click
import pyarrow as pa

from sluice.cli.rows.readers import ROW_ERRORS, RowFile, first_that_fails
from sluice.cli.terminal.errors import InvalidFile
from sluice.cli.terminal.output import say, say_command
from sluice.cli.terminal.progress import RowBar
from sluice.client.batches.bucket_writer import BucketWriter
from sluice.errors import PartitionNotExists, SluiceError, TableNotExist
from sluice.masking import mask
from sluice.model import TablePath
from sluice.quantities import counted

Values = tuple[str, ...]
Check = Callable[[pa.RecordBatch], set[Values]]
Send = Callable[[pa.RecordBatch], None]
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
    again: str
    """What it does to send a row twice: a clause."""
    create_partitions: bool = False
    needs_partitions: bool = True
    """Whether rows of a missing partition are an error; otherwise they are skipped."""

    def check_all(self) -> int:
        """Checks the complete file and returns its number of rows; nothing is sent.

        :raises InvalidFile: :raises SluiceError: the error with its place in the file.
        """
        total, seen = 0, set[Values]()
        with RowBar(f"checking {self.rows.path.name}", self.rows.rows) as bar:
            for batch in self.rows.batches():
                seen |= self._checked(batch, total, seen)
                total += batch.num_rows
                bar.copied(batch.num_rows)
        self.rows.check_end()
        self.rows.check_unchanged()
        if self.create_partitions:
            self.writer.ensure_partitions(sorted(seen - {()}))
        return total

    def send_all(self, total: int, skipped_rows: int) -> None:
        """Sends all rows but the first ones, and returns when they are stored.

        :raises InvalidFile: :raises SluiceError: with the rows that are acknowledged and the
            command that goes on; for other exceptions both were printed.
        """
        try:
            with self.writer, RowBar(f"{self.rows.path.name} to {self.table}", total) as bar:
                at = 0
                for batch in self.rows.batches():
                    self.rows.check_unchanged()
                    if at + batch.num_rows > skipped_rows:
                        self.send(batch.slice(max(0, skipped_rows - at)))
                    at += batch.num_rows
                    bar.copied(batch.num_rows)
                self.writer.flush()
        except (InvalidFile, SluiceError) as error:
            text, command = self._advice(total, skipped_rows, error)
            raise with_advice(error, text, command) from error
        except BaseException as error:
            text, command = self._advice(total, skipped_rows, error)
            say(f"\n{text}", err=True)
            if command:
                say_command(command)
            raise

    def _checked(self, batch: pa.RecordBatch, row: int, seen: set[Values]) -> set[Values]:
        """The partitions of a batch whose first row is number ``row`` of the file."""
        try:
            return self._partitions(batch, seen)
        except ROW_ERRORS as error:
            at = first_that_fails(
                batch.num_rows, lambda i, n: self._partitions(batch.slice(i, n), seen)
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

    def _advice(self, total: int, skipped: int, error: BaseException) -> tuple[str, str | None]:
        """The rows that are acknowledged, and the command that goes on."""
        writer = self.writer
        if not writer.has_begun:
            return "Nothing was sent", None
        stored, most = skipped + writer.stored_rows, writer.sent_rows - writer.stored_rows
        text = f"The first {stored:,} of {counted(total, 'row')} of {self.rows.path.name} are"
        text += " acknowledged"
        if most:
            text += f". Up to {counted(most, 'row')} after them may be stored, too: {self.again}"
        if isinstance(error, TableNotExist):
            return text, None
        command, hidden = _command(stored)
        return f"{text}{hidden}. Continue with:", command


def with_advice(
    error: InvalidFile | SluiceError, text: str, command: str | None = None
) -> InvalidFile | SluiceError:
    """The error with a text at its end, and a command to copy if there is one."""
    details = error.details if isinstance(error, SluiceError) else {}
    longer = type(error)(f"{error.message}. {text}", **details)
    if command is not None:
        longer.add_note(command)
    return longer


@contextmanager
def nothing_sent() -> Iterator[None]:
    """Adds to errors inside that nothing was sent."""
    try:
        yield
    except (InvalidFile, SluiceError) as error:
        raise with_advice(error, "Nothing was sent") from error
    except KeyboardInterrupt:
        say("\nNothing was sent", err=True)
        raise


def _command(skip_rows: int) -> tuple[str, str]:
    """The present command from a later row on, and what to replace in it: secrets are left out."""
    context = click.get_current_context()
    arguments, options, hidden = list[str](), list[str](), ""
    for parameter in context.command.params:
        value = context.params.get(str(parameter.name))
        if value in (None, False) or parameter.name == "skip_rows":
            continue
        if not isinstance(parameter, click.Option):
            arguments.append(str(value))
            continue
        options.append(parameter.opts[0])
        if value is not True:
            shown = str(value)
            if mask(shown) != shown:
                shown = "VALUE" if "[" in (parameter.metavar or "[") else str(parameter.metavar)
                hidden += f". Replace {shown} with your {parameter.opts[0]}"
            options.append(shown)
    options += ["--skip-rows", str(skip_rows)]
    is_plain = not any(word.startswith("-") for word in arguments)
    words = [*arguments, *options] if is_plain else [*options, "--", *arguments]
    return shlex.join(["sluice", str(context.command.name), *words]), hidden
