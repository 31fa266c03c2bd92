"""A live Airflow that has a connection and a DAG for each catalog, as a user makes them."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa

from demo.airflow import spark_environment
from sluice.client import Client
from sluice.formats.types.types import schema_from_arrow
from sluice.model import TableDescriptor, TablePath
from sluice.rounds.records.result import RoundFailure, RoundResult, round_outcome
from tests.airflow.live import Live, running_live
from tests.airflow.place import ROOT, airflow_home
from tests.support.catalog_servers.catalog import Catalog
from tests.support.tables.keyed_stock import DUE, Stock, stock_table

EXECUTORS_COPY = {"spark.sluice.tiering.driver_copy_rows": "0", "spark.ui.enabled": "false"}
NO_KEYS_OF_THE_STORE = {
    "AWS_ACCESS_KEY_ID": "stranger",
    "AWS_SECRET_ACCESS_KEY": "a-secret-of-a-stranger",
}
"""What Airflow's environment has: keys that come from nowhere else are not enough."""
ROWS = 100
_TIERED = DUE | {"table.datalake.freshness": "1d"}
"""Runs name the tables, so they do not wait for that; and nobody else has them in between."""
_SCHEDULER = "airflow-scheduler"
_STOP_S = 60
_DAG = '''"""Tiers the tables of one database into one lake."""

from sluice_airflow.dag import lake_tiering_dag

lake_tiering_dag(
    "{name}",
    schedule=None,
    fluss_conn_id="{name}",
    tables=["{name}.*"],
    jars="{jars}",
    spark_conf={spark_conf},
)
'''


@dataclass
class DagRuns:
    """The running Airflow. A catalog's connection, DAG and database have one name."""

    live: Live
    dags: Path
    _usual: dict[str, str]
    _env: dict[str, str] = field(default_factory=dict)

    @property
    def client(self) -> Client:
        """Of the cluster that all catalogs share."""
        return self.live.place.client

    def add(self, name: str, catalog: Catalog) -> None:
        """Makes the connection and the DAG of a catalog, and waits until Airflow knows both."""
        self._use(catalog.env)
        self.live.airflow._send("POST", "/api/v2/connections", self._connection(name, catalog))
        first = sorted(map(str, catalog.jars.glob("hive-*.jar")))  # before Spark's own client
        others = [str(jar) for jar in sorted(catalog.jars.glob("*.jar")) if str(jar) not in first]
        conf = dict(EXECUTORS_COPY)  # in the DAG: those of a run would replace them all
        if first:
            conf["spark.driver.extraClassPath"] = ":".join(first)
        text = _DAG.format(name=name, jars=",".join(others), spark_conf=json.dumps(conf))
        (self.dags / f"{name}.py").write_text(text)
        self.live.airflow.dag_id = name  # that of all later calls
        self.live.wait(lambda: self._knows(name), f"the DAG {name}")
        self.client.admin.create_database(name)

    def run(self, *paths: TablePath) -> str:
        """Triggers a run that names the tables, and waits for its end; the run's id."""
        run_id = self.live.trigger(*map(str, paths))
        self.live.ended(run_id)
        return run_id

    def outcome(self, path: TablePath) -> RoundResult | RoundFailure | None:
        """What the driver has left of the only round of a table."""
        [folder] = self.live._folders(path)
        return round_outcome(f"{folder}/plan.json")

    def _connection(self, name: str, catalog: Catalog) -> dict[str, object]:
        """What a user fills in: the field Lake has JSON."""
        address = urlsplit(self.live.place.address)
        lake = {f"iceberg.{option}": value for option, value in catalog.options.items()}
        extra = {"work_uri": f"file://{self.live.place.work}", "datalake": json.dumps(lake)}
        return {
            "connection_id": name,
            "conn_type": "fluss",
            "host": address.hostname,
            "port": address.port,
            "extra": json.dumps(extra),
        }

    def _knows(self, name: str) -> bool:
        airflow = self.live.airflow
        errors = airflow._get("/api/v2/importErrors")["import_errors"]
        assert not errors, errors[0]["stack_trace"]
        found = airflow._get(f"/api/v2/dags?dag_id_pattern={name}")["dags"]
        return any(one["dag_id"] == name for one in found)

    def _use(self, env: Mapping[str, str]) -> None:
        """Gives tasks these variables; with the LocalExecutor the scheduler's are theirs."""
        if env == self._env:
            return
        self._env = dict(env)
        airflow, processes = self.live.airflow, self.live.processes
        scheduler: subprocess.Popen[bytes] = processes._started[_SCHEDULER]
        scheduler.terminate()
        scheduler.wait(_STOP_S)
        airflow.environment = {**self._usual, **env}
        airflow.start_program(_SCHEDULER)


@contextmanager
def dag_runs(folder: Path) -> Iterator[DagRuns]:
    """Starts a cluster and an Airflow with real spark-submit, and ends them.

    :param folder: a new folder for all of their files.
    """
    for name in ("usual", "live", "dags"):
        (folder / name).mkdir()
    shutil.copy(ROOT / "dags/sluice_lake_tiering.py", folder / "dags")
    environment = airflow_home(folder / "usual", Path("/nonexistent"))
    settings = {
        **spark_environment(),
        **NO_KEYS_OF_THE_STORE,
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "1",
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",  # a file never changes
        "AIRFLOW__SLUICE__SPARK_BINARY": "",
        "AIRFLOW__SLUICE__ROWS_PER_APPLICATION": "5000000",
        "AIRFLOW_CONN_SPARK_DEFAULT": '{"conn_type": "spark", "host": "local[2]"}',
    }
    with running_live(folder / "live", environment, **settings) as live:
        yield DagRuns(live, folder / "dags", dict(live.airflow.environment))


def log_table(client: Client, path: TablePath) -> list[tuple[int, str]]:
    """Makes a log table with rows; the rows in the order of their keys."""
    items = [f"item {number}" for number in range(ROWS)]
    rows = pa.table({"id": pa.array(range(ROWS), pa.int64()), "item": items})
    described = TableDescriptor(schema_from_arrow(rows.schema), bucket_count=2, properties=_TIERED)
    client.admin.create_table(path, described)
    with client.log_writer(path) as writer:
        writer.write(rows)
    return [*enumerate(items)]


def keyed_table(client: Client, path: TablePath) -> list[tuple[object, ...]]:
    """Makes a table with a primary key, inserts, updates and deletes; its rows, sorted."""
    client.admin.create_table(path, stock_table(_TIERED))
    stock = Stock(client, path, lambda query: [])
    stock.put({key: key for key in range(60)})
    stock.put({key: -key for key in range(20)})
    stock.delete(*range(20, 24))
    return sorted((*key, *row) for key, row in stock.held.items())
