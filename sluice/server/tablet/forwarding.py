"""Tablet calls that are forwarded to the coordinator, so that no stale copy is returned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from google.protobuf.message import Message

from sluice.wire import apis
from sluice.wire.apis import Api
from sluice.wire.handlers import Handler

FORWARDED: tuple[Api, ...] = (apis.LIST_TIERING_STATUSES,)


class Coordinator(Protocol):
    """A connection to the current coordinator."""

    def ask(self, api: Api, request: Any) -> Message | bytes:
        """Returns the coordinator's response.

        :raises FlussError: the coordinator refuses the request, or cannot be reached.
        """


def forwarding(coordinator: Coordinator, calls: Iterable[Api] = FORWARDED) -> Mapping[Api, Handler]:
    """Tablet handlers that forward requests and return the responses unchanged."""

    def handler(api: Api) -> Handler:
        return lambda request: coordinator.ask(api, request)

    return {api: handler(api) for api in calls}
