"""Calls that a tablet answers with the coordinator's word: it keeps no copy that could be old."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from google.protobuf.message import Message

from sluice.wire import apis
from sluice.wire.apis import Api
from sluice.wire.handlers import Handler

FORWARDED: tuple[Api, ...] = (apis.LIST_TIERING_STATUSES,)


class Coordinator(Protocol):
    """The way to the coordinator that leads now."""

    def ask(self, api: Api, request: Any) -> Message | bytes:
        """The coordinator's answer.

        :raises FlussError: what the coordinator has against it, or that it cannot be reached.
        """


def forwarding(coordinator: Coordinator, calls: Iterable[Api] = FORWARDED) -> Mapping[Api, Handler]:
    """Handlers of a tablet that hand the request on, and the answer back, as they are."""

    def handler(api: Api) -> Handler:
        return lambda request: coordinator.ask(api, request)

    return {api: handler(api) for api in calls}
