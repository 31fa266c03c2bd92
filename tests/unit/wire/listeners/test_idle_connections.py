"""A request that arrives just when a server finds its connection idle is served."""

from __future__ import annotations

import asyncio
import select
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import structlog

from sluice.clock import SystemClock
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Role
from sluice.wire.listeners.refusals import RefusalLog
from sluice.wire.messages import frames
from sluice.wire.native.connection import Connection
from sluice.wire.native.workers import SharedState
from tests.support.network.native_listener import LIMITS, Handlers

IDLE = replace(LIMITS, idle_s=600.0)
EXISTS = pb.DatabaseExistsRequest(database_name="yes").SerializeToString()
FETCH = pb.FetchLogRequest(follower_server_id=-1, max_bytes=7, max_wait_ms=1).SerializeToString()


class OwnedLoop(asyncio.SelectorEventLoop):
    """A loop whose time the test moves. It finds what sockets have before what time brings."""

    now_s = 1_000.0

    def time(self) -> float:
        return self.now_s


@pytest.fixture
def loop() -> Iterator[OwnedLoop]:
    loop = OwnedLoop()
    yield loop
    loop.close()


class Pair:
    """A client, and the server's side of its connection."""

    def __init__(self, loop: OwnedLoop, handlers: Handlers, pool: ThreadPoolExecutor) -> None:
        self.client, served = socket.socketpair()
        served.setblocking(False)
        refusals = RefusalLog(structlog.get_logger(), SystemClock())
        shared = SharedState(pool, 4, IDLE, refusals)
        calls = handlers.all()[Role.TABLET]
        connection = Connection(served, "test", Role.TABLET, calls, shared)
        self.served = loop.create_task(connection.run())
        self._loop = loop

    def send(self, api: apis.Api, body: bytes, request_id: int) -> None:
        self.client.sendall(frames.encode_request(api.key, 0, request_id, body))

    async def until(self, done: Callable[[], bool]) -> None:
        """Lets the connection work, while its time stands still."""
        patient_until_s = time.monotonic() + 60
        while not done():
            assert time.monotonic() < patient_until_s
            await asyncio.sleep(0)

    async def waits(self) -> None:
        """Lets the connection work until it waits for its client."""
        for _ in range(10):
            await asyncio.sleep(0)

    async def answered(self) -> bytes:
        """What the server has sent; empty once it has closed."""
        await self.until(lambda: bool(select.select([self.client], [], [], 0)[0]))
        return self.client.recv(1 << 16)


def id_of(answer: bytes) -> int | None:
    return frames.parse_response(memoryview(answer)[4:])[0].request_id


def test_a_request_at_the_idle_limit_is_served(loop: OwnedLoop, handlers: Handlers) -> None:
    async def scene() -> None:
        pair = Pair(loop, handlers, pool)
        for number in (1, 2, 3):
            await pair.waits()
            pair.send(apis.DATABASE_EXISTS, EXISTS, number)
            loop.now_s += IDLE.idle_s
            assert id_of(await pair.answered()) == number
        await pair.waits()
        loop.now_s += IDLE.idle_s
        assert await pair.answered() == b"", "nothing arrived: it was idle"
        await pair.served

    with ThreadPoolExecutor() as pool:
        loop.run_until_complete(scene())
    assert handlers.seen == ["yes"] * 3


def test_a_request_at_the_idle_limit_behind_one_that_waits(
    loop: OwnedLoop, handlers: Handlers
) -> None:
    """The connection is not idle: its client waits for an answer."""

    async def scene() -> None:
        pair = Pair(loop, handlers, pool)
        pair.send(apis.FETCH_LOG, FETCH, 1)
        await pair.until(lambda: handlers.running == 1)
        await pair.waits()
        pair.send(apis.DATABASE_EXISTS, EXISTS, 2)
        loop.now_s += IDLE.idle_s
        assert id_of(await pair.answered()) == 2
        handlers.gate.set()
        assert id_of(await pair.answered()) == 1
        pair.client.close()
        await pair.served

    with ThreadPoolExecutor() as pool:
        try:
            loop.run_until_complete(scene())
        finally:
            handlers.gate.set()
