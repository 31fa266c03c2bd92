"""A proxy before a cluster's native ports that breaks answers on request.

It reads both directions frame by frame, so that a fault can be aimed at one call. Addresses in
metadata are rewritten to its own, so that a client never gets around it.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from sluice.errors import RecordTooLarge
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Api
from sluice.wire.messages import frames
from sluice.wire.messages.frames import FrameReader
from tests.support.fluss.fluss_versions import Versions


@dataclass(frozen=True)
class Answer:
    """An answer on its way to the client."""

    request_id: int
    body: bytes

    @property
    def frame(self) -> bytes:
        return frames.encode_response(self.request_id, self.body)


Fault = Callable[[socket.socket, Answer], bool]
"""Sends to the client what it wants in place of an answer; whether the connection goes on."""


def hang(client: socket.socket, answer: Answer) -> bool:
    """The answer never comes, the connection stays."""
    return True


def close(client: socket.socket, answer: Answer) -> bool:
    return False


def cut(client: socket.socket, answer: Answer) -> bool:
    """The connection ends inside the frame."""
    client.sendall(answer.frame[: max(5, len(answer.frame) // 2)])
    return False


def two_gigabytes(client: socket.socket, answer: Answer) -> bool:
    client.sendall(struct.pack(">i", 2**31 - 1) + answer.frame)
    return True


def other_id(client: socket.socket, answer: Answer) -> bool:
    client.sendall(frames.encode_response(answer.request_id + 1000, answer.body))
    return True


def garbage(client: socket.socket, answer: Answer) -> bool:
    client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    return True


def nonsense(client: socket.socket, answer: Answer) -> bool:
    """A proper frame around bytes that are no message."""
    client.sendall(frames.encode_response(answer.request_id, b"\xff" * 40))
    return True


def other_frame(client: socket.socket, answer: Answer) -> bool:
    """A frame of a later protocol: of a type that this one does not have."""
    frame = bytearray(answer.frame)
    frame[4] = 9
    client.sendall(frame)
    return True


def other_version(client: socket.socket, answer: Answer) -> bool:
    """The answer to ApiVersions of a server that has dropped every version that a client knows."""
    reply = pb.ApiVersionsResponse.FromString(answer.body)
    for api in reply.api_versions:
        api.min_version, api.max_version = api.max_version + 1, api.max_version + 3
    client.sendall(frames.encode_response(answer.request_id, reply.SerializeToString()))
    return True


def error(code: int, text: str = "") -> Fault:
    def answer_error(client: socket.socket, answer: Answer) -> bool:
        reply = pb.ErrorResponse(error_code=code, error_message=text)
        client.sendall(frames.encode_error(answer.request_id, reply))
        return True

    return answer_error


def failure(code: int, text: str = "") -> Fault:
    def fail(client: socket.socket, answer: Answer) -> bool:
        reply = pb.ErrorResponse(error_code=code, error_message=text)
        client.sendall(frames.encode_failure(reply))
        return False

    return fail


class Proxy:
    """Stands before native ports; its own for each are in ``ports``."""

    def __init__(self, ports: Iterable[int]) -> None:
        self._listeners = {port: socket.create_server(("127.0.0.1", 0)) for port in ports}
        self.ports = {port: sock.getsockname()[1] for port, sock in self._listeners.items()}
        self.connections = 0
        self._lock = threading.Lock()  # guards the faults and the sockets
        self._faults: list[tuple[int, Fault]] = []
        self._standing: dict[int, Fault] = {}
        self._delays_s: dict[int, float] = {}
        self._offered: Versions | None = None
        self.sent: list[tuple[int, int]] = []
        """Api key and version of each request, in the order of their arrival."""
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def plan(self, api: Api, *faults: Fault) -> None:
        """Breaks the next answers to this call, one after the other."""
        with self._lock:
            self._faults += [(api.key, fault) for fault in faults]

    def plan_always(self, api: Api, fault: Fault) -> None:
        """Breaks all answers to this call until ``mend``."""
        with self._lock:
            self._standing[api.key] = fault

    def delay(self, api: Api, seconds: float) -> None:
        """Keeps all answers to this call back for so long until ``mend``; they stay whole."""
        with self._lock:
            self._delays_s[api.key] = seconds

    def offer(self, versions: Versions) -> None:
        """Names only these calls and versions to clients, as a server of another release does."""
        self._offered = versions

    def mend(self) -> None:
        """Forgets all faults."""
        with self._lock:
            self._faults, self._standing, self._delays_s = [], {}, {}

    def drop(self) -> None:
        """Ends all connections, as a server does that is replaced by another one."""
        with self._lock:
            sockets, self._sockets = self._sockets, []
        for sock in sockets:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    @property
    def planned(self) -> int:
        """Faults that did not happen yet."""
        with self._lock:
            return len(self._faults)

    def __enter__(self) -> Proxy:
        for port in self._listeners:
            self._run(self._accept, port)
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            sockets = [*self._listeners.values(), *self._sockets]
        for sock in sockets:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for sock in self._listeners.values():
            sock.close()
        for thread in list(self._threads):
            thread.join(60)

    def _run(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, port: int) -> None:
        while True:
            try:
                client, _ = self._listeners[port].accept()
            except OSError:
                return
            self.connections += 1
            try:
                server = socket.create_connection(("127.0.0.1", port), 10)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            with self._lock:
                self._sockets += [client, server]
            keys: dict[int, int] = {}
            self._run(self._requests, client, server, keys)
            self._run(self._answers, client, server, keys)

    def _requests(self, client: socket.socket, server: socket.socket, keys: dict[int, int]) -> None:
        reader = FrameReader(1 << 27)
        with suppress(OSError, RecordTooLarge):  # the client may try another protocol
            while count := client.recv_into(reader.free_buffer()):
                frame = reader.received(count)
                if frame is not None:
                    head, _ = frames.parse_request(frame)
                    keys[head.request_id] = head.api_key
                    with self._lock:
                        self.sent.append((head.api_key, head.api_version))
                    server.sendall(struct.pack(">i", len(frame)) + bytes(frame))
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)

    def _answers(self, client: socket.socket, server: socket.socket, keys: dict[int, int]) -> None:
        reader = FrameReader(1 << 27)
        going = True
        with suppress(OSError):
            while going and (count := server.recv_into(reader.free_buffer())):
                frame = reader.received(count)
                if frame is not None:
                    going = self._pass_on(client, frame, keys)
        for sock in (client, server):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _pass_on(self, client: socket.socket, frame: memoryview, keys: dict[int, int]) -> bool:
        head, body = frames.parse_response(frame)
        whole = struct.pack(">i", len(frame)) + bytes(frame)
        if head.request_id is None or head.type is not frames.ResponseType.SUCCESS:
            client.sendall(whole)
            return True
        key = keys.pop(head.request_id)
        time.sleep(self._delays_s.get(key, 0.0))
        fault = self._next_fault(key)
        if fault is not None:
            return fault(client, Answer(head.request_id, bytes(body)))
        if key == apis.API_VERSIONS.key and self._offered is not None:
            offered = _within(pb.ApiVersionsResponse.FromString(bytes(body)), self._offered)
            whole = frames.encode_response(head.request_id, offered.SerializeToString())
        if key == apis.GET_METADATA.key:
            reply = pb.MetadataResponse.FromString(bytes(body))
            for node in [reply.coordinator_server, *reply.tablet_servers]:
                node.port = self.ports.get(node.port, node.port)
            whole = frames.encode_response(head.request_id, reply.SerializeToString())
        client.sendall(whole)
        return True

    def _next_fault(self, key: int) -> Fault | None:
        with self._lock:
            if self._faults and self._faults[0][0] == key:
                return self._faults.pop(0)[1]
            return self._standing.get(key)


def _within(reply: pb.ApiVersionsResponse, versions: Versions) -> pb.ApiVersionsResponse:
    """The calls of a reply that are in ``versions`` too, with the versions of both."""
    found = pb.ApiVersionsResponse(server_type=reply.server_type)
    for api in reply.api_versions:
        if api.api_key in versions:
            lowest, highest = versions[api.api_key]
            found.api_versions.add(
                api_key=api.api_key,
                min_version=max(lowest, api.min_version),
                max_version=min(highest, api.max_version),
            )
    return found
