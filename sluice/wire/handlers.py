"""What a server's doors call: one function for each call that a role offers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf.message import DecodeError, Message

from sluice.errors import CorruptMessage
from sluice.wire.apis import Api, Role

Handler = Callable[[Any], Message | bytes]
"""Takes the request message; answers the response message, or its bytes if it has made them
already (FetchLog does, to copy log data once less)."""

Handlers = Mapping[Role, Mapping[Api, Handler]]


def parsed(api: Api, payload: bytes) -> Message:
    """:raises CorruptMessage: the bytes are no request of that call, or not a whole one."""
    try:
        request = api.request.FromString(payload)
    except DecodeError as error:
        raise CorruptMessage(f"{api.name}: the request cannot be read: {error}") from error
    if not request.IsInitialized():
        raise CorruptMessage(f"{api.name}: the request lacks a required field")
    return request


def answered(api: Api, call: Handler, payload: bytes) -> bytes:
    """The serialized answer to a serialized request."""
    response = call(parsed(api, payload))
    return response if isinstance(response, bytes) else response.SerializeToString()
