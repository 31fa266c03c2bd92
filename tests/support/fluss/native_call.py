"""Sends one native call over a plain socket, for tests that check the exact bytes.

It shares no code with the client's transport: it implements docs/fluss/rpc.md#frames a second time.
"""

from __future__ import annotations

import socket
import struct
from typing import Any, Self

from google.protobuf.message import Message

from sluice.errors import NetworkError, RequestTimeOut, from_code
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Api

_REQUEST = struct.Struct(">ihhi")
_SUCCESS, _ERROR, _FAILURE = 0, 1, 2


class NativeCall:
    """A connection to one Fluss server that carries one call at a time. Not thread-safe."""

    def __init__(self, port: int, host: str = "127.0.0.1", timeout_s: float = 10.0) -> None:
        self._name = f"{host}:{port}"
        try:
            self._socket = socket.create_connection((host, port), timeout_s)
        except OSError as error:
            raise NetworkError(f"no connection to {self._name}: {error}") from error
        self._request_id = 0

    def call(self, api: Api, request: Message, version: int = 0) -> Any:
        """Sends a request and returns the response, of the class ``api.response``.

        :param version: of the call. It matters for PutKv, Lookup and PrefixLookup, where version 1
            means that the client encodes keys by ``table.kv.format-version`` 2.
        :raises FlussError: the error that the server returned.
        :raises RequestTimeOut: no response arrived within the connection's time-out.
        :raises NetworkError: the connection broke.
        """
        self._request_id += 1
        body = request.SerializeToString()
        head = _REQUEST.pack(8 + len(body), api.key, version, self._request_id)
        try:
            self._socket.sendall(head + body)
            answer = self._read(struct.unpack(">i", self._read(4))[0])
        except TimeoutError as error:
            raise RequestTimeOut(f"{self._name} did not answer {api.name}") from error
        except OSError as error:
            raise NetworkError(f"{self._name} during {api.name}: {error}") from error
        kind, start = answer[0], 1 if answer[0] == _FAILURE else 5
        if kind != _FAILURE and struct.unpack_from(">i", answer, 1)[0] != self._request_id:
            raise NetworkError(f"{self._name}: the response to {api.name} has another request id")
        if kind != _SUCCESS:
            failure = pb.ErrorResponse.FromString(answer[start:])
            raise from_code(failure.error_code, failure.error_message)
        return api.response.FromString(answer[start:])

    def _read(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size > 0:
            part = self._socket.recv(min(size, 1 << 20))
            if not part:
                raise ConnectionError("closed by the server")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
