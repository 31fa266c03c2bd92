"""What is told of the servers of a cluster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """One server as it answers now."""

    address: str
    role: str
    """``coordinator`` or ``tablet``."""
    version: str | None
    """Of a Sluice; a Fluss does not tell."""
    lacks: tuple[str, ...]
    """Names of the calls of this client that it does not offer."""
