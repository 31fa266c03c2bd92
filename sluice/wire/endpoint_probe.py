"""Finds out which protocol a port speaks that does not answer as its address's scheme requires.

All protocols are tried at once, each over its own connection; nothing secret is sent.
"""

from __future__ import annotations

import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum

from sluice import __version__
from sluice.errors import FlussError, NetworkError, TlsError, WrongProtocol
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.messages import frames
from sluice.wire.sockets.tcp import target

PROBE_S = 3.0
"""Longest time for a busy server to answer a probe."""

PATIENCE_S = 2.0
"""If a first call has no response after this long, the port is probed."""

_HTTP_REQUEST = b"GET / HTTP/1.1\r\nHost: sluice\r\nConnection: close\r\n\r\n"
_ANSWER_BYTES_MAX = 4096
_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
"""The first bytes of an HTTP/2 client, with empty settings."""
_HTTP2_SETTINGS = 4
"""Type of the first frame that every HTTP/2 server sends; gRPC uses HTTP/2."""


class Protocol(Enum):
    """The protocol of a port."""

    FLUSS = "fluss"
    GRPC = "grpc"
    HTTP = "http"
    HTTPS = "https"
    TLS = "tls"


_Probe = Callable[[str, int], Protocol | None]


def wrong_protocol(scheme: str, host: str, port: int) -> NetworkError | None:
    """The error for a port that does not speak ``scheme``; None if its protocol is unknown.

    Takes at most ``PROBE_S``.
    """
    found = _probe(host, port, (_http, _tls) if scheme == "fluss" else (_fluss, _only_http1, _tls))
    if found is None or found.value == scheme:
        return None
    where = target(host, port)
    if found is Protocol.TLS and scheme == "grpc":
        from sluice.wire.sockets import tls

        return TlsError(f"grpc://{where}: {tls.TLS_THERE}", sent=False)
    return WrongProtocol(f"{where} {_text(found, where)}", sent=False)


def _text(found: Protocol, where: str) -> str:
    if found is Protocol.FLUSS:
        return f"speaks Fluss's native protocol: use fluss://{where}"
    if found is Protocol.GRPC:
        return f"speaks gRPC: use grpc://{where}"
    if found is Protocol.TLS:
        return (
            "speaks TLS, which Fluss's native protocol does not use: if it is Sluice's server, use"
            f" grpc://{where} and set client.tls_ca"
        )
    return (
        f"is an {found.name} server, not a Fluss cluster: use the coordinator's address,"
        " grpc://HOST:PORT for Sluice's server, fluss://HOST:PORT for Apache Fluss"
    )


def _probe(host: str, port: int, probes: tuple[_Probe, ...]) -> Protocol | None:
    """The protocol that the port speaks, if one of the probes finds out."""
    answers: queue.SimpleQueue[Protocol | None] = queue.SimpleQueue()
    for one in probes:
        threading.Thread(
            target=_run, args=(one, host, port, answers), name="sluice-probe", daemon=True
        ).start()
    deadline = time.monotonic() + PROBE_S
    for _ in probes:
        try:
            found = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return None
        if found is not None:
            return found
    return None


def _run(one: _Probe, host: str, port: int, answers: queue.SimpleQueue[Protocol | None]) -> None:
    try:
        answers.put(one(host, port))
    except (OSError, ValueError, FlussError):
        answers.put(None)


def _fluss(host: str, port: int) -> Protocol | None:
    """A server of Fluss's own protocol answers ApiVersions first, without a login."""
    request = pb.ApiVersionsRequest(
        client_software_name="sluice", client_software_version=__version__
    )
    frame = frames.encode_request(apis.API_VERSIONS.key, 0, 0, request.SerializeToString())
    reader = frames.FrameReader(1 << 20)
    with socket.create_connection((host, port), PROBE_S) as sock:
        sock.sendall(frame)
        while count := sock.recv_into(reader.free_buffer()):
            answer = reader.received(count)
            if answer is not None:
                head, body = frames.parse_response(answer)
                if head.type is frames.ResponseType.SUCCESS:
                    pb.ApiVersionsResponse.FromString(bytes(body))
                else:
                    frames.parse_error(body)
                return Protocol.FLUSS
    return None


def _http(host: str, port: int) -> Protocol | None:
    """A request of HTTP/1.1. A gRPC server sends its HTTP/2 settings before it reads that."""
    answer = b""
    with socket.create_connection((host, port), PROBE_S) as sock:
        sock.sendall(_HTTP_REQUEST)
        # An HTTPS server answers 400, with the reason after the headers.
        while not _is_http(answer) or (b" 400 " in answer[:20] and b"</" not in answer):
            more = sock.recv(_ANSWER_BYTES_MAX)
            answer += more
            if _is_http2(answer):
                return Protocol.GRPC
            if not more or len(answer) > _ANSWER_BYTES_MAX:
                break
    return Protocol.HTTP if _is_http(answer) and b"HTTPS" not in answer else None


def _only_http1(host: str, port: int) -> Protocol | None:
    """As ``_http``; a proxy that also answers HTTP/2 on the port, as Envoy does, may speak gRPC."""
    found = _http(host, port)
    return Protocol.GRPC if found is Protocol.HTTP and _has_http2(host, port) else found


def _has_http2(host: str, port: int) -> bool:
    answer = b""
    with suppress(OSError), socket.create_connection((host, port), PROBE_S) as sock:
        sock.sendall(_HTTP2_PREFACE)
        while len(answer) < 9 and (more := sock.recv(_ANSWER_BYTES_MAX)):
            answer += more
    return _is_http2(answer)


def _is_http(answer: bytes) -> bool:
    return answer.startswith(b"HTTP/1.") and b"\r\n" in answer


def _is_http2(answer: bytes) -> bool:
    return len(answer) >= 9 and answer[3] == _HTTP2_SETTINGS and answer[5:9] == bytes(4)


def _tls(host: str, port: int) -> Protocol | None:
    """Completes a handshake with any certificate; nothing is sent after it."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])
    try:
        with (
            socket.create_connection((host, port), PROBE_S) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            is_http1 = secure.selected_alpn_protocol() == "http/1.1"
            return Protocol.HTTPS if is_http1 else Protocol.TLS
    except ssl.SSLError as error:  # an alert is TLS too, such as a missing client certificate
        return Protocol.TLS if "ALERT" in (error.reason or "") else None
