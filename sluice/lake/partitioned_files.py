"""Writes the rows of a split to a file for each partition of the user's own fields.

Memory: ``row_group_bytes`` of rows in all partitions together, plus one table, and the encoders of
at most ``OPEN_MAX`` files. With more partitions, the file that was not written for longest ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from sluice.iceberg_rules.layout import PartField, PartKind
from sluice.lake.parquet_files import FileTarget, ParquetFiles, WriteOptions
from sluice.lake.partition_transforms import NULL, partition_codes
from sluice.rounds.lake_files import DataFile

OPEN_MAX = 64
"""Files that are open at a time."""


class PartitionedFiles:
    """Writes Arrow tables to data files, one partition each. Used by one thread."""

    def __init__(
        self, target: FileTarget, options: WriteOptions, fields: Sequence[PartField]
    ) -> None:
        """:param target: its partition has the values of the partition keys alone."""
        self._target, self._options, self._fields = target, options, tuple(fields)
        self._pending: dict[tuple[str, ...], list[pa.Table]] = {}
        self._bytes: dict[tuple[str, ...], int] = {}
        self._open: dict[tuple[str, ...], ParquetFiles] = {}  # the oldest use first
        self._made = 0
        self._files: list[DataFile] = []

    def write_group(self, table: pa.Table) -> None:
        """Writes rows, and may keep some for larger row groups.

        :raises LakeNotWritable: the storage refuses, or is full.
        :raises UnsupportedLakeOption: rounds do not support a transform for its column.
        """
        for partition, rows in self._divided(table):
            self._pending.setdefault(partition, []).append(rows)
            self._bytes[partition] = self._bytes.get(partition, 0) + rows.nbytes
        while sum(self._bytes.values()) > self._options.row_group_bytes:
            self._write(max(self._bytes, key=lambda one: self._bytes[one]))

    def close(self) -> tuple[DataFile, ...]:
        """Finishes all files and returns them.

        :raises LakeNotWritable: the storage refuses, or is full.
        """
        for partition in sorted(self._pending):
            self._write(partition)
        while self._open:
            self._finish_oldest()
        return tuple(self._files)

    def abort(self) -> None:
        """Deletes all files that were written."""
        self._pending.clear()
        self._bytes.clear()
        for files in self._open.values():
            files.abort()
        self._open.clear()
        for file in self._files:
            self._target.files.delete(file.path)
        self._files.clear()

    def _divided(self, table: pa.Table) -> Iterator[tuple[tuple[str, ...], pa.Table]]:
        """The rows of each partition, in their order."""
        codes, texts = np.zeros(table.num_rows, np.int64), [()]
        for field in self._fields:
            if field.kind is PartKind.KEY:
                continue
            more, values = np.zeros(table.num_rows, np.int64), [NULL]
            if field.column in table.column_names:
                more, values = partition_codes(table.column(field.column), field.transform)
            codes = codes * len(values) + more
            used, codes = np.unique(codes, return_inverse=True)
            texts = [(*texts[one // len(values)], values[one % len(values)]) for one in used]
        order = np.argsort(codes, kind="stable")
        ends = np.searchsorted(codes[order], np.arange(len(texts)), side="right")
        start = 0
        for own, end in zip(texts, ends.tolist(), strict=True):
            rows = table if len(texts) == 1 else table.take(pa.array(order[start:end]))
            yield self._partition(own), rows
            start = end

    def _partition(self, own: tuple[str, ...]) -> tuple[str, ...]:
        keys, more = iter(self._target.partition), iter(own)
        return tuple(next(keys if one.kind is PartKind.KEY else more) for one in self._fields)

    def _write(self, partition: tuple[str, ...]) -> None:
        """Writes the rows of a partition that were kept."""
        tables, _ = self._pending.pop(partition), self._bytes.pop(partition)
        files = self._open.pop(partition, None)
        if files is None:
            if len(self._open) >= OPEN_MAX:
                self._finish_oldest()
            files = self._new(partition)
        self._open[partition] = files
        files.write_group(pa.concat_tables(tables).combine_chunks())

    def _new(self, partition: tuple[str, ...]) -> ParquetFiles:
        self._made += 1
        places = zip(self._fields, partition, strict=True)
        folder = "/".join(f"{quote(one.name)}={quote(text, safe='')}" for one, text in places)
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
