"""Python client of a Fluss cluster: administration, writers, readers, leases and tiering.

    with connect("grpc://127.0.0.1:9123") as client:
        with client.log_writer(TablePath("shop", "orders")) as writer:
            writer.write(table)

Each name is imported when it is first used, so a DAG file that only needs ``lease_id`` does not
import gRPC.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sluice.model import EARLIEST

if TYPE_CHECKING:
    from sluice.client.admin import Admin
    from sluice.client.client import Client, connect
    from sluice.client.heartbeats import Heartbeats
    from sluice.client.kv_reader import KvReader
    from sluice.client.kv_scan import KvScanner
    from sluice.client.kv_snapshots import KvSnapshotReader
    from sluice.client.kv_writer import KvWriter
    from sluice.client.lease_ids import lease_id
    from sluice.client.lease_keeper import LeaseKeeper
    from sluice.client.leases import LeaseClient
    from sluice.client.log_reader import LogReader
    from sluice.client.log_source import ClientLogSource
    from sluice.client.log_writer import LogWriter
    from sluice.client.new_tables import table_descriptor
    from sluice.client.snapshot_lease import SnapshotLease
    from sluice.client.statuses import StatusClient
    from sluice.client.tiering import TieringClient

__all__ = [
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

_MODULES = {
    "Admin": "admin",
    "Client": "client",
    "ClientLogSource": "log_source",
    "Heartbeats": "heartbeats",
    "KvReader": "kv_reader",
    "KvScanner": "kv_scan",
    "KvSnapshotReader": "kv_snapshots",
    "KvWriter": "kv_writer",
    "LeaseClient": "leases",
    "LeaseKeeper": "lease_keeper",
    "LogReader": "log_reader",
    "LogWriter": "log_writer",
    "SnapshotLease": "snapshot_lease",
    "StatusClient": "statuses",
    "TieringClient": "tiering",
    "connect": "client",
    "lease_id": "lease_ids",
    "table_descriptor": "new_tables",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
