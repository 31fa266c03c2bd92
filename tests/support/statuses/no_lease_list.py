"""Servers that list no leases, as Fluss 0.9.1."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.server.coordinator.calls.lease_calls import LeaseService
from sluice.wire import apis


def list_no_leases(patch: pytest.MonkeyPatch) -> None:
    """Takes the call away from all servers of this process."""
    handlers = LeaseService.handlers

    def without_list(self: LeaseService) -> Any:
        return {k: v for k, v in handlers(self).items() if k is not apis.LIST_KV_SNAPSHOT_LEASES}

    patch.setattr(LeaseService, "handlers", without_list)
