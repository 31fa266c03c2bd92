"""The last change of each key in a window of a changelog, on an executor.

An equality delete reaches only rows of earlier lake commits. So a round may write one row and one
delete for a key at most, whatever happened to it in between, and of the snapshot that it reads
beside the log only the rows whose keys the log does not change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from sluice.rounds.types import LogRecords


@dataclass(frozen=True, slots=True)
class ChangedKeys:
    """What a window did to some of its keys; the parts of one window have no key in common."""

    upserts: pa.Table
    """Rows of the keys whose last change is a row, in log order: the columns of the schema, then
    ``__offset`` (int64) and ``__timestamp`` (timestamp[us, UTC]) of that change."""
    delete_keys: pa.Table
    """The key columns, in the key's order, of each key that may have a row in the lake from before
    the window: its first change is not an insert. Also where its last change is a row."""


class LastChanges:
    """Reduces one bucket's window of a changelog. Used by one thread, as a context manager.

        with LastChanges(schema, ("id",), memory_limit_bytes=n, spill_dir=folder) as changes:
            for records in source.read(split):
                changes.add(records)
            for part in changes.parts():  # write part.upserts, part.delete_keys
            for rows in changes.without(snapshot):  # write rows

    Keys are compared as values, floating point numbers as bits.
    """

    def __init__(
        self,
        schema: pa.Schema,
        key_columns: Sequence[str],
        *,
        memory_limit_bytes: int,
        spill_dir: Path,
        known_empty: bool = False,
    ) -> None:
        """:param schema: of all rows that are added.

        :param key_columns: the primary key, in its order.
        :param memory_limit_bytes: of Arrow data and of what the reduction needs beside it.
        :param spill_dir: a local folder for what goes beyond; made when it is first needed.
        :param known_empty: the bucket has no row in the lake yet: no key needs a delete.
        :raises UnsupportedType: for a key column that no Fluss key can have.
        """
        raise NotImplementedError

    def __enter__(self) -> LastChanges:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def add(self, records: LogRecords) -> None:
        """Takes the next batch of the log, in the order of its offsets.

        :raises CorruptRecord: a change type that is not known, or none at all.
        :raises SpillFailed: the spill folder is full, or refuses.
        """
        raise NotImplementedError

    def parts(self) -> Iterator[ChangedKeys]:
        """After the last ``add``: all keys of the window, in parts that fit the memory limit.

        One part where nothing was spilled; none where the window has no change. Let a part go
        before asking for the next one.

        :raises SpillFailed: what was spilled cannot be read.
        """
        raise NotImplementedError

    def without(self, snapshot: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """After the last ``add``: the rows of a snapshot whose key the window does not change.

        :param snapshot: batches of the same schema, any number of them; taken one at a time.
        :raises SpillFailed: as ``add`` and ``parts``.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Removes all spill files."""
        raise NotImplementedError
