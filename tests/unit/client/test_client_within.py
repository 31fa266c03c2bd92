"""A client whose calls are shorter than those of the client that it belongs to."""

from __future__ import annotations

import pytest

from sluice.client import Client
from sluice.config import ClientConfig
from sluice.errors import NetworkError


def test_a_client_with_shorter_calls_ends_with_its_own() -> None:
    client = Client(ClientConfig("grpc://127.0.0.1:1", request_timeout_ms=9_000))
    short = client.within(2_000)
    assert short is client.within(2_000)
    assert (short.config.request_timeout_ms, short.config.bootstrap) == (
        2_000,
        "grpc://127.0.0.1:1",
    )
    assert client.within(20_000).config.request_timeout_ms == 9_000
    client.close()
    with pytest.raises(NetworkError, match="closed"):
        client.within(2_000)
    with pytest.raises(NetworkError, match="closed"):
        short.admin.list_databases()
    client.close()
