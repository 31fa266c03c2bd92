"""The Lake port on Iceberg's own catalogs, in the driver's JVM.

See docs/fluss/iceberg.md#tables
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import reduce
from typing import Any

from py4j.java_gateway import JavaClass

from sluice.artifacts.iceberg import CATALOGS, FENCE
from sluice.catalog_options import name_of, with_client_defaults
from sluice.config import TieringConfig
from sluice.errors import ConfigurationError, LakeNotWritable, SluiceError
from sluice.iceberg_rules.layout import Layout
from sluice.iceberg_rules.own_parts import with_own_fields
from sluice.lake.iceberg.catalog import write_check
from sluice.lake.iceberg.catalog.file_io import hadoop_storage
from sluice.lake.iceberg.catalog.java import (
    JavaThrew,
    JvmLost,
    ensure_callbacks,
    java_errors,
    java_map,
    lake_errors,
)
from sluice.lake.iceberg.catalog.loaded_table import LakeOptions, LoadedTable
from sluice.lake.iceberg.catalog.write_check import NothingWritten, StoreReport
from sluice.lake.iceberg.schema import schema_json, sort_order_json, spec_json, table_properties
from sluice.lake.iceberg.table import IcebergTable
from sluice.lake.storage.file_systems import FileSystems
from sluice.lake.storage.keys_file import KeysFile
from sluice.model import TableInfo, TablePath

_LOG = logging.getLogger(__name__)
_HADOOP_PREFIX = "hadoop."
_NOT_STAGED = ("BadRequestException", "UnsupportedOperationException", "RESTException")
_STAGING = re.compile(r"(?i)stage.?create|staged")
"""What a catalog says that refuses staged tables: S3 Tables, "Stage-create is currently not
supported"."""
_NO_NAMESPACE = ("NoSuchNamespaceException", "EntityNotFoundException")
"""What staging throws if there is no namespace; Glue's client throws AWS's own."""
_CREATED_ALREADY = ("AlreadyExistsException", "CommitFailedException")
"""What Iceberg throws if another process has created the table first."""


class IcebergLake:
    """The tables of one Iceberg catalog. Immutable; used by one thread."""

    def __init__(
        self,
        gateway: Any,
        properties: Mapping[str, str],
        tiering: TieringConfig | None = None,
        hadoop_conf: Any = None,
        keys_uri: str = "",
    ) -> None:
        """Opens the catalog; ``properties`` are ``datalake.iceberg.*`` without that prefix.

        :param keys_uri: the beginning of the addresses of files through which executors get
            renewed keys of a table's storage; empty: there are no executors.
        :raises ConfigurationError: the JVM has no Iceberg, or one that is too old.
        :raises LakeNotWritable: the catalog cannot be opened.
        """
        self._gateway = gateway
        self._tiering = tiering or TieringConfig()
        self.options: Mapping[str, str] = dict(properties)
        properties = with_client_defaults(properties)
        ensure_callbacks(gateway)
        conf = hadoop_conf or gateway.jvm.org.apache.hadoop.conf.Configuration()
        for key, value in properties.items():
            if key.startswith(_HADOOP_PREFIX):
                conf.set(key.removeprefix(_HADOOP_PREFIX), value)
        name = name_of(properties)
        where = properties.get("warehouse") or properties.get("uri") or "no warehouse configured"
        # For messages. Not the URI, because a JDBC URI may contain a password.
        self.where = properties.get("warehouse") or f"catalog {name}"
        with lake_errors(f"open Iceberg catalog {name} ({where})"):
            _check_classes(gateway.jvm)
            self._catalog = gateway.jvm.org.apache.iceberg.CatalogUtil.buildIcebergCatalog(
                name, java_map(gateway, properties), conf
            )
            hadoop = hadoop_storage(gateway, conf)
        self._load_options = LakeOptions(self.options, hadoop, keys_uri)
        self._keys_file: KeysFile | None = None

    def load(self, path: TablePath) -> IcebergTable | None:
        with lake_errors(f"load lake table {path}"):
            try:
                with java_errors():
                    found = self._catalog.loadTable(self._identifier(path))
            except JavaThrew as thrown:
                if thrown.kind in ("NoSuchTableException", "NoSuchNamespaceException"):
                    return None
                raise
            return self._table(path, found)

    def create(
        self,
        info: TableInfo,
        layout: Layout = Layout.CLEAN,
        partition_by: Sequence[str] = (),
    ) -> IcebergTable:
        """Creates the table exactly as Fluss would, or returns one that exists by now.

        The table is staged first: the catalog tells how its files are reached, and nothing is
        created that rounds could not write.

        :param partition_by: partition fields of the user's own, as ``own_field`` reads them.
        :raises LakeNotWritable: the catalog or the storage refuses.
        :raises UnsupportedLakeOption: only Iceberg's own client could write the table's files.
        :raises ConfigurationError: the table cannot have these partition fields.
        """
        with lake_errors(f"create lake table {info.path}"):
            builder = self._builder(info, layout, partition_by)
            with self._namespace(info.path.database):
                self._create_staged(info.path, builder)
            return self._table(info.path, self._catalog.loadTable(self._identifier(info.path)))

    def has(self, path: TablePath) -> bool:
        """Whether the catalog has a table of that name.

        :raises LakeNotWritable: the catalog cannot be read.
        """
        with lake_errors(f"look for lake table {path}"):
            return self._exists(path)

    def check_store(self, path: TablePath | None, info: TableInfo) -> StoreReport | NothingWritten:
        """Has this process and Iceberg's client write, read and delete a file of a table.

        :param path: of a table that the lake has; None: it is staged for ``info``.
        :raises LakeNotWritable: catalog or storage refuse.
        :raises UnsupportedLakeOption: only Iceberg's own client could write the table's files.
        """
        with lake_errors(f"check the storage of lake table {path or info.path}"):
            if path is not None:
                java = self._catalog.loadTable(self._identifier(path))
            else:
                try:
                    with java_errors():
                        staged = self._staged(self._builder(info))
                except JavaThrew as thrown:
                    if thrown.kind in _NO_NAMESPACE:
                        return NothingWritten(write_check.NO_DATABASE.format(info.path.database))
                    raise
                if staged is None:
                    return NothingWritten(write_check.STAGES_NOTHING)
                java = staged.table()
            loaded = self._of_java(path or info.path, java)
            if path is None and write_check.is_local(loaded):
                return NothingWritten(write_check.IN_A_FOLDER)
            report = write_check.check_both_ways(loaded)
            return replace(report, expires_ms=loaded.files.newest().expires_ms)

    def _builder(
        self,
        info: TableInfo,
        layout: Layout = Layout.CLEAN,
        partition_by: Sequence[str] = (),
    ) -> Any:
        """Iceberg's builder of a table as Fluss would create it."""
        iceberg = self._gateway.jvm.org.apache.iceberg
        content = schema_json(info, layout)
        schema = iceberg.SchemaParser.fromJson(json.dumps(content))
        fields = with_own_fields(info, layout, partition_by)
        spec = json.dumps(spec_json(fields, content))
        order = json.dumps(sort_order_json(layout, content))
        builder = self._catalog.buildTable(self._identifier(info.path), schema)
        builder = builder.withPartitionSpec(iceberg.PartitionSpecParser.fromJson(schema, spec))
        builder = builder.withSortOrder(iceberg.SortOrderParser.fromJson(schema, order))
        return builder.withProperties(java_map(self._gateway, table_properties(info)))

    def _create_staged(self, path: TablePath, builder: Any) -> None:
        """Stages the table, has both clients write its files, and creates the table."""
        try:
            with java_errors():
                if (staged := self._staged(builder)) is None:
                    self._create_first(path, builder)
                    return
                self._check_files(path, staged.table())
                staged.commitTransaction()
        except JavaThrew as thrown:
            if thrown.kind not in _CREATED_ALREADY or not self._exists(path):
                raise

    def _staged(self, builder: Any) -> Any:
        """The transaction that creates a table; None: the catalog stages no tables (S3 Tables)."""
        try:
            with java_errors():
                return builder.createTransaction()
        except JavaThrew as thrown:
            if thrown.kind in _NOT_STAGED and _STAGING.search(str(thrown)):
                return None
            raise

    def _create_first(self, path: TablePath, builder: Any) -> None:
        """Creates the table, and then has both clients write its files.

        If that fails, the empty table stays: another process may have begun to use it.
        """
        created = builder.create()
        try:
            self._check_files(path, created)
        except SluiceError as error:
            raise type(error)(
                f"{error}. The lake table {path} exists now, without rows, because this catalog"
                " stages no tables",
                **error.details,
            ) from error

    def _check_files(self, path: TablePath, java: Any) -> None:
        """Has both clients write a file of a table, unless its storage is a local disk."""
        loaded = self._of_java(path, java)
        if not write_check.is_local(loaded):
            write_check.check_both_ways(loaded)

    def close(self) -> None:
        """Closes the catalog's connections, but not the gateway. Never raises.

        A failure to close is only logged, so that it does not replace the result of a round.
        """
        self._end_keys_file()
        try:
            with lake_errors("close the Iceberg catalog"):
                self._catalog.close()
        except LakeNotWritable as error:
            _LOG.warning("%s", error)

    @contextmanager
    def _namespace(self, database: str) -> Iterator[None]:
        """Ensures that the namespace exists. If the block fails, a new one is dropped again.

        If another process creates a table in it just then, that process may be refused, and tries
        again in its next round.
        """
        namespace = self._identifier(TablePath(database, "x")).namespace()
        is_new = False
        if not self._catalog.namespaceExists(namespace):
            try:
                with java_errors():
                    self._catalog.createNamespace(namespace)
                is_new = True
            except JavaThrew as thrown:
                # Another process created it first; JDBC says that a key is not unique.
                is_there = thrown.kind == "AlreadyExistsException"
                if not is_there and not self._catalog.namespaceExists(namespace):
                    raise
        try:
            yield
        except (SluiceError, JavaThrew):
            if is_new:
                with suppress(JavaThrew, JvmLost), java_errors():
                    self._catalog.dropNamespace(namespace)  # refuses one that has tables
            raise

    def _exists(self, path: TablePath) -> bool:
        return bool(self._catalog.tableExists(self._identifier(path)))

    def _identifier(self, path: TablePath) -> Any:
        return self._gateway.jvm.org.apache.iceberg.catalog.TableIdentifier.parse(str(path))

    def _table(self, path: TablePath, java: Any) -> IcebergTable:
        loaded = self._of_java(path, java)
        return IcebergTable(self._gateway, loaded, path, self._tiering, self._share_keys)

    def _share_keys(self, files: FileSystems) -> None:
        """Keeps the keys of a table renewed for its executors. Tables are written in turn."""
        self._end_keys_file()
        if files.keys_uri and files.newest().expires_ms is not None:
            self._keys_file = KeysFile(files.keys_uri, files.newest)

    def _end_keys_file(self) -> None:
        if self._keys_file is not None:
            self._keys_file.close()
            self._keys_file = None

    def _of_java(self, path: TablePath, java: Any) -> LoadedTable:
        def load() -> Any:
            return self._catalog.loadTable(self._identifier(path))

        return LoadedTable(self._gateway, path, java, load, self._load_options)


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
