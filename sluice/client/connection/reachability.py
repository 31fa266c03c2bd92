"""Whether anything listens at a cluster's addresses, before a command loads or starts anything."""

from __future__ import annotations

import os
import time

from sluice.client.connection.addresses import Address, parse_bootstrap
from sluice.config import ClientConfig
from sluice.errors import NetworkError
from sluice.wire.listeners import start_marker
from sluice.wire.sockets import tcp
from sluice.wire.sockets.tcp import is_loopback

WAIT_S = 0.5
"""How long refused connections are tried again: `sluice serve` needs this long to listen."""

OF_COMMAND = "SLUICE_OF_COMMAND"
"""Variable of the processes that a command starts: they check the address as the command would."""

_ATTEMPT_S = 1.0
_PAUSE_S = 0.05
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
"""Variables by which gRPC reaches servers through a proxy."""


def require_listener(config: ClientConfig) -> None:
    """Tries the addresses of the cluster again for ``WAIT_S`` while all refuse connections.

    While a server of this machine is starting at one of them, or the DNS server fails, the limit
    is ``connect_timeout_ms``. A slow or silent server passes: the client's own calls wait for it.

    :raises NetworkError: nothing listens at any of the addresses; names each of them once.
    :raises ConfigurationError: the bootstrap address is malformed.
    """
    addresses = parse_bootstrap(config.bootstrap)
    if addresses[0].scheme == "grpc" and any(map(os.environ.get, _PROXIES)):
        return
    started, most_s = time.monotonic(), config.connect_timeout_ms / 1000
    while True:
        # Checked before the attempt, which then finds a server that has just started.
        is_starting = _is_starting(addresses)
        failures = _failures(addresses)
        if failures is None:
            return
        reasons = {error.details["no_listener"] for error in failures}
        wait_s = min(WAIT_S, most_s) if "refused" in reasons else 0
        if is_starting or any(error.details.get("may_pass") for error in failures):
            wait_s = most_s
        if time.monotonic() - started >= wait_s:
            kind = "refused" if "refused" in reasons else "unknown host"
            raise NetworkError(_text(addresses, failures), sent=False, no_listener=kind)
        time.sleep(_PAUSE_S)


def _is_starting(addresses: tuple[Address, ...]) -> bool:
    return any(is_loopback(a.host) and start_marker.is_starting(a.port) for a in addresses)


def _failures(addresses: tuple[Address, ...]) -> list[NetworkError] | None:
    """What each address failed by; None if something may listen at one of them."""
    found = []
    for address in addresses:
        try:
            tcp.connect(address.host, address.port, time.monotonic() + _ATTEMPT_S).close()
        except NetworkError as error:
            if not error.details.get("no_listener"):
                return None
            found.append(error)
        else:
            return None
    return found


def _text(addresses: tuple[Address, ...], failures: list[NetworkError]) -> str:
    """Names each address once."""
    found = {"refused": list[str](), "unknown host": list[str]()}
    for address, error in zip(addresses, failures, strict=True):
        is_refused = error.details["no_listener"] == "refused"
        found[error.details["no_listener"]].append(address.target if is_refused else error.message)
    parts = list(dict.fromkeys(found["unknown host"]))
    if found["refused"]:
        parts.append(f"nothing listens at {' or '.join(found['refused'])}: connection refused")
    return "; ".join(parts)
