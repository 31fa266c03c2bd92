"""A pass over many tables by a real Airflow and real Spark: one table broken, one driver killed."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

from demo.airflow import Airflow, spark_environment
from demo.processes import Processes
from sluice.artifacts.iceberg import installed_iceberg
from sluice.client import Client, connect
from sluice.config import ServerConfig
from sluice.formats.types.types import schema_from_arrow
from sluice.model import TableDescriptor, TablePath
from sluice.server.cluster import EmbeddedCluster
from tests.airflow.place import ROOT, wait_until

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.timeout(1800),
]
SMALL, IDLE, LARGE = 100, 20, 3
SMALL_ROWS, LARGE_ROWS = 1_000, 1_500_000
READY_S, RUN_S = 400, 1_200
DATA = pa.schema([("id", pa.int64()), ("text", pa.string())])


@dataclass
class Site:
    """An embedded server with tables, a real Airflow beside it, and a lake."""

    client: Client
    airflow: Airflow
    processes: Processes
    home: Path

    @property
    def lake(self) -> Path:
        return self.home / "lake"

    def create(self, name: str, rows: int) -> TablePath:
        path = TablePath("shop", name)
        properties = {"table.datalake.enabled": "true", "table.datalake.freshness": "1 s"}
        descriptor = TableDescriptor(
            schema=schema_from_arrow(DATA), bucket_count=1, properties=properties
        )
        self.client.admin.create_table(path, descriptor)
        if rows:
            ids = pa.array(range(rows), pa.int64())
            text = pa.array([f"row {n}" for n in range(rows)])
            with self.client.log_writer(path) as writer:
                for batch in pa.table([ids, text], schema=DATA).to_batches(50_000):
                    writer.write(batch)
        return path

    def lake_rows(self, path: TablePath) -> int:
        """The registered end of the table's only bucket."""
        snapshot = self.client.admin.lake_snapshot(path)
        return sum(snapshot.offsets.values()) if snapshot else 0

    def driver_of(self, path: TablePath) -> psutil.Process | None:
        """The JVM of the Spark application of a table."""
        for process in self.processes.alive():
            try:
                words = process.cmdline()
            except psutil.Error:
                continue
            if words and words[0].endswith("java") and f"sluice {path} epoch" in " ".join(words):
                return process
        return None

    def cpu_s(self) -> float:
        """CPU seconds of Airflow and of all that it has started, except lost grandchildren."""
        total = 0.0
        for process in self.processes.alive():
            with suppress(psutil.Error):
                total += sum(process.cpu_times()[:4])  # its own, and those of ended children
        return total

    def account(self, run_id: str) -> dict[str, Any]:
        entry = "taskInstances/drop_lease/xcomEntries/account?map_index=-1&deserialize=true"
        found = self.airflow._get(f"/api/v2/dags/sluice_lake_tiering/dagRuns/{run_id}/{entry}")
        value = found["value"]
        account: dict[str, Any] = json.loads(value) if isinstance(value, str) else value
        return account


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    (tmp_path / "logs").mkdir()
    usual = {k: v for k, v in os.environ.items() if not k.startswith(("AIRFLOW", "SLUICE_"))}
    processes = Processes(tmp_path / "logs", usual)
    config = ServerConfig(data_dir=str(tmp_path / "data"), listen="grpc://127.0.0.1:0")
    with EmbeddedCluster(config) as cluster, connect(cluster.address) as client:
        client.admin.create_database("shop")
        settings = _settings(cluster.address, tmp_path)
        airflow = Airflow(tmp_path / "airflow", processes, settings, triggerer=True)
        try:
            airflow.prepare()
            airflow.start()
            airflow.wait_until_ready(READY_S, lambda _: None)
            yield Site(client, airflow, processes, tmp_path)
        finally:
            processes.stop_all()


def _settings(address: str, home: Path) -> dict[str, str]:
    host, port = address.removeprefix("grpc://").split(":")
    lake = {"iceberg.type": "hadoop", "iceberg.warehouse": str(home / "lake")}
    extra = {"work_uri": f"file://{home}/work", "datalake": lake}
    fluss = {"conn_type": "fluss", "host": host, "port": int(port), "extra": extra}
    return {
        **spark_environment(),
        "AIRFLOW_CONN_FLUSS_DEFAULT": json.dumps(fluss),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        "AIRFLOW__SLUICE__SCHEDULE": "none",
        "AIRFLOW__SLUICE__ROWS_PER_APPLICATION": "1000000",
        "AIRFLOW__SLUICE__JARS": str(ROOT / ".cache/jars" / installed_iceberg().name),
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "plugins", ROOT / "spark_jobs"))),
    }


def test_many_tables_with_one_broken_and_one_driver_killed(
    site: Site, lake_sql: Callable[[Path, str], list[Any]]
) -> None:
    small = [site.create(f"small_{n:03}", SMALL_ROWS) for n in range(SMALL)]
    broken = small[50]
    (site.lake / "shop").mkdir(parents=True)
    (site.lake / "shop" / broken.table).write_text("a file where the table's folder should be")
    idle = [site.create(f"idle_{n:02}", 0) for n in range(IDLE)]
    airflow = site.airflow
    due(site, idle)
    # Their first round is complete, and creates the lake tables.
    airflow.follow(airflow.trigger({"tables": ["shop.idle_*"]}), RUN_S, lambda _: None)
    large = [site.create(f"large_{n}", LARGE_ROWS) for n in range(LARGE)]
    due(site, [*small, *idle, *large])
    began, cpu_s = time.monotonic(), site.cpu_s()
    run_id = airflow.trigger({"tables": ["shop.*"]})
    wait_until(lambda: killed(site, large[1]), RUN_S, "the driver of a large table")
    wait_until(lambda: airflow.run_state(run_id)[0] in ("success", "failed"), RUN_S, "the end")
    wall_s, cpu_s = time.monotonic() - began, site.cpu_s() - cpu_s
    print(f"{wall_s:.0f} s wall, {cpu_s:.0f} core-s; {site.account(run_id)['summary']}")
    assert airflow.run_state(run_id)[0] == "failed", "one table is broken"

    became = {one["table"]: one["became"] for one in site.account(run_id)["tables"]}
    assert became.pop(str(broken)) == "failed"
    assert {became.pop(str(path)) for path in idle} == {"nothing new"}
    assert len(became) == SMALL - 1 + LARGE
    assert set(became.values()) == {"tiered"}
    [told] = [o for o in site.account(run_id)["tables"] if o["table"] == str(broken)]
    assert "LakeNotWritable" in told["text"]

    tasks = airflow._get(
        f"/api/v2/dags/sluice_lake_tiering/dagRuns/{run_id}/taskInstances?limit=100"
    )["task_instances"]
    tiers = [task for task in tasks if task["task_id"] == "per_application.tier"]
    assert len(tiers) == 1 + LARGE, "the small tables share one application"
    assert sorted(task["state"] for task in tiers) == ["failed"] + ["success"] * LARGE
    for path in small:
        assert site.lake_rows(path) == (0 if path == broken else SMALL_ROWS), path
    for path in large:
        [row] = lake_sql(site.lake, f"SELECT count(*), count(DISTINCT id) FROM lake.{path}")
        assert tuple(row) == (LARGE_ROWS, LARGE_ROWS), path
    for path in (*small, *idle, *large):
        [status] = site.client.statuses.list(path)
        assert status.status != "Tiering", path
        assert bool(status.failures) == (path == broken), path
    assert site.client.leases.all() == []
    assert not any(map(site.driver_of, large))


def due(site: Site, paths: list[TablePath]) -> None:
    def all_due() -> bool:
        statuses = {s.path: s.status for s in site.client.statuses.list()}
        return all(statuses[path] == "Pending" for path in paths)

    wait_until(all_due, 60, "the tables to be due")


def killed(site: Site, path: TablePath) -> bool:
    """Kills the driver of a table once it copies; its task must try again."""
    running = [*(site.home / "work").glob("*/*/running-*.json")]
    names = {json.loads((file.parent / "plan.json").read_text())["table"] for file in running}
    driver = site.driver_of(path)
    if str(path) not in names or driver is None:
        return False
    driver.send_signal(signal.SIGKILL)
    return True
