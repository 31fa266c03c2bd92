"""Addresses of servers, and the transport that each scheme stands for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from sluice.config import ClientConfig
from sluice.errors import ConfigurationError
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
        """:raises ConfigurationError: unless the text is one of a known scheme."""
        try:
            parts = urlsplit(text)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise ConfigurationError(f"address {text!r}: {error}; {_FORM}") from None
        rest = parts.path or parts.query or parts.fragment or parts.username
        if parts.scheme not in TRANSPORTS or not host or not port or rest:
            raise ConfigurationError(f"address {text!r}: {_FORM}")
        return cls(parts.scheme, host, port)

    def at(self, host: str, port: int) -> Address:
        """Another server of the cluster, reached the same way as this one.

        A server that tells no host, or one that means "all of mine", is taken to be here.
        """
        return Address(self.scheme, self.host if host in _UNSPECIFIED else host, port)

    @property
    def target(self) -> str:
        """``HOST:PORT``."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.target}"


_FORM = "write grpc://HOST:PORT or fluss://HOST:PORT"


def parse_bootstrap(text: str) -> tuple[Address, ...]:
    """Addresses of one cluster, with commas between; the scheme of the first goes for all.

    :raises ConfigurationError: if one is none, or has a scheme of its own.
    """
    first, *others = (part.strip() for part in text.split(","))
    found = [Address.parse(first)]
    for other in others:
        address = Address.parse(other if "://" in other else f"{found[0].scheme}://{other}")
        if address.scheme != found[0].scheme:
            raise ConfigurationError(f"addresses {text!r}: one cluster is reached by one scheme")
        found.append(address)
    return tuple(dict.fromkeys(found))


# Each transport is imported when it is used: an executor that speaks one does not load the other.


def _grpc(address: Address, config: ClientConfig) -> Transport:
    from sluice.wire.grpc_transport import GrpcTransport
    from sluice.wire.tls import is_loopback

    if config.username or config.password:
        raise ConfigurationError(
            f"client.username is set, which only fluss:// can send; the address is {address}"
        )
    if config.token and not config.has_tls and not is_loopback(address.host):
        raise ConfigurationError(
            f"client.token is set, but nothing hides it on its way to {address}: set client.tls_ca"
            " (or client.tls = true), or unset client.token"
        )
    return GrpcTransport(
        str(address),
        address.target,
        config.max_message_bytes,
        authorities=config.authorities() if config.has_tls else None,
        token=config.token,
    )


def _fluss(address: Address, config: ClientConfig) -> Transport:
    from sluice.wire.native_transport import NativeTransport
    from sluice.wire.sasl import Credentials

    if config.token:
        raise ConfigurationError(
            f"client.token is set, which only grpc:// can send; the address is {address}: there"
            " client.username and client.password say who you are"
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
    )


TRANSPORTS: dict[str, Callable[[Address, ClientConfig], Transport]] = {
    "grpc": _grpc,
    "fluss": _fluss,
}
"""Scheme -> maker of a transport."""


def open_transport(address: Address, config: ClientConfig) -> Transport:
    """A transport to that server; nothing is sent before the first call.

    :raises ConfigurationError: if credentials are set that it cannot carry, or not safely, or
        client.tls_ca is none.
    """
    return TRANSPORTS[address.scheme](address, config)
