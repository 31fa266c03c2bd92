"""A client of the real Fluss, its lake, and rounds on them."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluice.client import Client, connect
from sluice.config import ClientConfig, Config, DatalakeConfig, TieringConfig
from sluice.driver.lakes.jvm import Jvm
from sluice.driver.local import tier_once
from sluice.errors import TableNotDue
from sluice.formats.types.types import schema_from_arrow
from sluice.model import Claim, TableDescriptor, TablePath
from sluice.rounds.records.result import RoundResult
from tests.real_fluss.place import DUE_S, LAKE, PATIENCE_MS, Place, make_status_tables
from tests.support.fluss.real_fluss import RealFluss
from tests.support.fluss.table_creation import create_table


@pytest.fixture(scope="session")
def jvm() -> Iterator[Jvm]:
    with Jvm(os.environ.get("SLUICE_TIERING_JARS", "")) as running:
        yield running


@dataclass
class RealSite:
    """A database of the real Fluss, whose lake is the one that Fluss itself uses."""

    fluss: RealFluss
    client: Client
    config: Config
    database: str
    jvm: Jvm
    sql: Callable[[Path, str], list[Any]]

    def create(self, name: str, rows: pa.Table, **descriptor: Any) -> TablePath:
        """A lake table for rows like these."""
        path = TablePath(self.database, name)
        properties = LAKE | descriptor.pop("properties", {})
        described = TableDescriptor(
            schema_from_arrow(rows.schema),
            **{"bucket_count": 2, "properties": properties, **descriptor},
        )
        create_table(self.client, path, described, self.fluss.warehouse)
        return path

    def append(self, path: TablePath, rows: pa.Table, **how: Any) -> None:
        with self.client.log_writer(path, **how) as writer:
            writer.write(rows)

    def claim(self, path: TablePath) -> Claim:
        """Waits until the table is due; others that are due go back."""
        deadline = time.monotonic() + DUE_S
        while (claim := self.client.tiering.claim([path])) is None:
            assert time.monotonic() < deadline, f"{path} was not handed out"
            time.sleep(0.1)
        return claim

    def tier(self, path: TablePath) -> RoundResult:
        """One round in this process, as soon as the table is due."""
        deadline = time.monotonic() + DUE_S
        while True:
            try:
                return tier_once(self.config, path, jvm=self.jvm)
            except TableNotDue:
                assert time.monotonic() < deadline
                time.sleep(0.1)

    def rows(self, query: str) -> list[Any]:
        """Spark's answer; tables are named ``lake.{db}.TABLE``."""
        return self.sql(self.fluss.warehouse, query.replace("{db}", self.database))


@pytest.fixture
def site(
    real_fluss: RealFluss,
    jvm: Jvm,
    lake_sql: Callable[[Path, str], list[Any]],
) -> Iterator[RealSite]:
    lake = {"type": "hadoop", "warehouse": str(real_fluss.warehouse)}
    config = Config(
        client=ClientConfig(bootstrap=real_fluss.bootstrap),
        datalake=DatalakeConfig("iceberg", lake),
        tiering=TieringConfig(jars=os.environ.get("SLUICE_TIERING_JARS", "")),
    )
    database = f"db_{uuid.uuid4().hex[:10]}"
    with connect(config.client) as client:
        client.admin.create_database(database)
        yield RealSite(real_fluss, client, config, database, jvm, lake_sql)
        client.admin.drop_database(database, cascade=True)


@pytest.fixture
def place(real_fluss: RealFluss, jvm: Jvm) -> Iterator[Place]:
    lake = {"type": "hadoop", "warehouse": str(real_fluss.warehouse)}
    config = Config(
        client=ClientConfig(real_fluss.bootstrap, tiering_status_timeout_ms=PATIENCE_MS),
        datalake=DatalakeConfig("iceberg", lake),
        tiering=TieringConfig(jars=os.environ.get("SLUICE_TIERING_JARS", "")),
    )
    database = f"db_{uuid.uuid4().hex[:10]}"
    with connect(config.client) as client:
        make_status_tables(client)
        client.admin.create_database(database)
        yield Place(real_fluss, client, config, database, jvm)
        client.admin.drop_database(database, cascade=True)
