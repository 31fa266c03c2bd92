"""An Iceberg REST catalog for tests in which several processes commit to a table at once.

On a local disk, two processes that commit through a Hadoop catalog can both succeed, and one commit
is lost: Hadoop looks whether a version exists, and then renames. Here one JVM makes all commits:
that of the Spark session, with Iceberg's own handlers of requests.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.catalogs.http_server import JsonServer, Request
from tests.support.catalogs.rest_tables import ENDPOINTS, Answer, RestTables


class RestCatalog:
    """Serves the tables of a Hadoop catalog; a context manager."""

    def __init__(self, gateway: Any, warehouse: Path) -> None:
        """:param gateway: of the JVM that commits."""
        self._tables = RestTables(gateway, {"type": "hadoop", "warehouse": str(warehouse)})
        self._server = JsonServer(self._answer)

    def __enter__(self) -> RestCatalog:
        self._server.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.__exit__(kind, error, trace)
        self._tables.close()

    @property
    def options(self) -> dict[str, str]:
        """With which Spark and rounds open the catalog."""
        return {
            "type": "rest",
            "uri": self._server.uri,
            "io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
            "rest-metrics-reporting-enabled": "false",
        }

    def _answer(self, request: Request) -> Answer:
        path = request.path.split("/")[2:]
        if path == ["config"]:
            return 200, {"defaults": {}, "overrides": {}, "endpoints": ENDPOINTS}
        return self._tables.answer(request.method, path, request.query, request.body)
