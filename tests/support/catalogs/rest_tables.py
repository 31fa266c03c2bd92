"""Answers of a REST catalog, made by Iceberg's own handlers in a JVM from any catalog of Iceberg.

See Iceberg's REST catalog specification (open-api/rest-catalog-open-api.yaml).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from sluice.lake.iceberg.catalog.java import JavaThrew, java_errors, java_map

_STATUS = {
    "NoSuchTableException": 404,
    "NoSuchNamespaceException": 404,
    "AlreadyExistsException": 409,
    "NamespaceNotEmptyException": 409,
    "CommitFailedException": 409,
    "ValidationException": 400,
    "BadRequestException": 400,
}
ENDPOINTS = [
    "GET /v1/{prefix}/namespaces",
    "POST /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "DELETE /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "POST /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/tables/rename",
]
"""What :meth:`RestTables.answer` knows, as ``/v1/config`` names it."""

Answer = tuple[int, dict[str, Any]]


def refused(code: int, kind: str, message: str) -> Answer:
    """An error as a REST catalog tells it."""
    return code, {"error": {"message": message, "type": kind, "code": code}}


class RestTables:
    """Answers requests from a catalog that the JVM opens. Thread safe: one request at a time."""

    def __init__(self, gateway: Any, options: Mapping[str, str]) -> None:
        """:param options: of the catalog behind the answers."""
        self._gateway, self._iceberg = gateway, gateway.jvm.org.apache.iceberg
        conf = gateway.jvm.org.apache.hadoop.conf.Configuration()
        self._catalog = self._iceberg.CatalogUtil.buildIcebergCatalog(
            "rest", java_map(gateway, options), conf
        )
        self._mapper = _mapper(self._iceberg)
        self._lock = threading.Lock()

    def close(self) -> None:
        self._catalog.close()

    def answer(self, method: str, path: list[str], query: Mapping[str, str], body: str) -> Answer:
        """The status and the content for a request.

        :param path: what follows ``v1`` and the prefix, still quoted.
        """
        try:
            with self._lock, java_errors():
                found = self._answer(method, [unquote(part) for part in path], query, body)
                return (204, {}) if found is None else (200, self._shown(found))
        except JavaThrew as thrown:
            return refused(_STATUS.get(thrown.kind, 500), thrown.kind, str(thrown))

    def _answer(self, method: str, path: list[str], query: Mapping[str, str], body: str) -> Any:
        handlers, catalog = self._iceberg.rest.CatalogHandlers, self._catalog
        match method, path:
            case "GET", ["namespaces"]:
                return handlers.listNamespaces(catalog, self._namespace(query.get("parent", "")))
            case "POST", ["namespaces"]:
                return handlers.createNamespace(catalog, self._read("CreateNamespace", body))
            case "HEAD", ["namespaces", space]:
                return handlers.namespaceExists(catalog, self._namespace(space))
            case "GET", ["namespaces", space]:
                return handlers.loadNamespace(catalog, self._namespace(space))
            case "DELETE", ["namespaces", space]:
                return handlers.dropNamespace(catalog, self._namespace(space))
            case "GET", ["namespaces", space, "tables"]:
                return handlers.listTables(catalog, self._namespace(space))
            case "POST", ["namespaces", space, "tables"]:
                return self._create(space, body)
            case _, ["namespaces", space, "tables", table]:
                return self._table(method, self._name(space, table), query, body)
            case "POST", ["tables", "rename"]:
                return handlers.renameTable(catalog, self._read("RenameTable", body))
        raise NotImplementedError(f"{method} {'/'.join(path)}")

    def _create(self, space: str, body: str) -> Any:
        handlers, request = self._iceberg.rest.CatalogHandlers, self._read("CreateTable", body)
        if request.stageCreate():
            return handlers.stageTableCreate(self._catalog, self._namespace(space), request)
        return handlers.createTable(self._catalog, self._namespace(space), request)

    def _table(self, method: str, name: Any, query: Mapping[str, str], body: str) -> Any:
        handlers = self._iceberg.rest.CatalogHandlers
        match method:
            case "HEAD":
                return handlers.tableExists(self._catalog, name)
            case "POST":
                request = self._iceberg.rest.requests.UpdateTableRequestParser.fromJson(body)
                return handlers.updateTable(self._catalog, name, request)
            case "DELETE" if query.get("purgeRequested") == "true":
                return handlers.purgeTable(self._catalog, name)
            case "DELETE":
                return handlers.dropTable(self._catalog, name)
        modes = self._iceberg.rest.RESTCatalogProperties.SnapshotMode
        mode = getattr(modes, query.get("snapshots", "all").upper())
        return handlers.loadTable(self._catalog, name, mode)

    def _read(self, kind: str, body: str) -> Any:
        name = f"org.apache.iceberg.rest.requests.{kind}Request"
        loader = self._mapper.getClass().getClassLoader()  # Spark's JVM has a loader of its own
        return self._mapper.readValue(body, loader.loadClass(name))

    def _shown(self, response: Any) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._mapper.writeValueAsString(response))
        return found

    def _namespace(self, space: str) -> Any:
        levels = [level for level in space.split("\x1f") if level]
        names = self._gateway.new_array(self._gateway.jvm.java.lang.String, len(levels))
        for place, level in enumerate(levels):
            names[place] = level
        return self._iceberg.catalog.Namespace.of(names)

    def _name(self, space: str, table: str) -> Any:
        return self._iceberg.catalog.TableIdentifier.of(self._namespace(space), table)


def _mapper(iceberg: Any) -> Any:
    """Iceberg's own is package-private; this one is made in the same way."""
    jackson = iceberg.shaded.com.fasterxml.jackson
    mapper = jackson.databind.ObjectMapper()
    visible = jackson.annotation.JsonAutoDetect.Visibility.ANY
    mapper.setVisibility(jackson.annotation.PropertyAccessor.FIELD, visible)
    lenient = jackson.databind.DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES
    mapper.configure(lenient, False)
    mapper.setPropertyNamingStrategy(jackson.databind.PropertyNamingStrategies.KebabCaseStrategy())
    iceberg.rest.RESTSerializers.registerAll(mapper)
    return mapper
