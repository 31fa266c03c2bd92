"""The cluster of a command: an address where nothing listens is reported within a second."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.client.reachability import require_listener
from sluice.config import ClientConfig
from sluice.errors import NetworkError

if TYPE_CHECKING:
    from sluice.client import Client

ADDRESS_HINT = "give the cluster's address by --bootstrap or SLUICE_CLIENT_BOOTSTRAP"
SERVE_HINT = f"start a server with `sluice serve`, or {ADDRESS_HINT}"


def require_cluster(config: ClientConfig) -> None:
    """Checks that something listens at the cluster's address.

    :raises NetworkError: nothing does; says how to start a server or to give another address.
    """
    try:
        require_listener(config)
    except NetworkError as error:
        hint = SERVE_HINT if error.details.get("no_listener") == "refused" else ADDRESS_HINT
        raise NetworkError(f"{error.message}; {hint}", **error.details) from error


def connect(config: ClientConfig) -> Client:
    """A client of the cluster. :raises NetworkError: as ``require_cluster``."""
    require_cluster(config)
    from sluice.client import connect as open_client  # loads Arrow, and takes as long as the check

    return open_client(config)
