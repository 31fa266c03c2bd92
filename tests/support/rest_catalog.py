"""An Iceberg REST catalog for tests in which several processes commit to a table at once.

On a local disk, two processes that commit through a Hadoop catalog can both succeed, and one commit
is lost: Hadoop looks whether a version exists, and then renames. Here one JVM makes all commits:
that of the Spark session, with Iceberg's own handlers of requests.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

from sluice.lake.java import JavaThrew, java_errors, java_map

_STATUS = {
    "NoSuchTableException": 404,
    "NoSuchNamespaceException": 404,
    "AlreadyExistsException": 409,
    "CommitFailedException": 409,
    "ValidationException": 400,
    "BadRequestException": 400,
}


class RestCatalog:
    """Serves the tables of a Hadoop catalog; a context manager."""

    def __init__(self, gateway: Any, warehouse: Path) -> None:
        """:param gateway: of the JVM that commits."""
        self._gateway, self._jvm = gateway, gateway.jvm
        options = java_map(gateway, {"type": "hadoop", "warehouse": str(warehouse)})
        conf = self._jvm.org.apache.hadoop.conf.Configuration()
        self._catalog = self._jvm.org.apache.iceberg.CatalogUtil.buildIcebergCatalog(
            "rest", options, conf
        )
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> RestCatalog:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._catalog.close()

    @property
    def options(self) -> dict[str, str]:
        """With which Spark and rounds open the catalog."""
        return {
            "type": "rest",
            "uri": f"http://127.0.0.1:{self._server.server_port}",
            "io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
            "rest-metrics-reporting-enabled": "false",
        }

    def answer(self, method: str, path: list[str], body: str) -> tuple[int, dict[str, Any]]:
        """The status and the content for a request; ``path`` is without ``v1``."""
        try:
            with java_errors():
                return 200, self._answer(method, path, body)
        except JavaThrew as thrown:
            code = _STATUS.get(thrown.kind, 500)
            return code, {"error": {"message": str(thrown), "type": thrown.kind, "code": code}}

    def _answer(self, method: str, path: list[str], body: str) -> dict[str, Any]:
        match method, path:
            case "GET", ["config"]:
                return {"defaults": {}, "overrides": {}}
            case "POST", ["namespaces"]:
                names = json.loads(body)["namespace"]
                self._catalog.createNamespace(self._namespace(names[0]))
                return {"namespace": names, "properties": {}}
            case _, ["namespaces", database]:
                metadata = self._catalog.loadNamespaceMetadata(self._namespace(database))
                return {"namespace": [database], "properties": dict(metadata)}
            case "POST", ["namespaces", database, "tables"]:
                return self._create(database, json.loads(body))
            case "POST", ["namespaces", database, "tables", name]:
                request = self._rest.requests.UpdateTableRequestParser.fromJson(body)
                handlers = self._rest.CatalogHandlers
                found = handlers.updateTable(self._catalog, self._name(database, name), request)
                return self._described(found.tableMetadata())
            case _, ["namespaces", database, "tables", name]:
                table = self._catalog.loadTable(self._name(database, name))
                return self._described(table.operations().current())
        raise NotImplementedError(f"{method} {'/'.join(path)}")

    def _create(self, database: str, content: dict[str, Any]) -> dict[str, Any]:
        iceberg = self._jvm.org.apache.iceberg
        schema = iceberg.SchemaParser.fromJson(json.dumps(content["schema"]))
        spec = iceberg.PartitionSpecParser.fromJson(schema, json.dumps(content["partition-spec"]))
        order = iceberg.SortOrderParser.fromJson(schema, json.dumps(content["write-order"]))
        if content.get("stage-create"):
            request = self._rest.requests.CreateTableRequest.builder().withName(content["name"])
            request = request.withSchema(schema).withPartitionSpec(spec).withWriteOrder(order)
            request = request.setProperties(java_map(self._gateway, content["properties"]))
            staged = self._rest.CatalogHandlers.stageTableCreate(
                self._catalog, self._namespace(database), request.stageCreate().build()
            )
            return self._described(staged.tableMetadata())
        builder = self._catalog.buildTable(self._name(database, content["name"]), schema)
        builder = builder.withPartitionSpec(spec).withSortOrder(order)
        builder = builder.withProperties(java_map(self._gateway, content["properties"]))
        return self._described(builder.create().operations().current())

    def _described(self, metadata: Any) -> dict[str, Any]:
        text = self._jvm.org.apache.iceberg.TableMetadataParser.toJson(metadata)
        location = metadata.metadataFileLocation()
        return {"metadata-location": location, "metadata": json.loads(text), "config": {}}

    @property
    def _rest(self) -> Any:
        return self._jvm.org.apache.iceberg.rest

    def _namespace(self, database: str) -> Any:
        return self._name(database, "x").namespace()

    def _name(self, database: str, table: str) -> Any:
        return self._jvm.org.apache.iceberg.catalog.TableIdentifier.parse(f"{database}.{table}")


def _handler(catalog: RestCatalog) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(size).decode()
            path = self.path.partition("?")[0].split("/")[2:]
            code, content = catalog.answer(self.command, path, body)
            sent = json.dumps(content).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(sent)

        do_GET = do_POST = do_HEAD = _answer  # noqa: N815  (the names of the base class)

        def log_message(self, *_: object) -> None:
            """Nothing: a test's output is not the place."""

    return Handler
