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
    from sluice.client.admin.admin import Admin
    from sluice.client.admin.new_tables import table_descriptor
    from sluice.client.client import Client, connect
    from sluice.client.kv.reader import KvReader
    from sluice.client.kv.scanner import KvScanner
    from sluice.client.kv.snapshot_reader import KvSnapshotReader
    from sluice.client.kv.writer import KvWriter
    from sluice.client.leases.calls import LeaseClient
    from sluice.client.leases.ids import lease_id
    from sluice.client.leases.keeper import LeaseKeeper
    from sluice.client.leases.snapshot_lease import SnapshotLease
    from sluice.client.log.reader import LogReader
    from sluice.client.log.writer import LogWriter
    from sluice.client.statuses.statuses import StatusClient
    from sluice.client.tiering.heartbeats import Heartbeats
    from sluice.client.tiering.log_source import ClientLogSource
    from sluice.client.tiering.tiering import TieringClient

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
    "Admin": "admin.admin",
    "Client": "client",
    "ClientLogSource": "tiering.log_source",
    "Heartbeats": "tiering.heartbeats",
    "KvReader": "kv.reader",
    "KvScanner": "kv.scanner",
    "KvSnapshotReader": "kv.snapshot_reader",
    "KvWriter": "kv.writer",
    "LeaseClient": "leases.calls",
    "LeaseKeeper": "leases.keeper",
    "LogReader": "log.reader",
    "LogWriter": "log.writer",
    "SnapshotLease": "leases.snapshot_lease",
    "StatusClient": "statuses.statuses",
    "TieringClient": "tiering.tiering",
    "connect": "client",
    "lease_id": "leases.ids",
    "table_descriptor": "admin.new_tables",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
