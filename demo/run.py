"""Runs the steps of the demo."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from rich.console import Console

from demo import flight_status, lakes, report, servers, tables
from demo.airflow import ROOT, Airflow, spark_environment
from demo.comparison.compare import Difference, Facts, differences, facts_of, with_joined_rows
from demo.comparison.readers import READ_S, Readers
from demo.data import SHORT_LIVED_JAVA, Source, plant_difference, read_sources
from demo.lakes import Lake
from demo.processes import Processes
from demo.steps import Say, Steps
from sluice.client import Client, connect
from tests.support.fluss.table_creation import create_table

# Timeouts for a busy machine.
AIRFLOW_START_S = 400.0
DUE_S = 120.0
RUN_S = 600.0
SNAPSHOTS_S = 180.0
FIRST_RUN, SECOND_RUN = "First run: ten months", "Second run: the rest"
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
        catalog: str = "folder",
    ) -> None:
        """:param fluss: a key of :data:`demo.servers.KINDS`.
        :param catalog: one of :data:`demo.lakes.KINDS`.
        """
        self.folder = folder
        self._console = console
        self._processes = processes
        self._plant = plant
        self._server = servers.KINDS[fluss]
        self._is_rest = catalog == "rest"
        self._steps = Steps(console)
        self.lake = folder / "lake"
        self.work = folder / "work"

    def run(self) -> list[Difference]:
        """Runs all steps and returns the differences between lake and source files."""
        if self._is_rest:
            servers.start(lakes.REST, self.folder, self._processes, "catalog")
        with self._steps.step("Read the source files") as say:
            sources = read_sources()
            say(", ".join(f"{source.name} {source.rows.num_rows:,} rows" for source in sources))
        with self._steps.step(self._server.title) as say:
            servers.start(self._server, self.folder, self._processes, "server")
            address = servers.wait(self._server, self._processes, "server")
            say(address)
        lake = self._lake()
        home = self.folder / "airflow"
        settings = self._settings(address, lake)
        airflow = Airflow(home, self._processes, settings, triggerer=True)
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
            if self._is_rest:
                return self._rest_runs(client, sources, airflow, lake)
            self._tier(client, sources, airflow, FIRST_RUN)
            before = client.admin.lake_snapshot(tables.FLIGHT_STATUS)
            self._load_the_rest(client, sources)
            self._tier(client, sources, airflow, SECOND_RUN)
            end_offsets = _end_offsets(client, sources)
        with self._steps.step("Read the lake with Spark SQL, compare"):
            assert before is not None
            return self._compare(sources, lake, end_offsets, before.snapshot_id)

    def _lake(self) -> Lake:
        """Returns the lake, once its servers answer."""
        if not self._is_rest:
            return lakes.folder_lake(self.lake)
        with self._steps.step(lakes.REST.title) as say:
            options = json.loads(servers.wait(lakes.REST, self._processes, "catalog"))
            say(options["uri"])
            return lakes.rest_lake(options)

    def _rest_runs(
        self, client: Client, sources: Sequence[Source], airflow: Airflow, lake: Lake
    ) -> list[Difference]:
        """Compares after each run: Nessie shows one snapshot, so no reader can go back."""
        readers = Readers(lake, self.work, self._processes, self._steps)
        self._tier(client, sources, airflow, FIRST_RUN)
        differing = readers.compare(sources, _end_offsets(client, sources), first=True)
        self._load_the_rest(client, sources)
        self._tier(client, sources, airflow, SECOND_RUN)
        return differing + readers.compare(sources, _end_offsets(client, sources), first=False)

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of each step so far."""
        return self._steps.seconds

    def _creator(self, client: Client) -> tables.Create:
        """Returns a function that creates a table reliably on this kind of cluster."""
        if not self._server.misses_tables:
            return client.admin.create_table
        return lambda path, descriptor: create_table(client, path, descriptor, self.lake)

    def _settings(self, address: str, lake: Lake) -> dict[str, str]:
        """Returns Airflow's settings of the cluster, the lake and Spark."""
        parts = urlsplit(address)
        extra = {
            "transport": parts.scheme,
            "deployment_id": "demo",
            "work_uri": self.work.as_uri(),
            "datalake": json.dumps(lake.datalake),
        }
        fluss = {"conn_type": "fluss", "host": parts.hostname, "port": parts.port, "extra": extra}
        spark = {"conn_type": "spark", "host": "local[2]"}
        return {
            **spark_environment(),
            "AIRFLOW_CONN_FLUSS_DEFAULT": json.dumps(fluss),
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(spark),
            "AIRFLOW__SLUICE__SCHEDULE": "none",
            "AIRFLOW__SLUICE__TIER_RETRIES": "0",
            **lake.jar_setting,
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

    def _load_the_rest(self, client: Client, sources: Sequence[Source]) -> None:
        with self._steps.step("Load the other two months") as say:
            self._load(client, sources, first=False, say=say)

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
        self, sources: Sequence[Source], lake: Lake, end_offsets: dict[str, int], first_run: int
    ) -> list[Difference]:
        """:param first_run: the lake snapshot of ``flight_status`` after the first run."""
        questions, answers = self.work / "questions.json", self.work / "answers.json"
        asked = {
            "options": lake.options,
            "jars": lake.jar_list,
            "end_offsets": end_offsets,
            "first_run": first_run,
        }
        questions.write_text(json.dumps(asked))
        command = [sys.executable, "-m", "demo.comparison.read_lake", str(questions)]
        path = {"PYTHONPATH": str(ROOT)}
        self._processes.run(
            "reader", [*command, str(answers)], {**spark_environment(), **path}, READ_S
        )
        found = json.loads(answers.read_text())
        differing: list[Difference] = []
        for source in sources:
            seen = Facts(**found[source.name]["facts"])
            differing += differences(source.name, facts_of(source.rows), seen)
            differing += (Difference(**entry) for entry in found[source.name]["offsets"])
        for first, title in ((True, "after the first run"), (False, "after the second run")):
            wanted = flight_status.replay(sources[0].rows, first=first)
            differing += differences(
                f"{flight_status.NAME} {title}",
                facts_of(with_joined_rows(wanted)),
                Facts(**found[flight_status.NAME]["first" if first else "second"]),
            )
        return differing


def _end_offsets(client: Client, sources: Sequence[Source]) -> dict[str, int]:
    return {source.name: tables.end_offsets(client, source) for source in sources}


def inherited_environment() -> dict[str, str]:
    """Returns this process's environment without settings that could change the demo."""
    ours = ("AIRFLOW", "SLUICE_", "SPARK_", "PYTHONPATH", "AWS_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    return {**kept, "SLUICE_TIERING_JARS": lakes.jars_folder()}
