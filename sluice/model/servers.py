"""The description of a server in a cluster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """One server of a cluster, as it responded."""

    address: str
    role: str
    """``coordinator`` or ``tablet``."""
    version: str | None
    """The version of Sluice; None for Apache Fluss, which does not report it."""
    lacks: tuple[str, ...]
    """Names of the client's calls that the server does not support."""
