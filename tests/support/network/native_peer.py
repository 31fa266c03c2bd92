"""A server of raw frames on a free port: each connection does exactly what a test's script says."""

from __future__ import annotations

import socket
import struct
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from google.protobuf.message import Message

from sluice.errors import RecordTooLarge
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.messages import frames
from sluice.wire.messages.frames import FrameReader, RequestHead
from tests.support.network.ports import held_port, port_of


def feed(reader: FrameReader, data: bytes) -> list[memoryview]:
    """The frames that these bytes complete."""
    found = []
    while data:
        buffer = reader.free_buffer()
        count = min(len(buffer), len(data))
        buffer[:count], data = data[:count], data[count:]
        if (frame := reader.received(count)) is not None:
            found.append(frame)
    return found


class Peer:
    """One accepted connection, from the server's side."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._reader = FrameReader(1 << 24)

    def request(self) -> tuple[RequestHead, bytes] | None:
        """The next request; None when the client has gone."""
        while True:
            count = self.sock.recv_into(self._reader.free_buffer())
            if not count:
                return None
            frame = self._reader.received(count)
            if frame is not None:
                head, body = frames.parse_request(frame)
                return head, bytes(body)

    def answer(self, head: RequestHead, message: Message) -> None:
        self.sock.sendall(frames.encode_response(head.request_id, message.SerializeToString()))

    def error(self, head: RequestHead, code: int, text: str = "") -> None:
        error = pb.ErrorResponse(error_code=code, error_message=text)
        self.sock.sendall(frames.encode_error(head.request_id, error))

    def greet(
        self, server_type: int | None = 2, versions: Mapping[int, tuple[int, int]] | None = None
    ) -> None:
        """Answers ApiVersions; by default with every call that this project knows."""
        got = self.request()
        assert got is not None
        head, _ = got
        assert head.api_key == apis.API_VERSIONS.key
        self.answer(head, hello(server_type, versions))


def hello(
    server_type: int | None = 2, versions: Mapping[int, tuple[int, int]] | None = None
) -> pb.ApiVersionsResponse:
    reply = pb.ApiVersionsResponse(server_type=server_type)
    offered = versions if versions is not None else {api.key: (0, 0) for api in apis.APIS}
    for key, (lowest, highest) in offered.items():
        reply.api_versions.add(api_key=key, min_version=lowest, max_version=highest)
    return reply


class PeerServer:
    """Plays the script once for each connection, on a thread of its own; then closes it."""

    def __init__(self, script: Callable[[Peer], object]) -> None:
        self._script = script
        keeper = held_port()  # nobody else comes to its port, not even when it is closed
        weakref.finalize(self, keeper.close)
        self.port = port_of(keeper)
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.connections = 0
        self.failures: list[BaseException] = []
        self._peers: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> PeerServer:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in self._peers:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(60)
        assert not self.failures, self.failures

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._peers.append(sock)
            thread = threading.Thread(target=self._play, args=(sock,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _play(self, sock: socket.socket) -> None:
        try:
            self._script(Peer(sock))
        except OSError:
            pass  # the client, or the end of the test, closed the connection
        except RecordTooLarge:
            pass  # the client tries whether the port speaks another protocol
        except BaseException as error:
            self.failures.append(error)
        finally:
            sock.close()


def serving(answers: Mapping[Any, Callable[[Any], Any]], server_type: int = 2) -> Any:
    """A script that answers each call by its own function, until the client goes."""
    by_key = {api.key: (api, answer) for api, answer in answers.items()}

    def script(peer: Peer) -> None:
        while (got := peer.request()) is not None:
            head, body = got
            if head.api_key == apis.API_VERSIONS.key:
                peer.answer(head, hello(server_type))
            else:
                api, answer = by_key[head.api_key]
                peer.answer(head, answer(api.request.FromString(body)))

    return script


def announced(size: int) -> bytes:
    """Only the length of a frame."""
    return struct.pack(">i", size)
