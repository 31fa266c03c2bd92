"""A server process, a table of numbered rows, and a checker that shares no code with a round."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluice.client import connect
from sluice.config import ClientConfig
from sluice.model import Column, Schema, TableDescriptor, TablePath
from sluice.model.types import BIGINT, STRING
from tests.support.processes import ServerProcess, served, sluice

EVENTS = TablePath("db", "events")
BUCKETS = 2


class Scene:
    """One server, one table, one lake; remembers what was acknowledged."""

    def __init__(self, home: Path, server: ServerProcess) -> None:
        self.home = home
        self.server = server
        self.warehouse = home / "lake"
        self.acknowledged: list[int] = []

    def create(self) -> None:
        schema = Schema((Column("n", BIGINT, 0), Column("text", STRING, 1)), highest_field_id=1)
        properties = {"table.datalake.enabled": "true", "table.datalake.freshness": "100ms"}
        with connect(self.server.address) as client:
            client.admin.create_database("db")
            client.admin.create_table(
                EVENTS, TableDescriptor(schema, bucket_count=BUCKETS, properties=properties)
            )

    def append(self, rows: int) -> None:
        first = len(self.acknowledged)
        numbers = list(range(first, first + rows))
        table = pa.table({"n": numbers, "text": [f"row {n}" for n in numbers]})
        config = ClientConfig(self.server.address, writer_batch_bytes=1024)  # many small batches
        with connect(config) as client, client.log_writer(EVENTS) as writer:
            for chunk in table.to_batches(max_chunksize=50):
                writer.write(chunk)
        self.acknowledged += numbers

    def tier(self, **env: str) -> int:
        """``sluice tier`` as a process of its own; its exit code (negative: killed)."""
        done = sluice(
            "tier", str(EVENTS), "--bootstrap", self.server.address,
            "--warehouse", str(self.warehouse), "--format", "json", **env,
        )  # fmt: skip
        self.said = done.stdout + done.stderr
        self.outcome = json.loads(done.stdout)["outcome"] if done.returncode == 0 else ""
        return done.returncode

    def tier_until_done(self) -> None:
        """As a user would: again and again until a round goes through."""
        for _ in range(60):
            if self.tier() == 0 and self.outcome != "claim_lost":
                return
        raise AssertionError(f"no round went through:\n{self.said}")


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    # A lost driver's table is handed out again after 5 seconds, not after two minutes.
    quick = {
        "SLUICE_SERVER_TIERING_TIMEOUT_MS": "5000",
        "SLUICE_SERVER_TIERING_CHECK_INTERVAL_MS": "100",
    }
    with served(tmp_path / "fluss", **quick) as server:
        made = Scene(tmp_path, server)
        made.create()
        yield made


@pytest.fixture
def check(lake_sql: Callable[[Path, str], list[Any]]) -> Callable[[Scene], None]:
    """Reads the lake with Spark: every acknowledged row, every offset, exactly once."""

    def checked(scene: Scene) -> None:
        rows = lake_sql(
            scene.warehouse,
            "SELECT count(*) AS rows, count(DISTINCT n) AS numbers, sum(n) AS total,"
            " count(DISTINCT `__bucket`, `__offset`) AS offsets FROM lake.db.events",
        )[0].asDict()
        expected = len(scene.acknowledged)
        assert rows == {
            "rows": expected,
            "numbers": expected,
            "total": sum(scene.acknowledged),
            "offsets": expected,
        }
        wrong = "SELECT count(*) AS n FROM lake.db.events WHERE text <> concat('row ', n)"
        assert lake_sql(scene.warehouse, wrong)[0].n == 0
        dense = lake_sql(
            scene.warehouse,
            "SELECT `__bucket`, min(`__offset`) AS low, max(`__offset`) + 1 AS high, count(*) AS n"
            " FROM lake.db.events GROUP BY `__bucket`",
        )
        assert all(row.low == 0 and row.high == row.n for row in dense)

    return checked
