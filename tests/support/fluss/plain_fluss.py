"""The embedded server with no more than Apache Fluss has: it tells no tiering statuses.

Heartbeats lose what Fluss passes over (wanted tables, claims that are given back, reasons), a table
that fails is handed out again at once, and a new one waits for its freshness.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest

from sluice.clock import Clock
from sluice.config import ServerConfig
from sluice.server.cluster import EmbeddedCluster
from sluice.server.coordinator.calls.tiering_calls import TieringService
from sluice.statuses import TieringStatuses
from sluice.wire import apis
from sluice.wire.apis import Api
from sluice.wire.listeners.handlers import Handler


@contextmanager
def plain_fluss(data_dir: Path, clock: Clock, scheme: str = "fluss") -> Iterator[EmbeddedCluster]:
    """A server that runs while the block lasts."""
    whole = TieringService.handlers

    def handlers(service: TieringService) -> Mapping[Api, Handler]:
        heartbeat = whole(service)[apis.LAKE_TIERING_HEARTBEAT]

        def passing_over(request: Any) -> Any:
            for field in ("requested_tables", "released_tables", "worker", "list_held"):
                request.ClearField(field)
            for entry in request.failed_tables:
                entry.ClearField("error_message")
            return heartbeat(request)

        return {apis.LAKE_TIERING_HEARTBEAT: passing_over}

    config = ServerConfig(
        data_dir=str(data_dir), listen=f"{scheme}://127.0.0.1:0", tiering_backoff_ms=0
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TieringService, "handlers", handlers)
        patch.setattr(
            TieringStatuses, "enable", partialmethod(TieringStatuses.enable, at_once=False)
        )
        with EmbeddedCluster(config, clock) as cluster:
            yield cluster
