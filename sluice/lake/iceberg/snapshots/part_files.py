"""Finds the files of partitions and buckets of an Iceberg table, which a commit removes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sluice.errors import LakeCommitRefused
from sluice.iceberg_rules.layout import PartFields, found_part_fields
from sluice.lake.iceberg.catalog.java import iterate, java_list
from sluice.lake.iceberg.catalog.loaded_table import LoadedTable
from sluice.model import TablePath
from sluice.rounds.values.types import LakePart

_NULL_TEXT = "__HIVE_DEFAULT_PARTITION__"
"""What Iceberg takes for null where it reads a partition from texts (``Conversions``)."""


def partition_of(gateway: Any, spec: Any, values: Sequence[str | None]) -> Any:
    """A partition of a spec from one text for each of its fields; None is null."""
    builder = gateway.jvm.org.apache.iceberg.DataFiles.builder(spec)
    builder = builder.withPath("unused").withFormat("parquet")
    builder = builder.withFileSizeInBytes(0).withRecordCount(0)
    found = builder.withPartitionValues(java_list(gateway, values)).build().partition()
    for place, value in enumerate(values):
        if value == _NULL_TEXT:
            found.set(place, value)
    return found


class PartFiles:
    """The files of one table by partition and bucket, as of the last refresh."""

    def __init__(self, gateway: Any, loaded: LoadedTable, path: TablePath) -> None:
        self._gateway, self._loaded, self._path = gateway, loaded, path
        self._compared: tuple[PartFields, int] | None = None
        """As they were compared with those of the Fluss table, and the id of their spec."""

    def remove_partitions(self, delta: Any, partitions: Sequence[tuple[str, ...]]) -> None:
        """Removes the data files of these partitions."""
        tasks = self._loaded.java.newScan().filter(self.row_filter(partitions)).planFiles()
        try:
            for task in iterate(tasks):
                delta.removeRows(task.file())
        finally:
            tasks.close()

    def remove_buckets(self, delta: Any, buckets: Sequence[LakePart]) -> None:
        """Removes the data files of exactly these buckets, and the delete files that apply to them.

        :raises LakeCommitRefused: a file was written with another partition spec, so its bucket is
            unknown.
        """
        spec, fields = self.spec(), self.fields()
        wanted = {
            spec.partitionToPath(
                partition_of(
                    self._gateway, spec, fields.partition(part.partition_values, part.bucket or 0)
                )
            )
            for part in buckets
        }
        values = [part.partition_values for part in buckets]
        removed: set[tuple[str, int | None]] = set()
        tasks = self._loaded.java.newScan().filter(self.row_filter(values)).planFiles()
        try:
            for task in iterate(tasks):
                for file, place, remove in (
                    (task.file(), None, delta.removeRows),
                    *((d, d.contentOffset(), delta.removeDeletes) for d in iterate(task.deletes())),
                ):
                    if file.specId() != spec.specId():
                        raise LakeCommitRefused(self.other_spec(f"file {file.location()}"))
                    if spec.partitionToPath(file.partition()) not in wanted:
                        continue
                    one = (str(file.location()), place)  # vectors of one file differ in their place
                    if one not in removed:
                        removed.add(one)
                        remove(file)
        finally:
            tasks.close()

    def check_specs(self) -> None:
        """Checks that deletes reach every row: those of one partition spec do not reach another's.

        :raises LakeCommitRefused: main has data files of another spec than the table's current one.
        """
        snapshot = self._loaded.java.currentSnapshot()
        if snapshot is None or self._loaded.java.specs().size() == 1:
            return
        own = self._loaded.java.spec().specId()
        for manifest in iterate(snapshot.dataManifests(self._loaded.java.io())):
            has_files = manifest.hasAddedFiles() or manifest.hasExistingFiles()
            if has_files and manifest.partitionSpecId() != own:
                raise LakeCommitRefused(self.other_spec(f"a file of {manifest.path()}"))

    def other_spec(self, file: str) -> str:
        """Why no rows of such a file can be deleted, and what to do."""
        return (
            f"lake table {self._path}: {file} has another partition spec, so its bucket is unknown."
            " Nothing was committed. Rewrite the table's files first, in Spark SQL: CALL CATALOG."
            f"system.rewrite_data_files(table => '{self._path}', options => map('rewrite-all',"
            " 'true'))"
        )

    def wide_filter(self, partitions: Sequence[tuple[str, ...]]) -> Any:
        """A filter for rows of these partitions, which may let rows of others through.

        Its depth does not depend on how many there are: Java's stack ends at some thousands.
        """
        expressions = self._gateway.jvm.org.apache.iceberg.expressions.Expressions
        found = expressions.alwaysTrue()
        columns = self.fields().key_columns
        for column, values in zip(columns, zip(*partitions, strict=True), strict=True):
            values_of = java_list(self._gateway, sorted(set(values)))
            found = getattr(expressions, "and")(
                found, getattr(expressions, "in")(column, values_of)
            )
        return found

    def row_filter(self, partitions: Sequence[tuple[str, ...]]) -> Any:
        """The filter for rows of these partitions, by the columns of the partition keys."""
        expressions = self._gateway.jvm.org.apache.iceberg.expressions.Expressions
        columns, found = self.fields().key_columns, expressions.alwaysFalse()
        for values in partitions:
            one = expressions.alwaysTrue()
            for column, value in zip(columns, values, strict=True):
                one = getattr(expressions, "and")(one, expressions.equal(column, value))
            found = getattr(expressions, "or")(found, one)
        return found

    def fields(self) -> PartFields:
        """The table's partition fields, as they were last compared with those of Fluss."""
        return self._compared[0] if self._compared else self.found()

    def compared(self, fields: PartFields) -> None:
        """Keeps the fields of the current spec, as they were compared with those of Fluss."""
        self._compared = fields, int(self._loaded.java.spec().specId())

    def spec(self) -> Any:
        """Iceberg's spec with these fields. Others may change the table's spec during a round.

        The files of a round were divided by this one, and Iceberg takes files of older specs.
        """
        table = self._loaded.java
        return table.specs().get(self._compared[1]) if self._compared else table.spec()

    def found(self) -> PartFields:
        """The partition fields in the metadata that was read last."""
        jvm, table = self._gateway.jvm, self._loaded.java
        return found_part_fields(schema_json(jvm, table), spec_json(jvm, table))


def schema_json(jvm: Any, table: Any) -> dict[str, Any]:
    """The schema of Iceberg's table object, as its JSON."""
    return dict(json.loads(jvm.org.apache.iceberg.SchemaParser.toJson(table.schema())))


def spec_json(jvm: Any, table: Any) -> dict[str, Any]:
    """The partition spec of Iceberg's table object, as its JSON."""
    return dict(json.loads(jvm.org.apache.iceberg.PartitionSpecParser.toJson(table.spec())))
