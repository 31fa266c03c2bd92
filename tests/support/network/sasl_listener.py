"""A listener before a cluster's native ports that lets in only who logs in by SASL PLAIN."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from contextlib import suppress

from sluice.errors import AuthenticateError
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.messages import frames
from sluice.wire.messages.frames import FrameReader, RequestHead
from sluice.wire.native.sasl import AUTHENTICATE, Credentials
from tests.support.network.proxy import Proxy


class SaslListener(Proxy):
    """Answers Authenticate itself, as a listener of protocol sasl; the rest is the cluster's."""

    def __init__(self, ports: Iterable[int], username: str, password: str) -> None:
        super().__init__(ports)
        self._token = Credentials(username, password).token()
        self.refused = 0

    def _requests(self, client: socket.socket, server: socket.socket, keys: dict[int, int]) -> None:
        reader = FrameReader(1 << 27)
        known = False
        with suppress(OSError):
            while count := client.recv_into(reader.free_buffer()):
                frame = reader.received(count)
                if frame is None:
                    continue
                head, body = frames.parse_request(frame)
                if head.api_key == AUTHENTICATE.key:
                    known = self._authenticate(client, head, bytes(body))
                elif known or head.api_key == apis.API_VERSIONS.key:
                    keys[head.request_id] = head.api_key
                    server.sendall(struct.pack(">i", len(frame)) + bytes(frame))
                else:
                    self._refuse(client, head, "not authenticated")
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)

    def _authenticate(self, client: socket.socket, head: RequestHead, body: bytes) -> bool:
        request = pb.AuthenticateRequest.FromString(body)
        if (request.protocol, request.token) != ("PLAIN", self._token):
            self._refuse(client, head, "Authentication failed")
            return False
        answer = pb.AuthenticateResponse(challenge=b"").SerializeToString()
        client.sendall(frames.encode_response(head.request_id, answer))
        return True

    def _refuse(self, client: socket.socket, head: RequestHead, text: str) -> None:
        self.refused += 1
        error = pb.ErrorResponse(error_code=AuthenticateError.code, error_message=text)
        client.sendall(frames.encode_error(head.request_id, error))
