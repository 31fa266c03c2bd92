"""The HTTP endpoint that serves ``/metrics``."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

from prometheus_client import CollectorRegistry, Info, make_wsgi_app
from prometheus_client.exposition import gzip_accepted
from prometheus_client.registry import Collector

from sluice import __version__
from sluice.errors import ConfigurationError
from sluice.masking import line
from sluice.metrics.bounded_server import BoundedServer, answered, begins, turn
from sluice.wire.listeners.http_places import HostNames, bound_socket, http_place, name_in
from sluice.wire.sockets.tcp import target

_SHOWN_MAX = 100
"""Characters of a stranger's text."""
_log = logging.getLogger(__name__)


class MetricsEndpoint:
    """Serves GET /metrics on threads of its own. Metrics are collected for one caller at a time."""

    def __init__(
        self,
        place: str,
        program: str,
        collectors: Iterable[Collector],
        *,
        setting: str,
        insecure: bool,
        allowed_by: str = "--insecure",
        hosts: Iterable[str] = (),
        hosts_by: str = "--allow-host",
    ) -> None:
        """Binds the address; port 0 selects a free port.

        :param place: HOST:PORT.
        :param program: ``sluice_PROGRAM_info`` has its version.
        :param collectors: in the order of their collection.
        :param setting: names ``place`` in errors.
        :param allowed_by: the option that sets ``insecure``.
        :param hosts: further names by which it may be called.
        :param hosts_by: the option that sets ``hosts``.
        :raises ConfigurationError: the address has a wrong form, is in use, or is not loopback
            without ``insecure`` (the endpoint has neither encryption nor logins).
        """
        host, port = http_place(place, setting, insecure=insecure, allowed_by=allowed_by)
        registry = CollectorRegistry(auto_describe=True)
        info = Info(f"sluice_{program}", f"The {program}'s version.", registry=registry)
        info.info({"version": __version__})
        for collector in collectors:
            registry.register(collector)
        names = HostNames(host, hosts, services=True, allowed_by=hosts_by)
        try:
            bound = bound_socket(host, port)
        except OSError as error:
            raise ConfigurationError(f"{setting}: {place}: {error.strerror or error}") from error
        self._server = BoundedServer(bound, _only_metrics(registry, names, hosts_by))
        self.address = f"http://{target(host, self._server.server_port)}/metrics"
        self._thread = threading.Thread(target=self._server.run, name="metrics", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stops the threads and releases the port."""
        if self._thread.is_alive():
            self._server.stop()
            self._thread.join()
        else:  # it was not started
            self._server.server_close()


class _Scrapes:
    """Answers to scrapes. Who has waited for one takes the next that is made, as all others do.

    So callers of any number cost at most two collections for each form of an answer.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._app = make_wsgi_app(registry)
        self._one_at_a_time = threading.Lock()  # the collectors remember what they have told
        self._made: dict[
            tuple[str, str], tuple[float, str, list[tuple[str, str]], list[bytes]]
        ] = {}
        """When the collection began, status, headers and body, by the form."""

    def answer(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        came_s = time.monotonic()
        form = environ["HTTP_ACCEPT"], environ["HTTP_ACCEPT_ENCODING"] = _form_of(environ)
        environ["QUERY_STRING"] = ""  # strangers could ask for many forms
        if environ["REQUEST_METHOD"] != "GET":
            return list(self._app(environ, start_response))
        with turn(environ, self._one_at_a_time):
            if form not in self._made or self._made[form][0] < came_s:
                begins(environ)
                began_s, started = time.monotonic(), []
                body = list(self._app(environ, lambda *words: started.extend(words)))
                self._made[form] = (began_s, started[0], started[1], body)
            _, status, headers, body = self._made[form]
        start_response(status, list(headers))
        return body


def _form_of(environ: dict[str, Any]) -> tuple[str, str]:
    """What is asked for, as one of four forms. Names without escapes need no more."""
    is_open = "application/openmetrics-text" in environ.get("HTTP_ACCEPT", "")
    kind = "application/openmetrics-text;version=1.0.0" if is_open else "text/plain;version=0.0.4"
    return kind, "gzip" if gzip_accepted(environ.get("HTTP_ACCEPT_ENCODING", "")) else ""


def _only_metrics(registry: CollectorRegistry, names: HostNames, hosts_by: str) -> Any:
    """A WSGI application with the one path /metrics."""
    scrapes = _Scrapes(registry)

    def answer(environ: dict[str, Any], start_response: Any) -> Any:
        host = environ.get("HTTP_HOST")
        if host is not None and not names.knows(host):  # browsers always send one
            start_response("403 Forbidden", [("Content-Type", "text/plain")])
            shown = (name_in(host) or host)[:_SHOWN_MAX]
            text = f"this server has no name {shown!r}: allow it with {hosts_by}\n"
            return [text.encode()]
        if environ.get("PATH_INFO") != "/metrics":
            start_response("404 Not Found", [("Content-Type", "text/plain")])
            return [b"not found; metrics are at /metrics\n"]
        return scrapes.answer(environ, start_response)

    def application(environ: dict[str, Any], start_response: Any) -> Any:
        try:
            return answered(environ, lambda: answer(environ, start_response))
        except ConnectionAbortedError:
            raise  # it has made room for another one
        except Exception as error:  # wsgiref would print its traceback past the masked logs
            _log.error("a scrape failed: %s", line(f"{type(error).__name__}: {error}"))
            plain = [("Content-Type", "text/plain")]
            start_response("500 Internal Server Error", plain, sys.exc_info())
            return [b"the scrape failed; the log has the cause\n"]

    return application
