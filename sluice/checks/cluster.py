"""Whether the Fluss cluster answers."""

from __future__ import annotations

from sluice.checks.findings import Check
from sluice.client import connect
from sluice.config import ClientConfig


def cluster_check(config: ClientConfig) -> Check:
    """The cluster lists its databases. It takes the time that the configuration allows a call."""

    def look() -> str:
        with connect(config) as client:
            databases = len(client.admin.list_databases())
        return f"answers; {databases} database{'' if databases == 1 else 's'}"

    return Check(f"cluster {config.bootstrap}", look)
