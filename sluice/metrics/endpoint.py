"""The HTTP endpoint that serves ``/metrics``."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, Info, make_wsgi_app
from prometheus_client.registry import Collector

from sluice import __version__
from sluice.errors import ConfigurationError
from sluice.wire.http_places import http_place

READ_TIMEOUT_S = 10
"""A caller that sends nothing for this long is disconnected, because callers are served in turn."""


class MetricsEndpoint:
    """Serves GET /metrics on its own thread, one caller at a time."""

    def __init__(
        self,
        place: str,
        program: str,
        collectors: Iterable[Collector],
        *,
        setting: str,
        insecure: bool,
        allowed_by: str = "--insecure",
    ) -> None:
        """Binds the address; port 0 selects a free port.

        :param place: HOST:PORT.
        :param program: ``sluice_PROGRAM_info`` has its version.
        :param collectors: in the order of their collection.
        :param setting: names ``place`` in errors.
        :param allowed_by: the option that sets ``insecure``.
        :raises ConfigurationError: the address has a wrong form, is in use, or is not loopback
            without ``insecure`` (the endpoint has neither encryption nor logins).
        """
        host, port = http_place(place, setting, insecure=insecure, allowed_by=allowed_by)
        registry = CollectorRegistry(auto_describe=True)
        info = Info(f"sluice_{program}", f"The {program}'s version.", registry=registry)
        info.info({"version": __version__})
        for collector in collectors:
            registry.register(collector)
        try:
            self._server = make_server(host, port, _only_metrics(registry), WSGIServer, _Handler)
        except OSError as error:
            raise ConfigurationError(f"{setting}: {place}: {error.strerror or error}") from error
        self.address = f"http://{host}:{self._server.server_port}/metrics"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.2,), name="metrics", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stops the thread and releases the port. Does nothing before ``start``."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Handler(WSGIRequestHandler):
    timeout = READ_TIMEOUT_S

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the name of the base)
        """Logs nothing: scrapes are frequent."""


def _only_metrics(registry: CollectorRegistry) -> Any:
    """A WSGI application with the one path /metrics."""
    metrics = make_wsgi_app(registry)

    def application(environ: dict[str, Any], start_response: Any) -> Any:
        if environ.get("PATH_INFO") != "/metrics":
            start_response("404 Not Found", [("Content-Type", "text/plain")])
            return [b"not found; metrics are at /metrics\n"]
        return metrics(environ, start_response)

    return application
