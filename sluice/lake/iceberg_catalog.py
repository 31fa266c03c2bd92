"""The Lake port on Iceberg's own catalogs, in the driver's JVM.

See docs/fluss/iceberg.md#tables
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from functools import reduce
from typing import Any

from py4j.java_gateway import JavaClass

from sluice.artifacts.iceberg import CATALOGS, FENCE
from sluice.config import TieringConfig
from sluice.errors import ConfigurationError, LakeNotWritable
from sluice.lake.iceberg_schema import schema_json, sort_order_json, spec_json, table_properties
from sluice.lake.iceberg_table import IcebergTable
from sluice.lake.java import JavaThrew, ensure_callbacks, java_errors, java_map, lake_errors
from sluice.model import TableInfo, TablePath

_LOG = logging.getLogger(__name__)
CATALOG_NAME = "fluss-iceberg-catalog"  # the name that Fluss gives it
_HADOOP_PREFIX = "hadoop."


class IcebergLake:
    """The tables of one Iceberg catalog. Immutable; used by one thread."""

    def __init__(
        self,
        gateway: Any,
        properties: Mapping[str, str],
        tiering: TieringConfig | None = None,
        hadoop_conf: Any = None,
    ) -> None:
        """Opens the catalog; ``properties`` are ``datalake.iceberg.*`` without that prefix.

        :raises ConfigurationError: the JVM has no Iceberg, or one that is too old.
        :raises LakeNotWritable: the catalog cannot be opened.
        """
        self._gateway = gateway
        self._tiering = tiering or TieringConfig()
        self.options: Mapping[str, str] = dict(properties)
        ensure_callbacks(gateway)
        conf = hadoop_conf or gateway.jvm.org.apache.hadoop.conf.Configuration()
        for key, value in properties.items():
            if key.startswith(_HADOOP_PREFIX):
                conf.set(key.removeprefix(_HADOOP_PREFIX), value)
        name = properties.get("name", CATALOG_NAME)
        where = properties.get("warehouse") or properties.get("uri") or "no warehouse configured"
        # For messages. Not the URI, because a JDBC URI may contain a password.
        self.where = properties.get("warehouse") or f"catalog {name}"
        with lake_errors(f"open Iceberg catalog {name} ({where})"):
            _check_classes(gateway.jvm)
            self._catalog = gateway.jvm.org.apache.iceberg.CatalogUtil.buildIcebergCatalog(
                name, java_map(gateway, properties), conf
            )

    def load(self, path: TablePath) -> IcebergTable | None:
        """The table, or None if the catalog has none of that name.

        :raises LakeNotWritable: the catalog or the storage cannot be read.
        """
        with lake_errors(f"load lake table {path}"):
            try:
                with java_errors():
                    return self._table(path, self._catalog.loadTable(self._identifier(path)))
            except JavaThrew as thrown:
                if thrown.kind in ("NoSuchTableException", "NoSuchNamespaceException"):
                    return None
                raise

    def create(self, info: TableInfo) -> IcebergTable:
        """Creates the table exactly as Fluss would, or returns one that exists by now.

        :raises LakeNotWritable: the catalog or the storage refuses.
        """
        iceberg = self._gateway.jvm.org.apache.iceberg
        content = schema_json(info)
        spec_content = spec_json(info, content)
        with lake_errors(f"create lake table {info.path}"):
            schema = iceberg.SchemaParser.fromJson(json.dumps(content))
            spec = iceberg.PartitionSpecParser.fromJson(schema, json.dumps(spec_content))
            order = iceberg.SortOrderParser.fromJson(schema, json.dumps(sort_order_json(content)))
            self._ensure_namespace(info.path.database)
            builder = self._catalog.buildTable(self._identifier(info.path), schema)
            builder = builder.withPartitionSpec(spec).withSortOrder(order)
            builder = builder.withProperties(java_map(self._gateway, table_properties(info)))
            try:
                with java_errors():
                    return self._table(info.path, builder.create())
            except JavaThrew as thrown:
                if thrown.kind != "AlreadyExistsException":  # another process created it first
                    raise
            return self._table(info.path, self._catalog.loadTable(self._identifier(info.path)))

    def close(self) -> None:
        """Closes the catalog's connections, but not the gateway. Never raises.

        A failure to close is only logged, so that it does not replace the result of a round.
        """
        try:
            with lake_errors("close the Iceberg catalog"):
                self._catalog.close()
        except LakeNotWritable as error:
            _LOG.warning("%s", error)

    def _ensure_namespace(self, database: str) -> None:
        namespace = self._identifier(TablePath(database, "x")).namespace()
        if self._catalog.namespaceExists(namespace):
            return
        try:
            with java_errors():
                self._catalog.createNamespace(namespace)
        except JavaThrew as thrown:
            if thrown.kind != "AlreadyExistsException":  # another process created it first
                raise

    def _identifier(self, path: TablePath) -> Any:
        return self._gateway.jvm.org.apache.iceberg.catalog.TableIdentifier.parse(str(path))

    def _table(self, path: TablePath, table: Any) -> IcebergTable:
        return IcebergTable(self._gateway, table, path, self.options, self._tiering)


def _check_classes(jvm: Any) -> None:
    """Checks that the JVM has Iceberg; py4j reports a missing class only when it is called.

    :raises ConfigurationError: names the missing class, and the settings that provide it.
    """
    for name, problem in ((CATALOGS, "is missing"), (FENCE, "is too old for Sluice")):
        if not isinstance(reduce(getattr, name.split("."), jvm), JavaClass):
            raise ConfigurationError(
                f"Iceberg's runtime {problem} on Spark's class path (no class {name}). Set it with"
                " jars or packages in section sluice of airflow.cfg or in the DAG file, --jars or"
                " --packages of spark-submit, or tiering.jars of `sluice tier`"
            )
