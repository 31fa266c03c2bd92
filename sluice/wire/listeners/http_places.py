"""Where HTTP endpoints listen, and by which names they are called.

HOST:PORT is on this machine unless the user accepts the risk. A page of a foreign name may have had
that name resolved to this address after it was loaded, and then it reads what is there as its own:
so an endpoint knows its names, and refuses others.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

from sluice.errors import ConfigurationError
from sluice.wire.sockets.tcp import is_loopback

BACKLOG = 1_024
"""Connections that wait to be accepted. A further one would be tried again after a second."""
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([\w.-]+))(?::\d{1,5})?", re.ASCII)
"""A Host header: an IPv6 address, or a name or IPv4 address; and a port. Nothing else: libraries
make addresses of it, in which a `/` or a `?` would move the path."""
_CLUSTER_ENDS = (".svc", ".cluster.local", ".internal", ".localhost")
"""Ends of names that nobody can register: those of Kubernetes and of private networks."""


class HostNames:
    """The names by which callers reach an endpoint. An IP address is no name that could be resolved
    anew."""

    def __init__(
        self,
        host: str,
        allowed: Iterable[str] = (),
        *,
        services: bool = False,
        allowed_by: str = "--allow-host",
    ) -> None:
        """:param host: where it listens.
        :param allowed: further names; a port of theirs does not count.
        :param services: whether programs call it by any IP address, by names without a dot, and by
            those of services in a cluster, also where it listens on loopback behind a proxy.
        :param allowed_by: the option that sets ``allowed``.
        :raises ConfigurationError: ``allowed`` has something that no caller could send.
        """
        self._services = services
        self._any_address = services or not is_loopback(host)
        names = {"localhost", host}
        for one in allowed:
            if not (name := name_in(one)):
                raise ConfigurationError(
                    f"{allowed_by}: {one!r} is no host name: write one such as sluice.example.com"
                )
            names.add(name)
        if not is_loopback(host):
            names |= {socket.gethostname(), socket.getfqdn()}
        self._names = frozenset(name.lower().rstrip(".") for name in names)

    def knows(self, header: str) -> bool:
        """Whether the Host of a request is one of these names. Any port: tunnels have others."""
        name = name_in(header).lower().rstrip(".")
        if not name:
            return False
        if name in self._names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return self._is_service(name)
        return address.is_loopback or self._any_address

    def _is_service(self, name: str) -> bool:
        return self._services and ("." not in name or name.endswith(_CLUSTER_ENDS))


def name_in(header: str) -> str:
    """The host of a Host header, without its port. Empty: it has another form."""
    found = _HOST.fullmatch(header)
    return "" if found is None else found[1] or found[2]


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
