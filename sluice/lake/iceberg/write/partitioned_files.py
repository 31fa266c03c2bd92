"""Writes the rows of a split to a file for each partition of the user's own fields.

Memory: twice ``row_group_bytes`` of rows of all partitions together, plus one table, and the
encoders and upload buffers of at most ``OPEN_MAX`` files. With more partitions, the file that was
not written for longest ends.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from sluice.errors import UnsupportedLakeOption
from sluice.iceberg_rules.layout import PartField, PartKind
from sluice.iceberg_rules.types import quoted
from sluice.lake.iceberg.write.partition_transforms import partition_codes
from sluice.lake.parquet.writer import FileTarget, ParquetFiles, WriteOptions
from sluice.rounds.values.lake_files import DataFile

OPEN_MAX = 64
"""Files that are open at a time."""
PARTITIONS_MAX = 10_000
"""Partitions of a split: each is a file at least, of which a commit reads the footer."""
_Partition = tuple[str | None, ...]
_NAME_BYTES_MAX = 100
"""Of a value in a folder's name; file systems allow 255 bytes."""


class PartitionedFiles:
    """Writes Arrow tables to data files, one partition each. Used by one thread."""

    def __init__(
        self, target: FileTarget, options: WriteOptions, fields: Sequence[PartField]
    ) -> None:
        """:param target: its partition has the values of the partition keys alone."""
        self._target, self._options, self._fields = target, options, tuple(fields)
        self._numbers: dict[_Partition, int] = {}
        """Of the partitions, in the order in which they were first seen."""
        self._held: list[pa.Table] = []
        """Rows that are not written yet, in their order."""
        self._owners: list[np.ndarray] = []
        """The number of each one's partition."""
        self._open: dict[_Partition, ParquetFiles] = {}  # the oldest use first
        self._made = 0
        self._files: list[DataFile] = []

    def write_group(self, table: pa.Table) -> None:
        """Writes rows, and may keep some for larger row groups.

        :raises LakeNotWritable: the storage refuses, or is full.
        :raises UnsupportedLakeOption: rounds do not support a transform for its column, or the rows
            are in too many partitions.
        """
        self._owners.append(self._partitions_of(table))
        self._held.append(table)
        if sum(one.nbytes for one in self._held) > self._options.row_group_bytes:
            self._write(self._options.row_group_bytes // 2)

    def close(self) -> tuple[DataFile, ...]:
        """Finishes all files and returns them.

        :raises LakeNotWritable: the storage refuses, or is full.
        """
        self._write(0)
        while self._open:
            self._finish_oldest()
        return tuple(self._files)

    def abort(self) -> None:
        """Deletes all files that were written."""
        self._held.clear()
        self._owners.clear()
        for files in self._open.values():
            files.abort()
        self._open.clear()
        self._target.files.try_to_delete(file.path for file in self._files)
        self._files.clear()

    def _partitions_of(self, table: pa.Table) -> np.ndarray:
        """The number of each row's partition."""
        codes = np.zeros(table.num_rows, np.int64)
        texts: list[_Partition] = [()]
        for field in self._fields:
            if field.kind is PartKind.KEY:
                continue
            values: list[str | None]
            more, values = np.zeros(table.num_rows, np.int64), [None]
            if field.column in table.column_names:
                more, values = partition_codes(table.column(field.column), field.transform)
            codes = codes * len(values) + more
            used, codes = np.unique(codes, return_inverse=True)
            texts = [(*texts[one // len(values)], values[one % len(values)]) for one in used]
        numbers = [self._number(self._partition(own)) for own in texts]
        return np.array(numbers, np.int64)[codes]

    def _partition(self, own: _Partition) -> _Partition:
        keys, more = iter(self._target.partition), iter(own)
        return tuple(next(keys if one.kind is PartKind.KEY else more) for one in self._fields)

    def _number(self, partition: _Partition) -> int:
        found = self._numbers.setdefault(partition, len(self._numbers))
        if found >= PARTITIONS_MAX:
            own = [one for one in self._fields if one.kind is not PartKind.KEY]
            raise UnsupportedLakeOption(
                f"{self._target.uri}: one bucket of a round has rows of more than {PARTITIONS_MAX}"
                f" partitions of {', '.join(one.name for one in own)}, and each needs a file of its"
                " own. Choose fewer partitions, in Spark SQL: ALTER TABLE ... REPLACE PARTITION"
                f" FIELD {quoted(own[-1].name)} WITH bucket(16, {quoted(own[-1].column)})"
            )
        return found

    def _write(self, kept_bytes: int) -> None:
        """Writes the rows of the largest partitions, until the others have so many bytes."""
        if not self._held:
            return
        rows, owners = pa.concat_tables(self._held), np.concatenate(self._owners)
        self._held.clear()
        self._owners.clear()
        counts = np.bincount(owners)
        order, ends = np.argsort(owners, kind="stable"), np.cumsum(counts)
        kept_rows = kept_bytes * len(owners) // max(rows.nbytes, 1)
        if np.count_nonzero(counts) > 1:
            rows = rows.take(pa.array(order))
        left, partitions = len(owners), list(self._numbers)
        for number in np.argsort(-counts, kind="stable").tolist():
            if left <= kept_rows:
                break
            count, end = int(counts[number]), int(ends[number])
            self._append(partitions[number], rows.slice(end - count, count))
            counts[number] = 0
            left -= count
        if left:
            is_left = counts[owners[order]] > 0
            self._held.append(rows.filter(pa.array(is_left)))
            self._owners.append(owners[order][is_left])

    def _append(self, partition: _Partition, rows: pa.Table) -> None:
        """Writes rows of one partition."""
        if not rows.num_rows:
            return
        files = self._open.pop(partition, None)
        if files is None:
            if len(self._open) >= OPEN_MAX:
                self._finish_oldest()
            files = self._new(partition)
        self._open[partition] = files
        files.write_group(rows.combine_chunks())

    def _new(self, partition: _Partition) -> ParquetFiles:
        self._made += 1
        places = zip(self._fields, partition, strict=True)
        folder = "/".join(f"{_short(one.name)}={_short(text)}" for one, text in places)
        target = replace(
            self._target,
            uri=f"{self._target.uri}/{folder}",
            prefix=f"{self._target.prefix}-in{self._made}",  # clean-up looks at names alone
            partition=partition,
        )
        return ParquetFiles(target, self._options)

    def _finish_oldest(self) -> None:
        partition = next(iter(self._open))
        files = self._open.pop(partition)
        try:
            self._files += files.close()
        except BaseException:
            self._open[partition] = files  # so that abort() deletes what there is
            raise


def _short(text: str | None) -> str:
    """A part of a folder's name; of a long one a hash. Iceberg takes no value from a path."""
    text = "null" if text is None else text
    found = quote(text, safe="")
    if len(found) <= _NAME_BYTES_MAX:
        return found
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
