"""TCP connections to servers, and the errors for connections that fail.

Loads neither gRPC nor protobuf: commands connect before they load anything large.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

from sluice.errors import NetworkError

_AddressInfo = tuple[int, int, int, str, Any]
"""An entry of ``socket.getaddrinfo``."""

_KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Seconds, seconds and attempts until the system notices that a peer no longer exists."""


def connect(host: str, port: int, deadline: float) -> socket.socket:
    """A connected socket. Tries each address of the host, with an equal part of the remaining time.

    :param deadline: of ``time.monotonic()``, for all addresses.
    :raises NetworkError: no server accepts the connection in time; the message names the address.
        The detail ``no_listener`` is set if the connection was refused or the host is not known.
    """
    started = time.monotonic()
    try:
        sock = _first_that_answers(_addresses(host, port, deadline), deadline)
    except OSError as error:
        raise unreachable(host, port, error, time.monotonic() - started) from error
    try:
        if sock.getsockname() == sock.getpeername():
            # Linux connects a socket to itself if its own port equals the port that it calls.
            raise unreachable(host, port, ConnectionRefusedError(), 0)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    except OSError as error:
        sock.close()
        raise unreachable(host, port, error, 0) from error
    except BaseException:
        sock.close()
        raise
    return sock


def target(host: str, port: int) -> str:
    """``HOST:PORT``, with the brackets of an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address of that host, or be reached by it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def unreachable(host: str, port: int, error: OSError, waited_s: float) -> NetworkError:
    """The error for a connection that could not be made."""
    where = target(host, port)
    if isinstance(error, ConnectionRefusedError):
        text = f"nothing listens at {where}: connection refused"
        return NetworkError(text, sent=False, no_listener="refused")
    if isinstance(error, socket.gaierror):
        unknown = unknown_host(host, error.strerror or str(error))
        unknown.details["may_pass"] = error.errno == socket.EAI_AGAIN  # the DNS server failed
        return unknown
    if isinstance(error, TimeoutError):
        return not_accepted(where, waited_s)
    return NetworkError(f"{where} cannot be reached: {error.strerror or error}", sent=False)


def unknown_host(host: str, why: str = "") -> NetworkError:
    """The error for a host name without an address."""
    text = f"the host name {host!r} cannot be resolved" + (f": {why}" if why else "")
    return NetworkError(text, sent=False, no_listener="unknown host")


def not_accepted(where: str, waited_s: float) -> NetworkError:
    """The error for packets without a response."""
    return NetworkError(
        f"no response from {where} within {waited_s:.2g} s: is this the cluster's address, and does"
        " a firewall let this machine through?",
        sent=False,
    )


def silent(where: str, waited_s: float) -> NetworkError:
    """The error for a server that accepts a connection and then sends nothing."""
    return NetworkError(
        f"{where} accepted the connection, but sent no response within {waited_s:.2g} s: is this"
        " the cluster's address?",
        sent=False,
    )


def hung_up(where: str) -> NetworkError:
    """The error for a server that accepts a connection and closes it."""
    return NetworkError(
        f"{where} closed the connection without a response: is this the cluster's address? A"
        " server with as many connections as it accepts closes them, too",
        sent=False,
    )


def _first_that_answers(addresses: Sequence[_AddressInfo], deadline: float) -> socket.socket:
    """:raises OSError: the error of the last address."""
    failed: OSError | None = None
    for place, (family, kind, protocol, _, address) in enumerate(addresses):
        left_s = deadline - time.monotonic()
        if left_s <= 0 and failed is not None:
            break
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(max(0.001, left_s / (len(addresses) - place)))
            sock.connect(address)
            return sock
        except OSError as error:
            sock.close()
            failed = error
        except BaseException:
            sock.close()
            raise
    raise failed or OSError("the host has no address")


def _addresses(host: str, port: int, deadline: float) -> Sequence[_AddressInfo]:
    """The host's addresses. The system's lookup has no deadline, so a thread waits for it.

    :raises OSError: the host has none, or the lookup took too long.
    """
    found: list[Sequence[_AddressInfo]] = []
    failed: list[OSError] = []

    def look_up() -> None:
        try:
            found.append(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except OSError as error:
            failed.append(error)
        except UnicodeError as error:  # not the form of a host name
            failed.append(socket.gaierror(socket.EAI_NONAME, str(error)))

    thread = threading.Thread(target=look_up, name=f"sluice-find-{host}", daemon=True)
    thread.start()
    thread.join(max(0.001, deadline - time.monotonic()))
    if failed:
        raise failed[0]
    if not found:
        raise OSError(f"the address of {host!r} was not found in time")
    return found[0]
