"""A name server cannot make gRPC send calls again: a write could be stored twice."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from sluice.errors import NetworkError
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Role
from sluice.wire.grpc.transport import _options
from tests.support.network.wire_server import WireServer

RESOLUTION = "grpc.service_config_disable_resolution"
A, TXT = 1, 16
RETRIES = {
    "maxAttempts": 4,
    "initialBackoff": "0.01s",
    "maxBackoff": "0.01s",
    "backoffMultiplier": 1,
    "retryableStatusCodes": ["FAILED_PRECONDITION"],
}
CONFIG = [{"serviceConfig": {"methodConfig": [{"name": [{}], "retryPolicy": RETRIES}]}}]
TEXT = f"grpc_config={json.dumps(CONFIG)}".encode()
DATA = {
    A: socket.inet_aton("127.0.0.1"),
    TXT: b"".join(
        bytes([len(TEXT[at : at + 255])]) + TEXT[at : at + 255] for at in range(0, len(TEXT), 255)
    ),
}


@contextmanager
def name_server() -> Iterator[int]:
    """Its port. Every name is this machine, and has a service config that asks for retries."""

    def answer(query: bytes) -> bytes:
        end = query.index(b"\0", 12) + 5
        (kind,) = struct.unpack(">H", query[end - 4 : end - 2])
        record = b""
        if kind in DATA:
            head = struct.pack(">HHHIH", 0xC00C, kind, 1, 60, len(DATA[kind]))
            record = head + DATA[kind]
        counts = struct.pack(">HHHHH", 0x8180, 1, bool(record), 0, 0)
        return query[:2] + counts + query[12:end] + record

    def serve() -> None:
        while True:
            query, sender = listener.recvfrom(4096)
            if not query:
                return
            listener.sendto(answer(query), sender)

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        serving = threading.Thread(target=serve)
        serving.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.sendto(b"", listener.getsockname())
            serving.join(60)


@pytest.mark.parametrize(("changed", "calls"), [({}, 1), ({RESOLUTION: 0}, 4)])
def test_retries_of_a_name_server_are_not_used(changed: dict[str, int], calls: int) -> None:
    """With the other value of the option they are: so the name server is one that gRPC asks."""
    seen: list[Any] = []

    def fail(request: Any) -> Any:
        seen.append(request)
        raise NetworkError("not now")

    options = {**dict(_options(1 << 20, 5_000)), **changed}
    handlers = {(Role.COORDINATOR, apis.DATABASE_EXISTS): fail}
    with (
        name_server() as names,
        WireServer(handlers) as server,
        grpc.insecure_channel(
            f"dns://127.0.0.1:{names}/sluice.test:{server.port}", options=list(options.items())
        ) as channel,
    ):
        call = channel.unary_unary(apis.DATABASE_EXISTS.grpc_method(Role.COORDINATOR))
        with pytest.raises(grpc.RpcError, match="not now"):
            call(pb.DatabaseExistsRequest(database_name="x").SerializeToString(), timeout=60)
    assert len(seen) == calls
