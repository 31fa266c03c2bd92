"""What rounds must do on every catalog: one function for each kind, for any catalog."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from sluice.catalog_options import CATALOG_NAME
from sluice.cli.main import cli
from sluice.client import Client, connect
from sluice.config import (
    ClientConfig,
    Config,
    DatalakeConfig,
    ServerConfig,
    TieringConfig,
)
from sluice.driver.lakes.jvm import Jvm
from sluice.driver.local import tier_once
from sluice.model import Column, Schema, TableDescriptor, TablePath
from sluice.model import types as t
from sluice.rounds.records.result import RoundResult
from sluice.rounds.values.progress import Progress
from sluice.server.cluster import EmbeddedCluster
from tests.support.catalog_servers.catalog import Catalog
from tests.support.catalogs.iceberg_client import opened
from tests.support.tables.keyed_stock import DUE, Stock, stock_table

DATABASE = "shop"
_LONG_MS = 3_600_000


@dataclass
class RoundSite:
    """An embedded cluster, its client, a catalog, and a JVM with the catalog's jars."""

    catalog: Catalog
    client: Client
    config: Config
    jvm: Jvm
    folder: Path
    reader_options: dict[str, str]
    """With which Iceberg's own reader opens the catalog."""
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def new_path(self, name: str) -> TablePath:
        """A table of a name that no other test has."""
        return TablePath(DATABASE, f"{name}{next(self._numbers)}")

    def tier(
        self, path: TablePath, progress: Progress | None = None, **settings: Any
    ) -> RoundResult:
        """One round in this process.

        :param settings: of ``tiering``, for this round.
        """
        config = replace(self.config, tiering=replace(self.config.tiering, **settings))
        return tier_once(config, path, now=True, jvm=self.jvm, progress=progress)

    def command(self, *words: str) -> str:
        """What a command of Sluice prints; its settings are in a file."""
        settings = self.folder / "sluice.toml"
        lines = [f"{json.dumps(k)} = {json.dumps(v)}" for k, v in self.catalog.options.items()]
        settings.write_text("[datalake.iceberg]\n" + "\n".join(lines))
        environment = {
            "SLUICE_CLIENT_BOOTSTRAP": self.config.client.bootstrap,
            "SLUICE_TIERING_JARS": str(self.catalog.jars),
        }
        done = CliRunner().invoke(cli, [*words, "--config", str(settings)], env=environment)
        assert done.exit_code == 0, done.output
        return done.output

    def rows(self, path: TablePath, *columns: str) -> list[tuple[Any, ...]]:
        """The lake table by Iceberg's own reader, through the catalog opened anew."""
        with opened(self.jvm, self.reader_options, CATALOG_NAME) as reader:
            return reader.rows(str(path), *columns)


@contextmanager
def round_site(
    catalog: Catalog, folder: Path, listen: str = "grpc://127.0.0.1:0"
) -> Iterator[RoundSite]:
    """Starts what rounds need on a catalog.

    :param folder: for the cluster's data and the files of rounds.
    :param listen: where the cluster listens.
    """
    server = ServerConfig(
        data_dir=str(folder / "server"),
        listen=listen,
        tiering_timeout_ms=_LONG_MS,
        tiering_check_interval_ms=100,
        tiering_backoff_ms=0,
    )
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in catalog.env.items():
            patch.setenv(name, value)
        jvm = stack.enter_context(Jvm(str(catalog.jars)))
        cluster = stack.enter_context(EmbeddedCluster(server))
        config = Config(
            client=ClientConfig(bootstrap=cluster.address),
            datalake=DatalakeConfig("iceberg", catalog.options),
            tiering=TieringConfig(jars=str(catalog.jars), spill_dir=str(folder)),
        )
        client = stack.enter_context(connect(config.client))
        client.admin.create_database(DATABASE)
        yield RoundSite(catalog, client, config, jvm, folder, catalog.options)


def log_rounds(site: RoundSite) -> None:
    """Two rounds of a log table, the second with a column that the first did not have."""
    path = site.new_path("log")
    fields = (Column("id", t.BIGINT, 0), Column("item", t.STRING, 1))
    described = TableDescriptor(Schema(fields, highest_field_id=1), bucket_count=2, properties=DUE)
    site.client.admin.create_table(path, described)
    ids = pa.array(range(100), pa.int64())
    with site.client.log_writer(path) as writer:
        writer.write(pa.table({"id": ids, "item": [f"item {i}" for i in range(100)]}))
    assert site.tier(path).rows == 100

    site.client.admin.add_columns(path, [Column("note", t.STRING, -1)])
    later = {"id": pa.array([100, 101], pa.int64()), "item": ["a", "b"], "note": ["new", None]}
    with site.client.log_writer(path) as writer:
        writer.write(pa.table(later))
    assert site.tier(path).rows == 2
    rows = site.rows(path, "id", "item", "note")
    assert rows[:100] == [(i, f"item {i}", None) for i in range(100)]
    assert rows[100:] == [(100, "a", "new"), (101, "b", None)]


def keyed_rounds(site: RoundSite) -> None:
    """Rounds of a table with a primary key: inserts, updates and deletes."""
    path = site.new_path("stock")
    site.client.admin.create_table(path, stock_table())
    stock = Stock(site.client, path, lambda query: [])
    stock.put({key: key for key in range(60)})
    assert site.tier(path).rows == 60
    for start in (0, 30):
        stock.put({key: -key for key in range(start, start + 20)})
        stock.delete(*range(start + 20, start + 24))
        assert site.tier(path).outcome == "committed"
    expected = sorted((*key, *row) for key, row in stock.held.items())
    assert site.rows(path, "day", "id", "item", "n") == expected
