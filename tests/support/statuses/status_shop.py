"""Clients of a server that tells no statuses, with a clock of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sluice.client import Client
from sluice.client.connection.addresses import Address
from sluice.client.statuses.status_table import LAYOUT, PATH
from sluice.config import ClientConfig
from sluice.model import (
    Claim,
    Column,
    Schema,
    TableDescriptor,
    TablePath,
    TieringStatus,
)
from sluice.model import types as t
from sluice.server.cluster import EmbeddedCluster
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from tests.support.fluss.plain_fluss import plain_fluss
from tests.support.network.proxy import Proxy

SCHEMA = Schema((Column("id", t.BIGINT, 0),), highest_field_id=0)
MINUTE_MS = 60_000
LAKE = {"table.datalake.enabled": "true", "table.datalake.freshness": "1min"}


class OwnClock:
    """Both kinds of time, which the test moves, and who waits: by ``step_ms`` at least."""

    def __init__(self) -> None:
        self.ms = 1_790_000_000_000
        self.step_ms = 0

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return self.ms / 1000

    def sleep(self, seconds: float) -> None:
        self.ms += max(round(seconds * 1000), self.step_ms)


@dataclass
class Shop:
    """A cluster like Fluss, its clock, and clients of it."""

    cluster: EmbeddedCluster
    clock: OwnClock
    closing: ExitStack
    client: Client = field(init=False)

    def __post_init__(self) -> None:
        self.client = self.another()
        self.client.admin.create_database("shop")

    @property
    def address(self) -> str:
        return self.cluster.address

    def another(self, **settings: Any) -> Client:
        """As another process would have it. Its deadline is that of a busy machine."""
        config = ClientConfig(self.address, **{"tiering_status_timeout_ms": 60_000, **settings})
        return self.closing.enter_context(Client(config, self.clock))

    def create(self, name: str, **properties: str) -> TablePath:
        path = TablePath("shop", name)
        descriptor = TableDescriptor(SCHEMA, bucket_count=1, properties=LAKE | properties)
        self.client.admin.create_table(path, descriptor)
        return path

    def claim(self, path: TablePath, client: Client | None = None) -> Claim:
        self.clock.ms += MINUTE_MS
        claim = (client or self.client).tiering.claim([path], by="run-1")
        assert claim is not None
        return claim

    def status(self, path: TablePath) -> TieringStatus:
        (status,) = self.another().statuses.list(path)
        return status

    def stored(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.client.limit_scan(PATH, 100).to_pylist()
        return rows


def foreign(**changes: Any) -> TableDescriptor:
    columns = {
        column.name: column.data_type for column in LAYOUT.descriptor.schema.columns
    } | changes
    kept = [(name, kind) for name, kind in columns.items() if kind is not None]
    fields = tuple(Column(name, kind, at) for at, (name, kind) in enumerate(kept))
    return TableDescriptor(Schema(fields, ("table_id",), len(fields) - 1), bucket_count=1)


@contextmanager
def status_shop(data_dir: Path, scheme: str = "fluss") -> Iterator[Shop]:
    """A server and its clients while the block lasts."""
    clock = OwnClock()
    with plain_fluss(data_dir, clock, scheme) as cluster, ExitStack() as closing:
        yield Shop(cluster, clock, closing)


@contextmanager
def behind_proxy(shop: Shop) -> Iterator[tuple[Proxy, str]]:
    """A proxy before the shop's server, and its address."""
    reply: Any = shop.client._connection.call_coordinator(
        apis.GET_METADATA, pb.MetadataRequest(), lambda reply: reply
    )
    ports = [reply.coordinator_server.port, *(node.port for node in reply.tablet_servers)]
    with Proxy(ports) as proxy:
        yield proxy, f"fluss://127.0.0.1:{proxy.ports[Address.parse(shop.address).port]}"
