"""A native door for the tests of its connections."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sluice.wire.apis import Role
from tests.support.native_door import Doors, Handlers, Peer, Start


@pytest.fixture
def handlers() -> Handlers:
    return Handlers()


@pytest.fixture
def doors(handlers: Handlers) -> Iterator[Doors]:
    doors = Doors(handlers)
    yield doors
    doors.stop()


@pytest.fixture
def start(doors: Doors) -> Start:
    return doors.start


@pytest.fixture
def peer(start: Start) -> Iterator[Peer]:
    peer = Peer(start()[Role.TABLET])
    yield peer
    peer.socket.close()
