"""A proxy in front of a Fluss cluster that records calls of Fluss's native protocol.

It changes GetMetadata responses so that clients keep using the proxy, and passes on everything
else unchanged. So it records the exact bytes that the official client sends.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Api

_LENGTH = struct.Struct(">i")
_REQUEST = struct.Struct(">hhi")
_SUCCESS = 0


@dataclass(frozen=True, slots=True)
class Call:
    """A successful call with the bytes of both messages."""

    api_key: int
    request: bytes
    response: bytes


class Recorder:
    """Listens on a free port for each server; its threads end with the connections."""

    def __init__(self, coordinator_port: int, tablet_port: int) -> None:
        self._lock = threading.Lock()  # guards the calls
        self._calls: list[Call] = []
        self._sockets: list[socket.socket] = []
        self._ports = {port: self._listen(port) for port in (coordinator_port, tablet_port)}
        self.bootstrap = f"fluss://127.0.0.1:{self._ports[coordinator_port]}"

    def calls(self, api: Api) -> list[tuple[Any, Any]]:
        """The requests and responses of a call so far, in the order of the responses."""
        with self._lock:
            found = [call for call in self._calls if call.api_key == api.key]
        return [
            (api.request.FromString(call.request), api.response.FromString(call.response))
            for call in found
        ]

    def clear(self) -> None:
        with self._lock:
            self._calls.clear()

    def close(self) -> None:
        for each in self._sockets:
            each.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _listen(self, target: int) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        self._sockets.append(listener)
        threading.Thread(target=self._accept, args=(listener, target), daemon=True).start()
        return int(listener.getsockname()[1])

    def _accept(self, listener: socket.socket, target: int) -> None:
        while True:
            try:
                client, _ = listener.accept()
                server = socket.create_connection(("127.0.0.1", target), 10)
            except OSError:
                return
            server.settimeout(None)
            self._sockets += [client, server]
            open_calls: dict[int, tuple[int, bytes]] = {}

            def request(frame: bytes, calls: dict[int, tuple[int, bytes]] = open_calls) -> bytes:
                key, _, request_id = _REQUEST.unpack_from(frame)
                calls[request_id] = (key, frame[_REQUEST.size :])
                return frame

            def answer(frame: bytes, calls: dict[int, tuple[int, bytes]] = open_calls) -> bytes:
                return self._answer(frame, calls)

            for source, sink, change in ((client, server, request), (server, client, answer)):
                threading.Thread(target=_pass, args=(source, sink, change), daemon=True).start()

    def _answer(self, frame: bytes, open_calls: dict[int, tuple[int, bytes]]) -> bytes:
        if frame[0] != _SUCCESS:
            return frame
        head, body = frame[:5], frame[5:]
        key, request = open_calls.pop(_LENGTH.unpack_from(head, 1)[0])
        if key == apis.GET_METADATA.key:
            metadata = pb.MetadataResponse.FromString(body)
            for node in (metadata.coordinator_server, *metadata.tablet_servers):
                node.port = self._ports.get(node.port, node.port)
            body = metadata.SerializeToString()
        with self._lock:
            self._calls.append(Call(key, request, body))
        return head + body


def _pass(source: socket.socket, sink: socket.socket, change: Callable[[bytes], bytes]) -> None:
    """Passes frames from one side to the other until either closes."""
    try:
        with source.makefile("rb") as stream:
            while head := stream.read(_LENGTH.size):
                frame = change(stream.read(_LENGTH.unpack(head)[0]))
                sink.sendall(_LENGTH.pack(len(frame)) + frame)
        sink.shutdown(socket.SHUT_WR)
    except (OSError, struct.error):
        sink.close()
