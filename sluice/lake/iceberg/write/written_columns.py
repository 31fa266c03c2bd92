"""The columns of a writer's files, and the rows that it gets, in the lake's names and types.

A file has each column of the lake that the Fluss table has a value for, and the layout's system
columns. Columns that only the lake has are left out: readers show null for them, and a compaction
keeps the values that others have written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sluice.errors import LakeTableMismatch, UnsupportedType
from sluice.iceberg_rules.layout import Role, system_roles
from sluice.iceberg_rules.matched_schema import WrittenColumn
from sluice.lake.iceberg.deletes.live_rows import LINEAGE
from sluice.lake.iceberg.write.arrow import arrow_schema, to_lake
from sluice.model import COMMIT_TIMESTAMP, LOG_OFFSET
from sluice.rounds.values.types import LogRecords


class WrittenColumns:
    """The columns that one writer writes. Immutable."""

    def __init__(self, schema: dict[str, Any], columns: Sequence[WrittenColumn]) -> None:
        """:param schema: the lake's, as Iceberg's JSON.
        :param columns: those of the Fluss table; none if only deletes are written.
        """
        self._schema = schema
        self._sources = {str(one.field["name"]): one.source for one in columns}
        self._roles = system_roles([one["name"] for one in schema["fields"]])
        system = [one for one in schema["fields"] if one["name"] in self._roles]
        self.rows = arrow_schema({"fields": [*(dict(one.field) for one in columns), *system]})
        """The columns of data files, with Iceberg's field ids."""
        ids = set(schema.get("identifier-field-ids", ()))
        self.keys = arrow_schema({"fields": [one for one in schema["fields"] if one["id"] in ids]})
        """The columns of equality deletes: the identifier fields of the lake's schema."""

    def all_columns(self) -> pa.Schema:
        """All columns of the lake.

        :raises UnsupportedType: another engine has added a column of a type that Fluss lacks.
        """
        return arrow_schema(self._schema)

    def check_lineage(self, *, as_vectors: bool) -> None:
        """Checks that a compaction can keep the ids of rows, in a table whose rows have some.

        :raises UnsupportedType: a column of the user has the name of such an id.
        """
        names = {one["name"] for one in self._schema["fields"]}
        taken = [one.name for one in LINEAGE if as_vectors and one.name in names]
        if taken:
            raise UnsupportedType(
                f"column {taken[0]} has the name of Iceberg's ids of rows: small files stay"
            )

    def of_log(self, records: Sequence[LogRecords], bucket: int) -> pa.Table:
        """One table of log batches.

        :raises LakeTableMismatch: a value would be dropped, or a column is missing.
        :raises UnsupportedType: a value does not fit the lake's type.
        """
        rows = pa.Table.from_batches([one.batch for one in records])
        if rows.num_rows < 1_000 * len(records):
            rows = rows.combine_chunks()
        self.check(rows)
        system: dict[Role, Any] = {}
        if self._roles:
            counts = [one.batch.num_rows for one in records]
            stamps = np.array([one.timestamp_ms for one in records], dtype=np.int64) * 1000
            system = {
                Role.BUCKET: _bucket(rows.num_rows, bucket),
                Role.OFFSET: pa.chunked_array(
                    [
                        np.arange(one.base_offset, one.base_offset + n, dtype=np.int64)
                        for one, n in zip(records, counts, strict=True)
                    ]
                ),
                Role.TIMESTAMP: pa.array(np.repeat(stamps, counts)).view(_STAMP),
            }
        return self._in_lake_types(rows, system, self.rows)

    def of_rows(self, rows: pa.Table, bucket: int) -> pa.Table:
        """Rows of a primary-key table, which come with ``_log_offset`` and ``_commit_timestamp``.

        :raises UnsupportedType: a value does not fit the lake's type.
        """
        system: dict[Role, Any] = {}
        if self._roles:
            system = {
                Role.BUCKET: _bucket(rows.num_rows, bucket),
                Role.OFFSET: rows.column(LOG_OFFSET),
                Role.TIMESTAMP: rows.column(COMMIT_TIMESTAMP),
            }
        return self._in_lake_types(rows, system, self.rows)

    def of_keys(self, keys: pa.Table) -> pa.Table:
        """Keys.

        :raises UnsupportedType: a value does not fit the lake's type.
        """
        return self._in_lake_types(keys, {}, self.keys)

    def check(self, rows: pa.Table) -> None:
        """Checks that no value is dropped: a column that the lake lacks must contain only nulls.

        This holds for a column that was added after the round was planned, because rows below the
        stop offsets have no value in it.

        :raises LakeTableMismatch: names the column.
        """
        expected = set(self._sources.values())
        for name in set(rows.schema.names) - {LOG_OFFSET, COMMIT_TIMESTAMP}:
            if name not in expected and rows.column(name).null_count < rows.num_rows:
                raise LakeTableMismatch(
                    f"the log has values in column {name}, which the lake table lacks. The next"
                    " round adds the column"
                )
        if missing := expected - set(rows.schema.names):
            raise LakeTableMismatch(f"the log lacks columns {sorted(missing)} of the lake table")

    def _in_lake_types(
        self, rows: pa.Table, system: Mapping[Role, Any], schema: pa.Schema
    ) -> pa.Table:
        """:raises UnsupportedType: names the column."""
        columns = []
        for field in schema:
            role = self._roles.get(field.name)
            column = rows.column(self._sources[field.name]) if role is None else system[role]
            try:
                columns.append(to_lake(column, field.type))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
                raise UnsupportedType(
                    f"column {field.name}: a {column.type} value does not fit the lake's type"
                    f" {field.type}: {error}"
                ) from error
        return pa.Table.from_arrays(columns, schema=schema)


_STAMP = pa.timestamp("us", tz="UTC")


def _bucket(rows: int, bucket: int) -> pa.Array:
    return pa.array(np.full(rows, bucket, dtype=np.int32))
