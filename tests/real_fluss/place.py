"""Clients of a real Fluss that are patient with a busy machine, and rounds on it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from click.testing import CliRunner, Result

from sluice.cli.main import cli
from sluice.client import Client, connect
from sluice.client.statuses.round_table import LAYOUT as ROUND_LAYOUT
from sluice.client.statuses.status_table import LAYOUT, PATH
from sluice.config import Config
from sluice.driver.lakes.jvm import Jvm
from sluice.driver.local import tier_once
from sluice.errors import DatabaseAlreadyExist, TableNotDue
from sluice.formats.types.types import schema_from_arrow
from sluice.model import Claim, Reason, TableDescriptor, TablePath, TieringStatus
from sluice.rounds.records.result import RoundResult
from tests.support.fluss.real_fluss import RealFluss
from tests.support.fluss.table_creation import create_table, has_leaders

LAKE = {"table.datalake.enabled": "true", "table.datalake.freshness": "1s"}
DUE_S = 120.0
ROWS = pa.table({"id": pa.array(range(3), pa.int64())})
PATIENCE_MS = 60_000


@dataclass
class Place:
    """A database of a real Fluss, clients that are patient with a busy machine, and rounds."""

    fluss: RealFluss
    client: Client
    config: Config
    database: str
    jvm: Jvm

    def create(self, name: str, rows: bool = True, freshness: str = "1s") -> TablePath:
        path = TablePath(self.database, name)
        lake = LAKE | {"table.datalake.freshness": freshness}
        described = TableDescriptor(schema_from_arrow(ROWS.schema), bucket_count=1, properties=lake)
        create_table(self.client, path, described, self.fluss.warehouse)
        if rows:
            with self.client.log_writer(path) as writer:
                writer.write(ROWS)
        return path

    def soon(self, call: Callable[[], Any]) -> Any:
        """What a call answers once the table is due."""
        deadline = time.monotonic() + 2 * DUE_S
        while True:
            with suppress(TableNotDue):
                if (answer := call()) is not None:
                    return answer
            assert time.monotonic() < deadline, "it was not handed out"
            time.sleep(0.1)

    def claim(self, path: TablePath) -> Claim:
        claim: Claim = self.soon(lambda: self.client.tiering.claim([path]))
        return claim

    def hands_out(self, path: TablePath) -> None:
        """Waits until Fluss hands the table out to somebody who knows nothing of statuses."""
        tiering = self.client.tiering
        others = []

        def look() -> Claim | None:
            claim = tiering._next_claim(())
            if claim is None or claim.path == path:
                return claim
            others.append(claim)
            return None

        for claim in [self.soon(look), *others]:
            tiering._give_back(claim, Reason.from_text("only looked"))

    def tier(self, path: TablePath) -> RoundResult:
        result: RoundResult = self.soon(lambda: tier_once(self.config, path, jvm=self.jvm))
        return result

    def status(self, path: TablePath) -> TieringStatus:
        with connect(self.config.client) as client:
            (status,) = client.statuses.list(path)
        return status

    def sluice(self, *arguments: str) -> Result:
        return CliRunner().invoke(cli, arguments, env=self.environment)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "SLUICE_CLIENT_BOOTSTRAP": self.fluss.bootstrap,
            "SLUICE_CLIENT_TIERING_STATUS_TIMEOUT_MS": str(PATIENCE_MS),
        }


def make_status_tables(client: Client) -> None:
    """As rounds do by themselves; but for certain, though the coordinator may miss them."""
    with suppress(DatabaseAlreadyExist):
        client.admin.create_database(PATH.database)
    for layout in (LAYOUT, ROUND_LAYOUT):
        if client.admin.table_exists(layout.path):
            if has_leaders(client, layout.path, 8.0):
                continue
            client.admin.drop_table(layout.path)
        create_table(client, layout.path, layout.descriptor)
