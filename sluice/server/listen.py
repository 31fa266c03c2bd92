"""The addresses that the server listens on: ``server.listen``, one or several."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl, urlsplit

from sluice.errors import ConfigurationError
from sluice.wire.apis import Role

GRPC, FLUSS = "grpc", "fluss"
PORT_MAX = 65535

_FORM = "write grpc://HOST:PORT or fluss://HOST:PORT, more than one with commas between"


@dataclass(frozen=True, slots=True)
class Listen:
    """Where one door is. Over gRPC both roles have one port, over Fluss's own protocol one each."""

    scheme: str
    host: str
    ports: dict[Role, int]
    """0 is any free one."""

    def address(self, port: int) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{port}"


def listen_addresses(listen: str, *, insecure: bool) -> tuple[Listen, ...]:
    """The doors that ``server.listen`` asks for, in its order.

    :raises ConfigurationError: not of that form, or not loopback without ``insecure``.
    """
    return tuple(_listen(text.strip(), insecure=insecure) for text in listen.split(","))


def _listen(text: str, *, insecure: bool) -> Listen:
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigurationError(f"server.listen: {text!r}: {error}") from error
    rest = parts.path or parts.fragment or parts.username
    if parts.scheme not in (GRPC, FLUSS) or not host or port is None or rest:
        raise ConfigurationError(f"server.listen: {text!r}: {_FORM}")
    if not _is_loopback(host) and not insecure:
        raise ConfigurationError(
            f"server.listen: {text!r} can be reached from outside and has no TLS: listen on"
            " 127.0.0.1, or allow it with --insecure (server.insecure)"
        )
    if parts.scheme == FLUSS:
        tablet_port = _tablet_port(text, parts, port)
        return Listen(FLUSS, host, {Role.COORDINATOR: port, Role.TABLET: tablet_port})
    if parts.query:
        raise ConfigurationError(f"server.listen: {text!r}: {_FORM}")
    return Listen(GRPC, host, dict.fromkeys(Role, port))


def _tablet_port(text: str, parts: SplitResult, port: int) -> int:
    """``?tablet=PORT``, else the port behind the coordinator's: one that can be known before."""
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    value = given.pop("tablet", None)
    if given or (parts.query and value is None):
        raise ConfigurationError(f"server.listen: {text!r}: only ?tablet=PORT may follow the port")
    if value is None:
        tablet_port = port + 1 if port else 0
    elif value.isascii() and value.isdigit():
        tablet_port = int(value)
    else:
        tablet_port = -1
    if not 0 <= tablet_port <= PORT_MAX or (port and tablet_port == port):
        raise ConfigurationError(
            f"server.listen: {text!r}: the tablet's port cannot be {value or tablet_port}; write"
            f" ?tablet=PORT with 0 to {PORT_MAX}, another one than the coordinator's"
        )
    return tablet_port


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
