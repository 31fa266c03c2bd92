"""Primary-key tables for the benchmarks of tiering: their rows, operations and rounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench import data
from bench.cluster import hadoop_config, server, wait_until_due
from bench.measure import Cost, cost
from bench.server.kv_put import put
from sluice.client import Client, connect
from sluice.config import Config, ServerConfig
from sluice.driver.lakes.jvm import Jvm
from sluice.driver.lakes.open_lake import open_lake
from sluice.driver.local import tier_once
from sluice.driver.maintaining import maintain_tables
from sluice.model import TableDescriptor, TablePath
from sluice.rounds.records.result import RoundResult
from sluice.rounds.upkeep.health import TableHealth
from sluice.rounds.upkeep.maintenance import MaintenanceReport
from sluice.server.cluster import EmbeddedCluster
from tests.support.fluss.table_creation import create_table

BUCKETS = 4
WARM_ROUNDS = 5
WARM_ROWS = 100_000
WARM = TablePath("bench", "warm")
SERVER_FOLDER = "fluss"
SEED_KEYS = 1_000_000_000
"""Distance of the new keys of two seeds."""


def descriptor(custom: Mapping[str, str] | None = None, buckets: int = BUCKETS) -> TableDescriptor:
    """:param custom: custom properties, such as ``iceberg.format-version``."""
    return replace(
        data.keyed_descriptor(buckets),
        properties={"table.datalake.enabled": "true", "table.datalake.freshness": "1ms"},
        custom_properties=dict(custom or {}),
    )


class Rounds:
    """Runs rounds on one server with one JVM, after rounds of another table that warm up both."""

    def __init__(self, config: Config, client: Client, jvm: Jvm, servers: Mapping[str, int]):
        self._config, self._jvm, self._servers = config, jvm, servers
        self.client = client

    def round(self, path: TablePath) -> tuple[Cost, RoundResult]:
        wait_until_due(self.client, path)
        with cost(**self._servers) as found:
            result = tier_once(self._config, path, jvm=self._jvm)
        assert result.outcome != "claim_lost", result
        return found, result

    def maintain(self, path: TablePath) -> list[MaintenanceReport]:
        """Does what `sluice maintain --yes` does."""
        return [*maintain_tables(self._config, path, apply=True, jvm=self._jvm)]

    def health(self, path: TablePath) -> TableHealth:
        """What scans of a lake table read."""
        with open_lake(self._config, self._jvm.gateway) as lake:
            table = lake.load(path)
            assert table is not None, path
            return table.maintenance().health()

    def warm(self) -> None:
        for i in range(WARM_ROUNDS):
            if i:
                put_updates(self.client, WARM, WARM_ROWS, WARM_ROWS, seed=i)
            self.round(WARM)


def load_snapshots(
    folder: Path,
    lake: Path,
    rows: Mapping[TablePath, int],
    custom: Mapping[str, str] | None = None,
    buckets: int = BUCKETS,
) -> None:
    """Makes tables with the given numbers of keys in KV snapshots, by a server in this process.

    :param folder: the server's folder, which another server can continue with.
    :param custom: custom properties of the tables.
    """
    loading = ServerConfig(
        data_dir=str(folder), listen="grpc://127.0.0.1:0", kv_snapshot_interval_ms=0
    )
    with EmbeddedCluster(loading) as cluster, connect(cluster.address) as client:
        client.admin.create_database("bench")
        for path, count in rows.items():
            create_table(client, path, descriptor(custom, buckets), lake)
            put(client, path, data.batches(count))
            cluster.take_kv_snapshots(path)


@contextmanager
def tables(
    home: Path,
    rows: Mapping[TablePath, int],
    custom: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
    buckets: int = BUCKETS,
) -> Iterator[Rounds]:
    """Starts a server process whose tables have the given numbers of keys in KV snapshots.

    :param home: a folder; the lake's warehouse will be ``lake`` in it.
    :param custom: custom properties of the tables, that for the warm-up included.
    :param settings: settings of the rounds, those for the warm-up included.
    """
    found = {WARM: WARM_ROWS, **rows}
    load_snapshots(home / SERVER_FOLDER, home / "lake", found, custom, buckets)
    with serving(home, settings) as rounds:
        rounds.warm()
        yield rounds


@contextmanager
def serving(home: Path, settings: Mapping[str, str] | None = None) -> Iterator[Rounds]:
    """Starts a server process and a JVM. Nothing is warm.

    :param home: a folder; the lake's warehouse will be ``lake`` in it.
    :param settings: settings of the rounds.
    """
    with server(home / SERVER_FOLDER) as (address, pid):
        settings = {"tiering.max_round_ms": "3600000", **(settings or {})}
        config = hadoop_config(address, home / "lake", settings)
        with connect(config.client) as client, Jvm(config.tiering.jars) as jvm:
            yield Rounds(config, client, jvm, {"server": pid})


def put_updates(client: Client, path: TablePath, rows: int, keys: int, seed: int) -> None:
    """Updates ``rows`` different random keys."""
    chosen = np.random.default_rng(seed).permutation(keys)[:rows]
    found = data.batches(rows)
    put(client, path, (_with_keys(b, chosen[b.column("id").to_numpy()]) for b in found))


def operate(client: Client, path: TablePath, operations: int, keys: int, seed: int = 0) -> None:
    """Sends 70 % updates, 5 % deletes and 25 % inserts of new keys, mixed.

    An update of a deleted key inserts the key again.

    :param seed: two calls for one table need different ones, or keys of the first are not new.
    """
    rng = np.random.default_rng(2 + seed)
    next_key = keys + seed * SEED_KEYS
    with client.kv_writer(path) as writer:
        for batch in data.batches(operations):
            for first in range(0, batch.num_rows, 10_000):
                rows = batch.slice(first, 10_000)
                inserts, deletes = rows.num_rows // 4, rows.num_rows // 20
                drawn = rng.integers(0, keys, rows.num_rows)
                drawn[deletes : deletes + inserts] = np.arange(next_key, next_key + inserts)
                next_key += inserts
                rows = _with_keys(rows, drawn)
                writer.upsert(rows.slice(deletes))
                writer.delete(rows.slice(0, deletes).select(["id"]))


def _with_keys(batch: pa.RecordBatch, keys: np.ndarray) -> pa.RecordBatch:
    return batch.set_column(0, batch.schema.field(0), pa.array(keys))
