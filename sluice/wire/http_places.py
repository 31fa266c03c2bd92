"""Where HTTP endpoints listen: HOST:PORT, on this machine unless the user accepts the risk."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from sluice.errors import ConfigurationError
from sluice.wire.tcp import is_loopback

BACKLOG = 128


def http_place(
    place: str,
    setting: str,
    *,
    insecure: bool,
    allowed_by: str = "--insecure",
    without: str = "encryption or login",
) -> tuple[str, int]:
    """Host and port of an endpoint.

    :param place: HOST:PORT.
    :param setting: names ``place`` in errors.
    :param allowed_by: the option that sets ``insecure``.
    :param without: what the endpoint lacks for a network.
    :raises ConfigurationError: it has a wrong form, or is not loopback without ``insecure``.
    """
    try:
        parts = urlsplit(f"//{place}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigurationError(f"{setting}: {place!r}: {error}") from error
    if not host or port is None or parts.path or parts.query:
        raise ConfigurationError(f"{setting}: {place!r}: expected HOST:PORT")
    if not is_loopback(host) and not insecure:
        raise ConfigurationError(
            f"{setting}: {place!r} can be reached from other machines, without {without}:"
            f" listen on 127.0.0.1, or accept the risk with {allowed_by}"
        )
    return host, port


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 is a free one. :raises OSError: it cannot be bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.create_server((host, port), family=family, backlog=BACKLOG)
    # Connections take it over. Without it the second part of an answer waits 40 ms for the caller.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return bound
