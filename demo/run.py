"""Runs the steps of the demo."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from rich.console import Console

from demo import flight_status, report, tables
from demo.airflow import ROOT, Airflow, spark_environment
from demo.compare import Difference, Facts, differences, facts_of, with_joined_rows
from demo.data import SHORT_LIVED_JAVA, Source, plant_difference, read_sources
from demo.processes import Processes
from demo.servers import KINDS, serve
from demo.steps import Say, Steps
from sluice.artifacts.iceberg import installed_iceberg
from sluice.client import Client, connect
from sluice.testing.table_creation import create_table

# Timeouts for a busy machine.
AIRFLOW_START_S = 400.0
DUE_S = 120.0
RUN_S = 600.0
READ_S = 400.0
SNAPSHOTS_S = 180.0
SPARK_CONF = {
    "spark.ui.enabled": "false",
    "spark.sluice.tiering.max_round_ms": "600000",  # no forced finish on a slow machine
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": SHORT_LIVED_JAVA,
}


class Demo:
    """A demo in a folder with ``server``, ``lake``, ``work``, ``airflow`` and ``logs`` below."""

    def __init__(
        self,
        folder: Path,
        console: Console,
        processes: Processes,
        plant: bool,
        fluss: str = "embedded",
    ) -> None:
        """:param fluss: a key of :data:`demo.servers.KINDS`."""
        self.folder = folder
        self._console = console
        self._processes = processes
        self._plant = plant
        self._server = KINDS[fluss]
        self._steps = Steps(console)
        self.lake = folder / "lake"
        self.work = folder / "work"

    def run(self) -> list[Difference]:
        """Runs all steps and returns the differences between lake and source files."""
        with self._steps.step("Read the source files") as say:
            sources = read_sources()
            say(", ".join(f"{source.name} {source.rows.num_rows:,} rows" for source in sources))
        with self._steps.step(self._server.title) as say:
            address = serve(self._server, self.folder, self._processes)
            say(address)
        home = self.folder / "airflow"
        airflow = Airflow(home, self._processes, self._settings(address), triggerer=True)
        airflow.prepare()
        with connect(address) as client:
            with self._steps.step("Create tables, load ten months") as say:
                tables.create(client, sources, self._creator(client))
                self._load(client, sources, first=True, say=say)
            with self._steps.step("Start Airflow") as say:
                airflow.start()
                airflow.wait_until_ready(AIRFLOW_START_S, say)
                say(f"{airflow.url} (user {airflow.user}, password {airflow.password})")
            with self._steps.step("Wait for KV snapshots of flight_status") as say:
                tables.wait_for_snapshots(client, SNAPSHOTS_S, say)
                say("leased while the first round reads them")
            self._tier(client, sources, airflow, "First run: ten months")
            before = client.admin.lake_snapshot(tables.FLIGHT_STATUS)
            with self._steps.step("Load the other two months") as say:
                self._load(client, sources, first=False, say=say)
            self._tier(client, sources, airflow, "Second run: the rest")
            end_offsets = {source.name: tables.end_offsets(client, source) for source in sources}
        with self._steps.step("Read the lake with Spark SQL, compare"):
            assert before is not None
            return self._compare(sources, end_offsets, before.snapshot_id)

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of each step so far."""
        return self._steps.seconds

    def _creator(self, client: Client) -> tables.Create:
        """Returns a function that creates a table reliably on this kind of cluster."""
        if not self._server.misses_tables:
            return client.admin.create_table
        return lambda path, descriptor: create_table(client, path, descriptor, self.lake)

    def _settings(self, address: str) -> dict[str, str]:
        """Returns Airflow's settings of the cluster, the lake and Spark."""
        parts = urlsplit(address)
        datalake = {
            "format": "iceberg",
            "iceberg.type": "hadoop",
            "iceberg.warehouse": str(self.lake),
        }
        extra = {
            "transport": parts.scheme,
            "deployment_id": "demo",
            "work_uri": self.work.as_uri(),
            "datalake": json.dumps(datalake),
        }
        fluss = {"conn_type": "fluss", "host": parts.hostname, "port": parts.port, "extra": extra}
        spark = {"conn_type": "spark", "host": "local[2]"}
        return {
            **spark_environment(),
            "AIRFLOW_CONN_FLUSS_DEFAULT": json.dumps(fluss),
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(spark),
            "AIRFLOW__SLUICE__SCHEDULE": "none",
            "AIRFLOW__SLUICE__TIER_RETRIES": "0",
            **jar_setting(),
        }

    def _load(self, client: Client, sources: Sequence[Source], first: bool, say: Say) -> None:
        loaded = 0
        for source in sources:
            rows = source.first_months if first else source.other_months
            if self._plant and first and source.name == "flights":
                rows = plant_difference(rows)
            tables.load(client, source, rows, say)
            loaded += rows.num_rows
        flights = sources[0].rows
        changes = tables.replay_flights(client, flights, first=first, say=say)
        say(f"{loaded:,} rows, {changes:,} changes of {flight_status.NAME}")

    def _tier(
        self, client: Client, sources: Sequence[Source], airflow: Airflow, title: str
    ) -> None:
        with self._steps.step(f"{title}, through Airflow and Spark") as say:
            paths = tables.paths_of(sources)
            tables.wait_until_pending(client, paths, DUE_S, say)
            conf = {"tables": [f"{tables.DATABASE}.*"], "spark_conf": SPARK_CONF}
            airflow.follow(airflow.trigger(conf), RUN_S, say)
        rows = report.rows_of_run(client, tables.paths_of(sources), self.work)
        report.print_rows(self._console, title, rows)

    def _compare(
        self, sources: Sequence[Source], end_offsets: dict[str, int], first_run: int
    ) -> list[Difference]:
        """:param first_run: the lake snapshot of ``flight_status`` after the first run."""
        questions, answers = self.work / "questions.json", self.work / "answers.json"
        asked = {"end_offsets": end_offsets, "first_run": first_run}
        questions.write_text(json.dumps(asked))
        command = [sys.executable, "-m", "demo.read_lake", str(self.lake), str(questions)]
        path = {"PYTHONPATH": str(ROOT)}
        self._processes.run(
            "reader", [*command, str(answers)], {**spark_environment(), **path}, READ_S
        )
        found = json.loads(answers.read_text())
        differing: list[Difference] = []
        for source in sources:
            lake = Facts(**found[source.name]["facts"])
            differing += differences(source.name, facts_of(source.rows), lake)
            differing += (Difference(**entry) for entry in found[source.name]["offsets"])
        for first, title in ((True, "after the first run"), (False, "after the second run")):
            wanted = flight_status.replay(sources[0].rows, first=first)
            differing += differences(
                f"{flight_status.NAME} {title}",
                facts_of(with_joined_rows(wanted)),
                Facts(**found[flight_status.NAME]["first" if first else "second"]),
            )
        return differing


def jar_setting() -> dict[str, str]:
    """Returns the setting of the Iceberg runtime that `make setup` downloaded, if it exists."""
    jar = Path(jars_folder()) / installed_iceberg().name
    return {"AIRFLOW__SLUICE__JARS": str(jar)} if jar.is_file() else {}


def jars_folder() -> str:
    return os.environ.get("SLUICE_TIERING_JARS") or str(ROOT / ".cache/jars")


def inherited_environment() -> dict[str, str]:
    """Returns this process's environment without settings that could change the demo."""
    ours = ("AIRFLOW", "SLUICE_", "SPARK_", "PYTHONPATH")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    return {**kept, "SLUICE_TIERING_JARS": jars_folder()}
