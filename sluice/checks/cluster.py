"""Checks that the Fluss cluster answers."""

from __future__ import annotations

from collections.abc import Callable

from sluice.checks.findings import Check
from sluice.client import connect
from sluice.client.connection.reachability import require_listener
from sluice.config import ClientConfig


def cluster_check(
    config: ClientConfig, require: Callable[[ClientConfig], None] = require_listener
) -> Check:
    """Checks that the cluster lists its databases, within the configured time for a request.

    :param require: raises NetworkError if nothing listens at the cluster's address.
    """

    def run() -> str:
        require(config)
        with connect(config) as client:
            databases = len(client.admin.list_databases())
        return f"answers; {databases} database{'' if databases == 1 else 's'}"

    return Check(f"cluster {config.bootstrap}", run)
