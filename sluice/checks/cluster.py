"""Checks that the Fluss cluster answers."""

from __future__ import annotations

from sluice.checks.findings import Check
from sluice.client import connect
from sluice.client.reachability import require_listener
from sluice.config import ClientConfig


def cluster_check(config: ClientConfig) -> Check:
    """Checks that the cluster lists its databases, within the configured time for a request."""

    def run() -> str:
        require_listener(config)
        with connect(config) as client:
            databases = len(client.admin.list_databases())
        return f"answers; {databases} database{'' if databases == 1 else 's'}"

    return Check(f"cluster {config.bootstrap}", run)
