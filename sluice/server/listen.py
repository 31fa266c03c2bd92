"""The addresses that the server listens on, and those that it tells its clients.

``server.listen`` and ``server.advertised_listeners``, one or several each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import SplitResult, parse_qsl, urlsplit

from sluice.errors import ConfigurationError
from sluice.wire.apis import Role
from sluice.wire.tcp import is_loopback

GRPC, FLUSS = "grpc", "fluss"
PORT_MAX = 65535

_FORM = "write grpc://HOST:PORT or fluss://HOST:PORT, more than one with commas between"


@dataclass(frozen=True, slots=True)
class Listen:
    """An address to listen on. With gRPC both roles share a port; Fluss's protocol has one each."""

    scheme: str
    host: str
    ports: dict[Role, int]
    """0 is any free one."""
    advertised: Listen | None = None
    """The address that clients receive; None: the real one. Port 0 stands for the real port."""

    def told(self, role: Role, port: int) -> tuple[str, int]:
        """Host and port that clients are told for a role that is bound to that port."""
        if self.advertised is None:
            return self.host, port
        return self.advertised.host, self.advertised.ports[role] or port

    def address(self, port: int) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{port}"


def listen_addresses(
    listen: str,
    *,
    insecure: bool,
    tls: bool = False,
    tokens: bool = False,
    advertised: str = "",
) -> tuple[Listen, ...]:
    """The listeners of ``server.listen``, in its order.

    :param advertised: ``server.advertised_listeners``: its first grpc:// address belongs to the
        first grpc:// listener, and so on.
    :param tls: whether grpc:// has TLS. :param tokens: whether callers have to say who they are.
    :raises ConfigurationError: not of that form; not loopback without TLS (grpc:// only) and tokens
        and not ``insecure``; TLS that no address can have; an advertised address has no listener.
    """
    listeners = [_parsed("server.listen", text.strip()) for text in listen.split(",")]
    if tls and all(listener.scheme != GRPC for listener in listeners):
        raise ConfigurationError(
            f"server.tls_certificate is set, but server.listen {listen!r} has no grpc:// address,"
            " and Fluss's own protocol has no TLS: add one, or unset it"
        )
    for listener in listeners:
        if not is_loopback(listener.host) and not insecure:
            _check_guarded(listener, tls=tls, tokens=tokens)
    left = list(range(len(listeners)))
    for text in advertised.split(",") if advertised.strip() else ():
        told = _parsed("server.advertised_listeners", text.strip())
        index = next((i for i in left if listeners[i].scheme == told.scheme), None)
        if index is None:
            raise ConfigurationError(
                f"server.advertised_listeners: {text.strip()!r}: server.listen has no (further)"
                f" address with {told.scheme}://"
            )
        left.remove(index)
        listeners[index] = replace(listeners[index], advertised=told)
    return tuple(listeners)


def _parsed(setting: str, text: str) -> Listen:
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigurationError(f"{setting}: {text!r}: {error}") from error
    rest = parts.path or parts.fragment or parts.username
    if parts.scheme not in (GRPC, FLUSS) or not host or port is None or rest:
        raise ConfigurationError(f"{setting}: {text!r}: {_FORM}")
    if parts.scheme == FLUSS:
        tablet_port = _tablet_port(setting, text, parts, port)
        return Listen(FLUSS, host, {Role.COORDINATOR: port, Role.TABLET: tablet_port})
    if parts.query:
        raise ConfigurationError(f"{setting}: {text!r}: {_FORM}")
    return Listen(GRPC, host, dict.fromkeys(Role, port))


def _tablet_port(setting: str, text: str, parts: SplitResult, port: int) -> int:
    """``?tablet=PORT``, else the port behind the coordinator's: one that can be known before."""
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    value = given.pop("tablet", None)
    if given or (parts.query and value is None):
        raise ConfigurationError(f"{setting}: {text!r}: only ?tablet=PORT may follow the port")
    if value is None:
        tablet_port = port + 1 if port else 0
    elif value.isascii() and value.isdigit():
        tablet_port = int(value)
    else:
        tablet_port = -1
    if not 0 <= tablet_port <= PORT_MAX or (port and tablet_port == port):
        raise ConfigurationError(
            f"{setting}: {text!r}: the tablet's port cannot be {value or tablet_port}; write"
            f" ?tablet=PORT with 0 to {PORT_MAX}, another one than the coordinator's"
        )
    return tablet_port


def _check_guarded(listener: Listen, *, tls: bool, tokens: bool) -> None:
    """:raises ConfigurationError: strangers could read what crosses the network, or call."""
    needs = []
    if listener.scheme == GRPC and not tls:
        needs.append("TLS (--tls-certificate and --tls-key)")
    if not tokens:
        needs.append("logins (--users-file)")
    if needs:
        raise ConfigurationError(
            f"server.listen: {listener.address(listener.ports[Role.COORDINATOR])!r} can be reached"
            f" from outside and lacks {' and '.join(needs)}: give them (docs/security.md), listen"
            " on 127.0.0.1, or allow it as it is with --insecure (server.insecure)"
        )
