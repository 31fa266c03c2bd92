"""The handlers behind a server's listeners: one function for each call that a role offers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

from google.protobuf.message import DecodeError, Message

from sluice.errors import CorruptMessage
from sluice.model import NOBODY, Caller
from sluice.wire.apis import Api, Role

Handler = Callable[[Any], Message | bytes]
"""Takes the request message; returns the response message, or its bytes if it has already made
them (as FetchLog does, to copy log data once less)."""

Handlers = Mapping[Role, Mapping[Api, Handler]]


_version: ContextVar[int | None] = ContextVar("client_version", default=None)


def client_version() -> int | None:
    """The version of the current call, as its client sent it; None without one (gRPC)."""
    return _version.get()


_caller: ContextVar[Caller] = ContextVar("caller", default=NOBODY)


def caller() -> Caller:
    """The user who makes the current call."""
    return _caller.get()


_party: ContextVar[str] = ContextVar("party", default="")


def calling_party() -> str:
    """The party of the current call, as calls take turns by it: ``fair_turns.party_of``."""
    return _party.get()


def parse_request(api: Api, payload: bytes) -> Message:
    """:raises CorruptMessage: the bytes are not a complete request of that call."""
    try:
        request = api.request.FromString(payload)
    except DecodeError as error:
        raise CorruptMessage(f"{api.name}: the request cannot be read: {error}") from error
    if not request.IsInitialized():
        raise CorruptMessage(f"{api.name}: the request lacks a required field")
    return request


def serve_call(
    api: Api,
    call: Handler,
    payload: bytes,
    version: int | None = None,
    user: Caller = NOBODY,
    *,
    party: str,
) -> bytes:
    """The serialized response to a serialized request of a version, made by a user."""
    version_token, caller_token = _version.set(version), _caller.set(user)
    party_token = _party.set(party)
    try:
        response = call(parse_request(api, payload))
    finally:
        _party.reset(party_token)
        _caller.reset(caller_token)
        _version.reset(version_token)
    return response if isinstance(response, bytes) else response.SerializeToString()
