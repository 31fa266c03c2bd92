"""A real cluster as the page shows it: tables with rounds, one that fails, and a lease."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from sluice.client import Client, connect
from sluice.formats.types.types import schema_from_arrow
from sluice.model import Reason, TableDescriptor, TablePath
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
KEYED_BY_NOTHING = schema_from_arrow(pa.schema([("id", pa.int64())]))


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
        self.end(CALM)
        self.make_again()

    def make_again(self) -> None:
        """The failure and the lease, if an action has ended them."""
        [failing] = self.client.statuses.list(FAILING)
        if not failing.failures:
            self.end(FAILING, REASON)
        if not self.client.leases.all():
            with self.client.snapshot_lease(LEASE, KEYED, on_exit="keep"):
                pass

    def create_more(self, count: int) -> None:
        """Creates further lake tables: see :meth:`more`."""
        descriptor = TableDescriptor(KEYED_BY_NOTHING, bucket_count=1, properties=TIERED)
        with ThreadPoolExecutor(4) as pool:
            for _ in pool.map(
                lambda number: self.client.admin.create_table(self.more(number), descriptor),
                range(count),
            ):
                pass

    def more(self, number: int) -> TablePath:
        return TablePath(FAILING.database, f"t{number:05}")

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
