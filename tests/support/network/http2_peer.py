"""A gRPC client by hand that may leave its calls half open: raw HTTP/2 frames over TCP or TLS."""

from __future__ import annotations

import socket
import ssl
import struct
from contextlib import suppress
from typing import NamedTuple

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS, ACK = 0x1, 0x4, 0x1
CANCEL = 8
NO_WINDOW = struct.pack(">HI", 4, 0)
"""Settings of a peer that never reads the data of an answer: its initial window is 0."""


class Frame(NamedTuple):
    """A frame as it was received."""

    kind: int
    flags: int
    stream: int
    payload: bytes


class Http2Peer:
    """One connection. Calls are streams 1, 3, 5, ..."""

    def __init__(
        self,
        port: int,
        *,
        source: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
        settings: bytes = b"",
    ) -> None:
        """:param source: the address to connect from; all of 127.0.0.0/8 are this machine."""
        plain = socket.create_connection(("127.0.0.1", port), 60, (source, 0))
        self.socket = plain if tls is None else tls.wrap_socket(plain, server_hostname="localhost")
        self._scheme = "http" if tls is None else "https"
        self._received = b""
        self._next = 1
        self.ended_calls: set[int] = set()
        self.answered: set[int] = set()
        """Calls with an answer; those that failed have none."""
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0, settings))

    def begin(self, method: str, token: str = "") -> int:
        """Sends the headers of a call and no message; the call's stream."""
        stream, self._next = self._next, self._next + 2
        fields = [
            (":method", "POST"),
            (":scheme", self._scheme),
            (":path", method),
            (":authority", "localhost"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
        ]
        if token:
            fields.append(("authorization", f"Bearer {token}"))
        self.socket.sendall(headers(stream, fields))
        return stream

    def send(self, stream: int, data: bytes, *, last: bool = False) -> None:
        """Sends bytes of a message, which begins with its flag and length."""
        self.socket.sendall(frame(DATA, END_STREAM if last else 0, stream, data))

    def message(self, stream: int, body: bytes) -> None:
        """Sends a complete message and nothing after it."""
        self.send(stream, message_head(len(body)) + body, last=True)

    def cancel(self, stream: int) -> None:
        self.socket.sendall(frame(RST_STREAM, 0, stream, struct.pack(">I", CANCEL)))

    def acknowledge(self, ping: Frame) -> None:
        self.socket.sendall(frame(PING, ACK, 0, ping.payload))

    def wait_processed(self) -> None:
        """Waits until the server has read what was sent."""
        self.socket.sendall(frame(PING, 0, 0, bytes(8)))
        answered = False
        while not answered:
            found = self.frames()
            assert found, "the server closed the connection"
            answered = any(one.kind == PING and one.flags & ACK for one in found)

    def frames(self) -> list[Frame]:
        """Every frame that has arrived, after waiting for one; none if the server closed."""
        while not (found := self._complete()):
            try:
                more = self.socket.recv(1 << 16)
            except ConnectionResetError:
                more = b""
            if not more:
                return []
            self._received += more
        return found

    def is_open(self) -> bool:
        """Whether the server has not closed the connection; drops the frames that have come."""
        self.socket.settimeout(0.01)
        try:
            while self.frames():
                pass
        except TimeoutError:
            return True
        return False

    def ended(self, streams: set[int]) -> set[int]:
        """Waits until the server has ended some of these calls; which ones."""
        while not self.ended_calls & streams and self.frames():
            pass
        return self.ended_calls & streams

    def close(self) -> None:
        with suppress(OSError):
            self.socket.close()

    def _complete(self) -> list[Frame]:
        found = []
        while len(self._received) >= 9:
            size = int.from_bytes(self._received[:3])
            if len(self._received) < 9 + size:
                break
            kind, flags, stream = struct.unpack(">BBI", self._received[3:9])
            found.append(Frame(kind, flags, stream, self._received[9 : 9 + size]))
            if kind == DATA:
                self.answered.add(stream)
            if kind == RST_STREAM or (kind in (HEADERS, DATA) and flags & END_STREAM):
                self.ended_calls.add(stream)
            self._received = self._received[9 + size :]
        return found


def unverified_tls() -> ssl.SSLContext:
    """TLS of a stranger, who does not care whose certificate it is."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


def message_head(size: int) -> bytes:
    """What gRPC sends before a message of that size, uncompressed."""
    return struct.pack(">BI", 0, size)


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + struct.pack(">BBI", kind, flags, stream) + payload


def headers(stream: int, fields: list[tuple[str, str]], flags: int = 0) -> bytes:
    """A frame of header fields."""
    block = b"".join(_literal(name, value) for name, value in fields)
    return frame(HEADERS, END_HEADERS | flags, stream, block)


def _literal(name: str, value: str) -> bytes:
    """A header field without indexing and without Huffman codes (RFC 7541, 6.2.2)."""
    return b"\x00" + _string(name) + _string(value)


def _string(text: str) -> bytes:
    size = len(text)
    if size < 127:
        return bytes([size]) + text.encode()
    head, size = b"\x7f", size - 127
    while size >= 128:
        head, size = head + bytes([size % 128 + 128]), size // 128
    return head + bytes([size]) + text.encode()
