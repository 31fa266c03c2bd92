"""Submits a pack of tables as the tier task does, and measures the complete process tree.

The command line is the one that the task's own hook builds, with the properties of
``sluice.artifacts.spark_start``, whose archive of Java's classes is made first. The tree is
spark-submit's launcher, the driver's JVM, the Python driver, PySpark's daemon and its workers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.cluster import claim_when_due, server
from sluice.artifacts.spark_files import driver_script
from sluice.artifacts.spark_start import CLASS_PATH, OPTIONS, UI
from sluice.client import Client, Heartbeats, connect
from sluice.config import ClientConfig
from sluice.driver.lakes.jvm import iceberg_jar
from sluice.driver.lakes.start_archive import make_start_archive
from sluice.model import Claim, TablePath
from sluice.rounds.records.json_files import read_json, write_json
from sluice.rounds.records.packs import PackFile, pack_uri
from sluice.rounds.records.plan_file import PlanFile, plan_uri
from sluice.rounds.records.result import RoundResult, result_uri

CONNECTION = "bench"
ATTEMPT = "1"
ADDED = (OPTIONS, CLASS_PATH, UI)
"""The properties that the tier task adds to make a start quick."""
MAX_ROUND_MS = {"spark.sluice.tiering.max_round_ms": "3600000"}
"""A benchmark measures whole rounds, also where the table's freshness is short."""
TIMEOUT_S = 1800


@dataclass(frozen=True)
class Tree:
    """What the process tree of one command cost."""

    cpu_s: float
    wall_s: float
    results: tuple[RoundResult, ...] = ()
    """Of the tables that it tiered, in their order."""

    @property
    def rows(self) -> int:
        return sum(result.rows for result in self.results)


def measured(command: Sequence[str], home: Path) -> Tree:
    """Runs a command, and measures its process tree.

    :raises SystemExit: the command failed; the message has the end of its output.
    """
    spent, log = home / "cost.json", home / "command.log"
    program = Path(__file__).with_name("process_tree.py")
    with log.open("wb") as said:
        ended = subprocess.run(
            [sys.executable, str(program), str(spent), *command],
            stdout=said,
            stderr=said,
            timeout=TIMEOUT_S,
            check=False,
        )
    if ended.returncode:
        text = log.read_text(encoding="utf-8", errors="replace")[-4000:]
        raise SystemExit(f"exit code {ended.returncode}: {' '.join(command)}\n{text}")
    return Tree(**json.loads(spent.read_text(encoding="utf-8")))


@dataclass
class Applications:
    """Tiers tables of one cluster, each time with a new Spark application."""

    client: Client
    home: Path
    lake: Path
    jar: Path
    packs: int = field(default=0, init=False)

    def tier(
        self,
        paths: Sequence[TablePath],
        rows: int,
        *,
        tiering: Mapping[str, int] | None = None,
        is_plain: bool = False,
        is_small: bool | None = None,
    ) -> Tree:
        """Claims the tables, tiers them as one pack, and reports them.

        :param rows: of all tables together; the task decides by it whether Spark's UI is off.
        :param tiering: settings of the section ``tiering``.
        :param is_plain: leaves out the properties of Sluice that make a start quick.
        :param is_small: whether Spark's UI is off; None: as the task decides by the rows. Two sizes
            that are subtracted must not differ in it.
        """
        from sluice_airflow.claims import leasing

        claims = [claim_when_due(self.client, path) for path in paths]
        self.packs += 1
        lease_id = f"{CONNECTION}-{self.packs}"
        work_uri = (self.home / "work").as_uri()
        uris = []
        for claim in claims:
            snapshots = leasing.lease_snapshots(self.client, lease_id, claim)
            uris.append(plan_uri(work_uri, lease_id, claim))
            plan = PlanFile(claim, lease_id, self.client.config.bootstrap, snapshots)
            write_json(uris[-1], plan.to_json())
        pack = pack_uri(work_uri, lease_id, ATTEMPT, 0)
        write_json(pack, PackFile(tuple(uris)).to_json())
        command = self._command(pack, rows, tiering or {}, is_plain, is_small)
        with Heartbeats(self.client.tiering) as beats:  # as the tier task's
            for claim in claims:
                beats.add(claim)
            spent = measured(command, self.home)
        results = [self._settle(claim, uri) for claim, uri in zip(claims, uris, strict=True)]
        self.client.leases.drop(lease_id)
        return Tree(spent.cpu_s, spent.wall_s, tuple(results))

    def _settle(self, claim: Claim, uri: str) -> RoundResult:
        content = read_json(result_uri(uri, ATTEMPT))
        assert content is not None, (claim, (self.home / "command.log").read_text()[-4000:])
        self.client.tiering.finished(claim)
        return RoundResult.from_json(content)

    def _command(
        self,
        pack: str,
        rows: int,
        tiering: Mapping[str, int],
        is_plain: bool,
        is_small: bool | None,
    ) -> list[str]:
        from sluice_airflow.config.connection import FlussConnection
        from sluice_airflow.operators.tier import FAIR, SMALL_ROWS
        from sluice_airflow.submit.process_group import GroupSubmitHook

        lake = {"format": "iceberg", "iceberg.type": "hadoop", "iceberg.warehouse": str(self.lake)}
        connection = FlussConnection(self.client.config.bootstrap, datalake=lake)
        own = {f"spark.sluice.tiering.{name}": str(value) for name, value in tiering.items()}
        hook = GroupSubmitHook(
            conf={**FAIR, **MAX_ROUND_MS, **own, **connection.spark_conf()},
            conn_id=CONNECTION,
            jars=str(self.jar),
            name="sluice bench",
            application_args=["--pack", pack, "--attempt", ATTEMPT],
        )
        hook.is_small = rows < SMALL_ROWS if is_small is None else is_small
        command = hook._build_spark_submit_command(str(driver_script()))
        added = [word for word in command if word.partition("=")[0] in ADDED]
        assert len(added) == len(ADDED) - (not hook.is_small), command
        for word in added if is_plain else ():
            at = command.index(word)
            del command[at - 1 : at + 1]
        return command


@contextmanager
def submitting() -> Iterator[Path]:
    """Prepares this process for :class:`Applications`. Yields the jar of Iceberg's runtime."""
    with tempfile.TemporaryDirectory(prefix="sluice-bench-airflow-") as airflow_home:
        os.environ |= {
            "AIRFLOW_HOME": airflow_home,
            "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
            f"AIRFLOW_CONN_{CONNECTION.upper()}": json.dumps(
                {"conn_type": "spark", "host": "local[2]"}
            ),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        jar = iceberg_jar(os.environ.get("SLUICE_TIERING_JARS", "")).absolute()
        make_start_archive(str(jar))
        yield jar


@contextmanager
def applications() -> Iterator[Applications]:
    """Applications for the tables of an embedded server, whose database ``bench`` is empty."""
    with (
        submitting() as jar,
        tempfile.TemporaryDirectory(prefix="sluice-bench-") as tmp,
        server(Path(tmp) / "fluss") as (address, _),
        connect(ClientConfig(address)) as client,
    ):
        client.admin.create_database("bench")
        yield Applications(client, Path(tmp), Path(tmp) / "lake", jar)
