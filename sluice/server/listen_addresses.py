"""Parses ``server.listen`` and ``server.advertised_listeners``, each a list of addresses.

The server listens on the first. It returns the second to clients, as the addresses to connect to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import SplitResult, parse_qsl, urlsplit

from sluice.errors import ConfigurationError
from sluice.wire.apis import Role
from sluice.wire.sockets.tcp import is_loopback

GRPC, FLUSS = "grpc", "fluss"
PORT_MAX = 65535

_FORM = "expected grpc://HOST:PORT or fluss://HOST:PORT, or several separated by commas"


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """The address of one listener: gRPC serves both roles on one port, native Fluss on two."""

    scheme: str
    host: str
    ports: dict[Role, int]
    """0: any free port."""
    advertised: ListenAddress | None = None
    """The address returned to clients, if it differs. Its port 0 stands for the bound port."""

    def client_address(self, role: Role, port: int) -> tuple[str, int]:
        """Host and port at which clients reach a role that is bound to ``port``."""
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
) -> tuple[ListenAddress, ...]:
    """Parses and checks both settings; one entry per address of ``server.listen``, in its order.

    :param advertised: ``server.advertised_listeners``. Its n-th grpc:// address belongs to the n-th
        grpc:// listener; the same holds for fluss://.
    :param tls: whether grpc:// has TLS. :param tokens: whether callers must log in.
    :raises ConfigurationError: an address has a wrong form; an address that other machines can
        reach lacks TLS (grpc:// only) or logins, without ``insecure``; TLS is configured without a
        grpc:// address; an advertised address matches no listener.
    """
    listeners = [_parsed("server.listen", text.strip()) for text in listen.split(",")]
    if tls and all(listener.scheme != GRPC for listener in listeners):
        raise ConfigurationError(
            f"server.tls_certificate is set, but server.listen = {listen!r} has no grpc:// address,"
            " and the fluss:// protocol has no TLS: add a grpc:// address, or remove"
            " server.tls_certificate"
        )
    for listener in listeners:
        if not is_loopback(listener.host) and not insecure:
            _check_guarded(listener, tls=tls, tokens=tokens)
    left = list(range(len(listeners)))
    for text in advertised.split(",") if advertised.strip() else ():
        address = _parsed("server.advertised_listeners", text.strip())
        index = next((i for i in left if listeners[i].scheme == address.scheme), None)
        if index is None:
            raise ConfigurationError(
                f"server.advertised_listeners: {text.strip()!r} matches no listener: server.listen"
                f" has fewer {address.scheme}:// addresses; add one there, or remove this one"
            )
        left.remove(index)
        listeners[index] = replace(listeners[index], advertised=address)
    return tuple(listeners)


def _parsed(setting: str, text: str) -> ListenAddress:
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
        return ListenAddress(FLUSS, host, {Role.COORDINATOR: port, Role.TABLET: tablet_port})
    if parts.query:
        raise ConfigurationError(f"{setting}: {text!r}: {_FORM}")
    return ListenAddress(GRPC, host, dict.fromkeys(Role, port))


def _tablet_port(setting: str, text: str, parts: SplitResult, port: int) -> int:
    """The port of ``?tablet=PORT``; by default the coordinator's port plus one."""
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    value = given.pop("tablet", None)
    if given or (parts.query and value is None):
        raise ConfigurationError(
            f"{setting}: {text!r}: the only parameter allowed after the port is ?tablet=PORT"
        )
    if value is None:
        tablet_port = port + 1 if port else 0
    elif value.isascii() and value.isdigit():
        tablet_port = int(value)
    else:
        tablet_port = -1
    if not 0 <= tablet_port <= PORT_MAX or (port and tablet_port == port):
        raise ConfigurationError(
            f"{setting}: {text!r}: {value or tablet_port} is not a valid tablet port; write"
            f" ?tablet=PORT with a port from 0 to {PORT_MAX} that is not the coordinator's"
        )
    return tablet_port


def _check_guarded(listener: ListenAddress, *, tls: bool, tokens: bool) -> None:
    """Checks that a listener which other machines can reach has TLS and logins.

    :raises ConfigurationError: one of them is missing.
    """
    needs = []
    if listener.scheme == GRPC and not tls:
        needs.append("TLS (--tls-certificate and --tls-key)")
    if not tokens:
        needs.append("logins (--users-file)")
    if needs:
        raise ConfigurationError(
            f"server.listen: {listener.address(listener.ports[Role.COORDINATOR])!r} can be reached"
            f" from other machines but lacks {' and '.join(needs)}: configure them"
            " (docs/security.md), listen on 127.0.0.1, or accept the risk with --insecure"
            " (server.insecure)"
        )
