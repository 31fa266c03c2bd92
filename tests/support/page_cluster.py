"""A real cluster as the page shows it: tables with rounds, one that fails, and a lease."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sluice.client import Client, connect
from sluice.model import Reason, TablePath
from sluice.server.cluster import EmbeddedCluster
from tests.unit.server.kv_support import KvCaller
from tests.unit.server.support import Caller, config

FAILING, KEYED, CALM = (TablePath("shop", name) for name in ("orders", "stock", "visits"))
TIERED = {"table.datalake.enabled": "true", "table.datalake.freshness": "1h"}
REASON = (
    "AccessDenied: the lake refused s3://lake/shop/orders/data/00000.parquet\n"
    "grant s3:PutObject to the role of the driver"
)
LEASE = "job-7"


class PageCluster:
    """Its server and a client."""

    def __init__(self, cluster: EmbeddedCluster, client: Client) -> None:
        self.cluster, self.client = cluster, client
        self.address = cluster.address
        caller = Caller(cluster.address)
        for path in (FAILING, KEYED, CALM):
            table = KvCaller(caller, path, properties=TIERED)
            table.put((1, "text", 1))
        cluster.take_kv_snapshots(KEYED)
        with client.snapshot_lease(LEASE, KEYED, on_exit="keep"):
            pass
        self.end(CALM)
        self.end(FAILING, REASON)

    def end(self, path: TablePath, why: str | None = None) -> None:
        """One round of a table, which fails for a reason."""
        claim = self.client.tiering.claim([path])
        assert claim is not None
        if why is None:
            self.client.tiering.finished(claim)
        else:
            self.client.tiering.failed(claim, Reason.from_text(why))


@contextmanager
def page_cluster(data_dir: Path) -> Iterator[PageCluster]:
    """A server while the block lasts."""
    settings = config(data_dir, listen="grpc://127.0.0.1:0", kv_snapshot_interval_ms=0)
    with EmbeddedCluster(settings) as cluster, connect(cluster.address) as client:
        yield PageCluster(cluster, client)
