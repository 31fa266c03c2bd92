"""Addresses of servers, and the transport of each scheme."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from sluice.config import ClientConfig
from sluice.did_you_mean import closest
from sluice.errors import ConfigurationError
from sluice.masking import mask
from sluice.wire.sockets import tcp

if TYPE_CHECKING:
    from sluice.wire.transport import Transport

_UNSPECIFIED = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - compared with, not bound to


@dataclass(frozen=True, slots=True)
class Address:
    """``SCHEME://HOST:PORT``; the host of an IPv6 address is without its brackets."""

    scheme: str
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """:raises ConfigurationError: the text is not valid; the message suggests a repair."""
        scheme, separator, rest = text.partition("://")
        if not separator:
            hidden = mask(f"x://{text}").removeprefix("x://")  # a login stands behind a scheme
            raise ConfigurationError(f"address {hidden!r}: {_without_scheme(text)}")
        if scheme.lower() not in TRANSPORTS:
            raise ConfigurationError(f"address {text!r}: {_unknown_scheme(scheme, rest)}")
        try:
            parts = urlsplit(text)
            host = parts.hostname
        except ValueError as error:  # such as a single bracket
            raise ConfigurationError(f"address {text!r}: {error}; {_FORM}") from None
        if not host:
            raise ConfigurationError(f"address {text!r} has no host: {_FORM}")
        shown = f"[{host}]" if ":" in host else host
        if parts.username is not None:
            raise ConfigurationError(
                f"address {scheme}://***@{shown} has a login: set client.username and"
                " client.password (fluss://) or client.token (grpc://)"
            )
        port = _port(text, parts, f"{scheme}://{shown}")
        if parts.path or parts.query or parts.fragment:
            raise ConfigurationError(
                f"address {text!r} has text after the port: write {scheme}://{shown}:{port}"
            )
        return cls(parts.scheme, host, port)

    def at(self, host: str, port: int) -> Address:
        """Another server of the cluster, by the scheme of this one.

        A server that reports no host, or the wildcard address, runs on this address's host.
        """
        return Address(self.scheme, self.host if host in _UNSPECIFIED else host, port)

    @property
    def target(self) -> str:
        """``HOST:PORT``."""
        return tcp.target(self.host, self.port)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.target}"


_FORM = "write grpc://HOST:PORT or fluss://HOST:PORT"
_DEFAULT_PORT = 9123


def _without_scheme(text: str) -> str:
    head, _, rest = text.partition(":")
    if rest and head.lower() in TRANSPORTS:
        missing = "a slash is" if rest.startswith("/") else "two slashes are"
        return f"{missing} missing: write {head.lower()}://{rest.lstrip('/')}"
    if not text:
        return f"it is empty: {_FORM}"
    place = text.lstrip("/")
    place = place if ":" in place else f"{place}:{_DEFAULT_PORT}"
    return f"the scheme is missing: write {_either(place)}"


def _unknown_scheme(scheme: str, rest: str) -> str:
    near = closest(scheme, TRANSPORTS, cutoff=0.7)
    meant = f"{near}://{rest}" if near else _either(rest)
    return f"unknown scheme {scheme!r}; did you mean {meant}?"


def _either(place: str) -> str:
    return f"grpc://{place} (Sluice's server) or fluss://{place} (Apache Fluss)"


def _port(text: str, parts: SplitResult, before: str) -> int:
    """:raises ConfigurationError: the address has no port, or one that no server can have."""
    _, colon, given = parts.netloc.rpartition(":")
    if not colon or "]" in given or not given:
        raise ConfigurationError(f"address {text!r} has no port: write {before}:{_DEFAULT_PORT}")
    if not given.isdecimal() or not 0 < int(given) < 65536:
        raise ConfigurationError(
            f"address {text!r}: the port is a number from 1 to 65535, not {given!r}"
        )
    return int(given)


def parse_bootstrap(text: str) -> tuple[Address, ...]:
    """Addresses of one cluster, separated by commas; the scheme of the first applies to all.

    :raises ConfigurationError: one of them is no address, or has another scheme.
    """
    first, *others = (part.strip() for part in text.split(","))
    if others and not all((first, *others)):
        raise ConfigurationError(f"addresses {text!r}: one between the commas is empty")
    found = [Address.parse(first)]
    for other in others:
        address = Address.parse(other if "://" in other else f"{found[0].scheme}://{other}")
        if address.scheme != found[0].scheme:
            raise ConfigurationError(
                f"addresses {text!r}: all servers of a cluster are reached by one scheme"
            )
        found.append(address)
    return tuple(dict.fromkeys(found))


# Each transport is imported when it is used: an executor that speaks one does not load the other.


def _grpc(address: Address, config: ClientConfig) -> Transport:
    from sluice.wire.grpc.transport import GrpcTransport

    if config.username or config.password:
        raise ConfigurationError(
            f"client.username is set, which only fluss:// can send; the address is {address}"
        )
    if config.token and not config.has_tls and not tcp.is_loopback(address.host):
        raise ConfigurationError(
            f"client.token is set, but {address} is reached without encryption: set client.tls_ca"
            " (or client.tls = true), or unset client.token"
        )
    return GrpcTransport(
        str(address),
        address.host,
        address.port,
        config.max_message_bytes,
        authorities=config.authorities() if config.has_tls else None,
        token=config.token,
        attempt_ms=_attempt_ms(config),
    )


def _fluss(address: Address, config: ClientConfig) -> Transport:
    from sluice.wire.native.sasl import Credentials
    from sluice.wire.native.transport import NativeTransport

    if config.token:
        raise ConfigurationError(
            f"client.token is set, which only grpc:// can send; the address is {address}: log in"
            " by client.username and client.password"
        )
    if config.has_tls:
        raise ConfigurationError(
            f"client.tls or client.tls_ca is set, but Fluss's own protocol has no TLS; the address"
            f" is {address}"
        )
    credentials = None
    if config.username or config.password:
        credentials = Credentials(config.username, config.password)
    return NativeTransport(
        str(address),
        address.host,
        address.port,
        config.max_message_bytes,
        credentials=credentials,
        attempt_ms=_attempt_ms(config),
    )


def _attempt_ms(config: ClientConfig) -> int:
    from sluice.wire.transport import CONNECT_ATTEMPT_MS

    return max(1, min(CONNECT_ATTEMPT_MS, config.connect_timeout_ms))


TRANSPORTS: dict[str, Callable[[Address, ClientConfig], Transport]] = {
    "grpc": _grpc,
    "fluss": _fluss,
}
"""Scheme -> maker of a transport."""


def open_transport(address: Address, config: ClientConfig) -> Transport:
    """A transport to that server; nothing is sent before the first call.

    :raises ConfigurationError: credentials are set that the transport cannot send, or not safely,
        or client.tls_ca holds no certificate.
    """
    return TRANSPORTS[address.scheme](address, config)
