"""A native listener over handlers that a test steers, and a client of it by hand."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sluice.errors import FlussError, TableNotExist
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Role
from sluice.wire.messages import frames
from sluice.wire.messages.frames import FrameReader, ResponseType
from sluice.wire.native.memory import Limits
from sluice.wire.native.server import NativeServer

MB = 1024 * 1024
LIMITS = Limits(max_frame_bytes=MB, max_bytes=4 * MB)


@dataclass
class Handlers:
    """What the server offers: echoes and waits that the test steers."""

    seen: list[str] = field(default_factory=list)
    """The names that DatabaseExists asked for."""
    made_before: list[int] = field(default_factory=list)
    """How many fetches were made before each of these."""
    running: int = 0
    most: int = 0
    made: int = 0
    gate: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    reply_bytes: int = 0
    versions_wait: bool = False
    """Whether ApiVersions waits for the gate."""

    def exists(self, request: pb.DatabaseExistsRequest) -> pb.DatabaseExistsResponse:
        self.seen.append(request.database_name)
        self.made_before.append(self.made)
        if request.database_name == "boom":
            raise ValueError("boom")
        if request.database_name == "gone":
            raise TableNotExist("no such table")
        return pb.DatabaseExistsResponse(exists=request.database_name == "yes")

    def fetch(self, request: pb.FetchLogRequest) -> bytes:
        """Waits for the gate if asked to wait; answers ``reply_bytes`` of log."""
        self.run(wait=request.max_wait_ms > 0)
        return self.fetched(request.max_bytes)

    def versions(self, _: pb.ApiVersionsRequest) -> pb.ApiVersionsResponse:
        """Offers the calls of a tablet."""
        self.run(wait=self.versions_wait)
        response = pb.ApiVersionsResponse(server_type=Role.TABLET.value, server_version="1")
        for api in self.all()[Role.TABLET]:
            response.api_versions.add(api_key=api.key, min_version=0, max_version=0)
        return response

    def run(self, *, wait: bool) -> None:
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
            gate = self.gate
        if wait:
            assert gate.wait(120)
        with self.lock:
            self.running -= 1
            self.made += 1

    def fetched(self, mark: int) -> bytes:
        """The answer to a fetch."""
        response = pb.FetchLogResponse()
        table = response.tables_resp.add(table_id=mark)
        table.buckets_resp.add(bucket_id=0, records=bytes(self.reply_bytes))
        return response.SerializeToString()

    def all(self) -> dict[Role, Any]:
        calls = {apis.DATABASE_EXISTS: self.exists, apis.FETCH_LOG: self.fetch}
        return {Role.COORDINATOR: {apis.DATABASE_EXISTS: self.exists}, Role.TABLET: calls}


class Peer:
    """A client by hand."""

    def __init__(self, port: int, host: str = "127.0.0.1", source: str = "") -> None:
        """:param source: the address to connect from; all of 127.0.0.0/8 are this machine."""
        self.socket = socket.create_connection((host, port), 60, (source, 0))
        self.reader = FrameReader(2**31 - 1)
        self.next_id = 0

    def send(self, api: apis.Api, request: Any, version: int = 0) -> int:
        self.next_id += 1
        body = request.SerializeToString()
        self.socket.sendall(frames.encode_request(api.key, version, self.next_id, body))
        return self.next_id

    def receive(self) -> tuple[int | None, Any]:
        """Request id, and the body's bytes or the error. :raises EOFError: the server closed."""
        while True:
            count = self.socket.recv_into(self.reader.free_buffer())
            if not count:
                raise EOFError
            frame = self.reader.received(count)
            if frame is not None:
                head, body = frames.parse_response(frame)
                if head.type is ResponseType.SUCCESS:
                    return head.request_id, bytes(body)
                return head.request_id, frames.parse_error(body)

    def exists(self, name: str) -> Any:
        sent = self.send(apis.DATABASE_EXISTS, pb.DatabaseExistsRequest(database_name=name))
        request_id, answer = self.receive()
        assert request_id == sent
        if isinstance(answer, FlussError):
            return answer
        return pb.DatabaseExistsResponse.FromString(answer).exists

    def fetch(self, *, wait: bool, mark: int = 0) -> int:
        request = pb.FetchLogRequest(
            follower_server_id=-1, max_bytes=mark, max_wait_ms=1 if wait else 0
        )
        return self.send(apis.FETCH_LOG, request)

    def fetch_together(self, count: int, *, wait: bool = False) -> None:
        """So many fetches in one piece: no time passes in which the server may leave the client."""
        request = pb.FetchLogRequest(follower_server_id=-1, max_bytes=0, max_wait_ms=int(wait))
        body = request.SerializeToString()
        ids = range(self.next_id + 1, self.next_id + 1 + count)
        pieces = [frames.encode_request(apis.FETCH_LOG.key, 0, number, body) for number in ids]
        self.socket.sendall(b"".join(pieces))
        self.next_id += count

    def closed(self) -> bool:
        """Whether the server closes (waits up to the socket's time)."""
        try:
            return not self.socket.recv(1)
        except ConnectionResetError:
            return True


Start = Callable[..., Any]
"""Starts a listener with limits, host and number of workers; returns its ports by role."""


class Listeners:
    """Every listener that a test started, to be stopped behind it."""

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers
        self._running: list[NativeServer] = []

    def start(self, limits: Limits = LIMITS, host: str = "127.0.0.1", workers: int = 8) -> Any:
        calls, ports = self._handlers.all(), dict.fromkeys(Role, 0)
        server = NativeServer(calls, host, ports, max_workers=workers, limits=limits)
        found = server.start()
        self._running.append(server)
        return found

    @property
    def clients(self) -> int:
        """How many are connected now."""
        return sum(len(server._connections) for server in self._running)

    def stop(self) -> None:
        self._handlers.gate.set()
        for server in self._running:
            server.stop(2)
