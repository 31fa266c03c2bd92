"""What a tier task reports to OpenLineage: input and output of each table that it tiered.

Airflow's provider calls it, if it is installed and has a transport. Without it, nothing here costs
anything or imports anything. The provider asks in a forked process, in which gRPC does not work. So
the columns of the tables are read before, while the task has a client.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING, Any, Protocol

from sluice.iceberg_rules.layout import Layout
from sluice.masking import reason_text
from sluice.model import DataType, Schema, TablePath, TypeRoot
from sluice.rounds.records.result import RoundFailure, RoundResult
from sluice_airflow.outcomes.openlineage_names import DatasetName, LakeName, fluss_name, lake_name

if TYPE_CHECKING:
    from sluice.client import Client
    from sluice_airflow.config.connection import FlussConnection

log = logging.getLogger(__name__)

LISTENER = "airflow.providers.openlineage.plugins.listener"
"""The provider has imported this module in each task's process, if it is not switched off."""
SCHEMAS_S = 3.0
"""Longest time for which a task waits for the columns of the tables of one application."""
COLUMNS_MAX = 2000
"""Most columns in one event; the tables after that have none. A column takes about 500 bytes."""
SPARK_TYPES = {
    TypeRoot.BOOLEAN: "boolean",
    TypeRoot.TINYINT: "integer",
    TypeRoot.SMALLINT: "integer",
    TypeRoot.INT: "integer",
    TypeRoot.BIGINT: "long",
    TypeRoot.FLOAT: "float",
    TypeRoot.DOUBLE: "double",
    TypeRoot.CHAR: "string",
    TypeRoot.STRING: "string",
    TypeRoot.BINARY: "binary",
    TypeRoot.BYTES: "binary",
    TypeRoot.DATE: "date",
    TypeRoot.TIME: "time",
    TypeRoot.TIMESTAMP: "timestamp_ntz",
    TypeRoot.TIMESTAMP_LTZ: "timestamp",
    TypeRoot.ARRAY: "array",
    TypeRoot.MAP: "map",
    TypeRoot.ROW: "struct",
}
"""Types of the lake's columns as Spark names them, so that they equal those of its own events."""


class TriedOne(Protocol):
    """One table in one try of a tier task, as its operator knows it."""

    outcome: RoundResult | RoundFailure | None
    rounds: int
    rows_before: int

    @property
    def name(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Tiered:
    """A table whose rows this task has brought into the lake."""

    table: str
    snapshot_id: int | None
    """The lake snapshot of its last commit; None: not known."""
    rows: int | None
    """Rows that this try has written; None: an earlier try has."""
    size_bytes: int | None
    files: int | None
    layout: str = ""
    """Whether the lake table has Fluss's system columns (``Layout``); empty: not known."""


class Lineage:
    """The datasets of one try of a tier task."""

    def __init__(self, connection: FlussConnection, tables: Sequence[TriedOne]) -> None:
        """:param tables: as earlier tries have left them, whose rows are not counted again."""
        self._bootstrap, self._datalake = connection.bootstrap, connection.datalake
        ended = [(table.name, table.outcome) for table in tables]
        self._earlier = {n: end.rows for n, end in ended if isinstance(end, RoundResult)}
        self.schemas: dict[str, Schema] = {}
        """The columns of the tables that were tiered, by DATABASE.TABLE."""
        self._is_refused = False

    def read_schemas(self, client: Client, tables: Sequence[TriedOne]) -> None:
        """Reads the columns of the tables that were tiered, by one call. Never raises.

        It waits :data:`SCHEMAS_S` at most. Without an answer, the event has no columns.
        """
        if LISTENER not in sys.modules or self._is_refused:
            return
        names = {tiered.table for tiered in self.tiered(tables)} - self.schemas.keys()
        if not names:
            return
        found: dict[str, Schema] = {}
        asking = Thread(
            target=_ask, args=(client, sorted(names), found), name="sluice-lineage", daemon=True
        )
        asking.start()
        asking.join(SCHEMAS_S)
        self.schemas |= dict(found)
        if asking.is_alive():
            self._is_refused = True
            log.warning(
                "OpenLineage: the event has no columns, because the coordinator did not describe"
                " the tables within %.0f s",
                SCHEMAS_S,
            )

    def tiered(self, tables: Sequence[TriedOne]) -> list[Tiered]:
        """The tables with new rows in the lake, also those whose claim was lost after that."""
        return [found for table in tables if (found := self._tiered(table)) is not None]

    def _tiered(self, table: TriedOne) -> Tiered | None:
        outcome = table.outcome
        result = outcome.committed if isinstance(outcome, RoundFailure) else outcome
        has_written = result is not None and result.outcome != "nothing_new"
        snapshot_id = result.lake_snapshot_id if result is not None else None
        if not (has_written and snapshot_id is not None) and not table.rows_before:
            return None
        is_earlier = table.name in self._earlier and table.rounds == 1
        if is_earlier or (result is not None and result.outcome == "already_landed"):
            return Tiered(table.name, snapshot_id, None, None, None)
        rows = table.rows_before + (result.rows if result is not None else 0)
        rows -= self._earlier.get(table.name, 0)
        layout = "" if result is None else result.lake_layout
        if table.rounds > 1 or result is None:  # only the last round's are known
            return Tiered(table.name, snapshot_id, rows, None, None, layout)
        size_bytes, files = result.bytes_written, result.files
        return Tiered(table.name, snapshot_id, rows, size_bytes, files, layout)

    def facets(self, tables: Sequence[TriedOne]) -> Any:
        """Returns the provider's ``OperatorLineage``. Only the provider may call it.

        :raises ImportError: the provider, or OpenLineage's client, is not installed.
        """
        from airflow.providers.openlineage.extractors import OperatorLineage

        inputs: list[Any] = []
        outputs: list[Any] = []
        columns = 0
        for tiered in self.tiered(tables):
            source = fluss_name(self._bootstrap, tiered.table)
            schema = self.schemas.get(tiered.table)
            columns += len(schema.columns) if schema is not None else 0
            schema = schema if columns <= COLUMNS_MAX else None
            inputs.append(_input(source, schema))
            if (target := lake_name(self._datalake, tiered.table)) is not None:
                outputs.append(_output(target, source, tiered, schema))
        return OperatorLineage(inputs=inputs, outputs=outputs)


def facets_or_none(lineage: Lineage | None, tables: Sequence[TriedOne]) -> Any:
    """Returns what a tier task reports; None if nothing is known. Never raises."""
    if lineage is None:
        return None
    try:
        return lineage.facets(tables)
    except Exception as error:
        log.warning("OpenLineage: this task reports no tables: %s", reason_text(str(error)))
        return None


def _ask(client: Client, names: Sequence[str], found: dict[str, Schema]) -> None:
    paths = [TablePath.parse(name) for name in names]
    try:
        infos = client.admin.known_infos(paths)
        found.update({str(path): info.schema for path, info in infos.items()})
    except Exception as error:  # the client may be closed meanwhile
        log.info("OpenLineage: no columns of %s: %s", names[0], reason_text(str(error)))


def _input(source: DatasetName, schema: Schema | None) -> Any:
    from openlineage.client.event_v2 import InputDataset
    from openlineage.client.facet_v2 import schema_dataset

    facets: dict[str, Any] = {}
    if schema is not None:
        fields = [
            schema_dataset.SchemaDatasetFacetFields(c.name, _fluss_type(c.data_type), c.comment)
            for c in schema.columns
        ]
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields)
    return InputDataset(source.namespace, source.name, facets=facets)


def _output(target: LakeName, source: DatasetName, tiered: Tiered, schema: Schema | None) -> Any:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import output_statistics_output_dataset

    counted: dict[str, Any] = {}
    if tiered.rows is not None:
        counted["outputStatistics"] = (
            output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                tiered.rows, tiered.size_bytes, tiered.files
            )
        )
    facets: dict[str, Any] = dict(_lake_facets(target, tiered))
    if schema is not None:
        facets |= _column_facets(source, schema, tiered.layout)
    namespace, name = target.dataset
    return OutputDataset(namespace, name, facets=facets, outputFacets=counted)


def _lake_facets(target: LakeName, tiered: Tiered) -> Iterator[tuple[str, Any]]:
    from openlineage.client.facet_v2 import (
        dataset_version_dataset,
        storage_dataset,
        symlinks_dataset,
    )

    yield "storage", storage_dataset.StorageDatasetFacet("iceberg", "parquet")
    if tiered.snapshot_id is not None:
        version = str(tiered.snapshot_id)
        yield "version", dataset_version_dataset.DatasetVersionDatasetFacet(version)
    if target.symlink is not None:
        symlink = symlinks_dataset.Identifier(*target.symlink, type="TABLE")
        yield "symlinks", symlinks_dataset.SymlinksDatasetFacet([symlink])


def _column_facets(source: DatasetName, schema: Schema, layout: str) -> Mapping[str, Any]:
    """The lake's columns: those of the Fluss table unchanged, then those of its layout."""
    from openlineage.client.facet_v2 import column_lineage_dataset as lineage
    from openlineage.client.facet_v2 import schema_dataset

    columns = [(c.name, _spark_type(c.data_type), c.comment) for c in schema.columns]
    system = Layout(layout).system_columns if layout else ()
    columns += [(one.name, _spark_type(one.data_type), None) for one in system]
    fields = [schema_dataset.SchemaDatasetFacetFields(*column) for column in columns]
    unchanged = [lineage.Transformation("DIRECT", "IDENTITY", "", False)]
    origins = {
        column.name: lineage.Fields([lineage.InputField(*source, column.name, unchanged)])
        for column in schema.columns
    }
    return {
        "schema": schema_dataset.SchemaDatasetFacet(fields),
        "columnLineage": lineage.ColumnLineageDatasetFacet(origins),
    }


def _fluss_type(data_type: DataType) -> str:
    return str(data_type).removesuffix(" NOT NULL")


def _spark_type(data_type: DataType) -> str:
    if data_type.root is TypeRoot.DECIMAL:
        return f"decimal({data_type.precision},{data_type.scale})"
    return SPARK_TYPES[data_type.root]
