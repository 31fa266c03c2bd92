"""What the client offers under its own name."""

from __future__ import annotations

import subprocess
import sys

import pytest

import sluice.client


def test_the_public_names_are_these() -> None:
    assert sluice.client.__all__ == [
        "EARLIEST",
        "Admin",
        "Client",
        "ClientLogSource",
        "Heartbeats",
        "KvReader",
        "KvScanner",
        "KvSnapshotReader",
        "KvWriter",
        "LeaseClient",
        "LeaseKeeper",
        "LogReader",
        "LogWriter",
        "SnapshotLease",
        "StatusClient",
        "TieringClient",
        "connect",
        "lease_id",
        "table_descriptor",
    ]
    for name in sluice.client.__all__:
        value = getattr(sluice.client, name)
        assert getattr(value, "__name__", name) == name
    with pytest.raises(AttributeError, match="Writer"):
        sluice.client.Writer  # noqa: B018


def test_a_lease_id_costs_no_grpc_and_no_arrow() -> None:
    code = (
        "import sys, sluice.client\n"
        "sluice.client.lease_id('a', 'b', 'c')\n"
        "assert not {'grpc', 'pyarrow', 'google.protobuf'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_fluss_s_own_protocol_costs_no_grpc() -> None:
    code = (
        "import sys\n"
        "from sluice.client import connect\n"
        "from sluice.errors import NetworkError\n"
        "from sluice.config import ClientConfig\n"
        "with connect(ClientConfig('fluss://127.0.0.1:1', retry_timeout_ms=0)) as client:\n"
        "    try:\n"
        "        client.admin.list_databases()\n"
        "    except NetworkError as error:\n"
        "        assert 'nothing listens at 127.0.0.1:1: ' in str(error)\n"
        "assert 'grpc' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
