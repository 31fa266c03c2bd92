"""A native listener for the tests of its connections."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sluice.wire.apis import Role
from tests.support.network.native_listener import Handlers, Listeners, Peer, Start


@pytest.fixture
def handlers() -> Handlers:
    return Handlers()


@pytest.fixture
def listeners(handlers: Handlers) -> Iterator[Listeners]:
    listeners = Listeners(handlers)
    yield listeners
    listeners.stop()


@pytest.fixture
def start(listeners: Listeners) -> Start:
    return listeners.start


@pytest.fixture
def peer(start: Start) -> Iterator[Peer]:
    peer = Peer(start()[Role.TABLET])
    yield peer
    peer.socket.close()
