"""One table on a server process, its lake, rounds in processes of their own, and the checker."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from sluice.client import connect
from sluice.client.client import Client
from sluice.config import ClientConfig, Config, DatalakeConfig, TieringConfig
from sluice.driver.cleaning import clean_tables
from sluice.driver.local import tier_once
from sluice.errors import SluiceError, TableNotDue
from sluice.model import Claim, Column, Reason, Schema, TableDescriptor, TablePath, TieringStatus
from sluice.model.types import BIGINT, STRING
from sluice.rounds.records.json_files import read_json, write_json
from sluice.rounds.records.plan_file import PlanFile, plan_uri
from sluice.rounds.records.result import RoundFailure, RoundResult, failure_uri, result_uri
from sluice.rounds.upkeep.orphans import CleanReport
from sluice.wire import fluss_api_pb2 as pb
from tests.support.harness.findings import finding
from tests.support.harness.meanwhile import Meanwhile
from tests.support.lake.lake_checker import LakeChecker, Report
from tests.support.programs.driver_process import DriverProcess
from tests.support.programs.processes import ROOT, SLUICE, ServerProcess, environment, wait_for
from tests.support.tables.server_files import (
    Bucket,
    read_logs,
    read_partitions,
    read_registered,
    table_folder,
)

BUCKETS = 2
COLUMNS = pa.schema([("n", pa.int64()), ("text", pa.string())])
SCHEMA = Schema((Column("n", BIGINT, 0), Column("text", STRING, 1)), highest_field_id=1)
DUE_S = 60.0
COMPACT = (
    "CALL lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))"
)
"""For ``Scene.sql``: another writer puts every data file anew."""


class Scene:
    """A table of numbered rows; ``sql`` asks Spark, where its lake is named ``lake``.

    :param keys: ``("text",)`` makes a table whose partition is the text of a row.
    """

    auto_compaction = False

    def __init__(
        self,
        home: Path,
        server: ServerProcess,
        path: TablePath,
        jvm: Any,
        sql: Callable[[Path, str], list[Any]],
        keys: tuple[str, ...] = (),
        layout: str = "clean",
    ) -> None:
        self.home, self.server, self.path = home, server, path
        self.warehouse = self._warehouse()
        self.table_folder = self.warehouse / path.database / path.table
        self.written, self.keys = 0, keys
        self.jvm, self._sql = jvm, sql
        self._drivers: list[DriverProcess] = []
        self.lake = {"type": "hadoop", "warehouse": str(self.warehouse), "layout": layout}

    def _warehouse(self) -> Path:
        return self.home / "lake"

    @property
    def address(self) -> str:
        return self.server.address

    def close(self) -> None:
        """Ends the drivers that a failed test has left, stopped ones too."""
        for driver in self._drivers:
            driver.kill()

    # -- the table

    def create(self) -> None:
        properties = {"table.datalake.enabled": "true", "table.datalake.freshness": "100ms"}
        properties["table.datalake.auto-compaction"] = str(self.auto_compaction).lower()
        described = TableDescriptor(SCHEMA, bucket_count=BUCKETS, properties=properties)
        with self.client() as client:
            client.admin.create_database(self.path.database, ignore_if_exists=True)
            client.admin.create_table(self.path, replace(described, partition_keys=self.keys))

    def append(self, rows: int, text: str | None = None) -> None:
        """The next numbers, in many small batches; all are acknowledged when it returns.

        :param text: of every row, in place of one of its own.
        """
        numbers = list(range(self.written, self.written + rows))
        texts = [text or f"row {n}" for n in numbers]
        table = pa.table({"n": numbers, "text": texts}, COLUMNS)
        config = ClientConfig(self.address, writer_batch_bytes=1024)
        how = {"dynamic_partitions": True} if self.keys else {}
        with connect(config) as client, client.log_writer(self.path, **how) as writer:
            for chunk in table.to_batches(max_chunksize=50):
                writer.write(chunk)
        self.written += rows

    def config(self) -> Config:
        return Config(
            client=ClientConfig(bootstrap=self.address),
            datalake=DatalakeConfig("iceberg", self.lake),
            tiering=TieringConfig(jars=environment()["SLUICE_TIERING_JARS"]),
        )

    def client(self) -> Client:
        return connect(self.address)

    def sql(self, query: str) -> list[Any]:
        """Spark's answer; ``{t}`` is the table in the lake, ``{name}`` its name in a procedure."""
        query = query.replace("{t}", f"lake.{self.path}").replace("{name}", str(self.path))
        return self._sql(self.warehouse, query)

    # -- claims

    def status(self) -> TieringStatus:
        with self.client() as client:
            [status] = client.statuses.list(self.path)
        return status

    def wait_until_due(self) -> None:
        wait_for(f"{self.path} to be due", lambda: self.status().status == "Pending", DUE_S)

    def claim(self) -> Claim:
        """The table's next claim, held by nobody but this test."""
        self.wait_until_due()
        with self.client() as client:
            claim = client.tiering.claim([self.path])
        assert claim is not None
        return claim

    @contextlib.contextmanager
    def claim_kept(self) -> Iterator[None]:
        """Heartbeats for whoever holds the table's claim while the block lasts."""
        over = threading.Event()

        def keep() -> None:
            with self.client() as client:
                while not over.wait(0.5):
                    [status] = client.statuses.list(self.path)
                    if status.status == "Tiering":
                        client.tiering.heartbeat([self._claim_of(client, status)])

        with Meanwhile(keep):
            try:
                yield
            finally:
                over.set()

    def report_lost(self) -> None:
        """Says what settle says of a driver that is gone: its table may be claimed at once."""
        status = self.status()
        if status.status != "Tiering":
            return
        with self.client() as client:
            client.tiering.failed(
                self._claim_of(client, status), Reason.from_text("its driver was killed")
            )
        assert self.status().status == "Pending"

    def _claim_of(self, client: Client, status: TieringStatus) -> Claim:
        """The claim that the status of a table that is being tiered tells of."""
        nothing = pb.LakeTieringHeartbeatRequest()
        epoch = client.tiering._heartbeat(nothing, idempotent=True).coordinator_epoch
        return Claim(status.table_id, self.path, status.tiering_epoch, epoch)

    # -- rounds

    def tier(self) -> RoundResult:
        """A round in this process, as soon as the table is due."""
        deadline = time.monotonic() + DUE_S
        while True:
            with contextlib.suppress(TableNotDue):
                return tier_once(self.config(), self.path, jvm=self.jvm)
            assert time.monotonic() < deadline, self.status()
            time.sleep(0.05)

    def tier_until_done(self) -> RoundResult:
        """As a user would: again and again until a round goes through."""
        deadline = time.monotonic() + 2 * DUE_S
        while True:
            try:
                result = self.tier()
            except SluiceError as error:
                said = str(error)
            else:
                if result.outcome != "claim_lost":
                    return result
                said = str(result.notes)
            assert time.monotonic() < deadline, said

    def start_tier(self, failpoints: str = "") -> DriverProcess:
        """``sluice tier`` as a process of its own, once the table is due."""
        self.wait_until_due()
        return self.command("tier", "--bootstrap", self.address, failpoints=failpoints)

    def command(self, name: str, *words: str, failpoints: str = "") -> DriverProcess:
        """``sluice NAME`` on the table and its lake, as a process of its own."""
        lake = ("--warehouse", str(self.warehouse), "--format", "json")
        return self._started([SLUICE, name, str(self.path), *lake, *words], failpoints)

    def kill_tier(self, step: str) -> None:
        """``sluice tier``, killed at that step; its claim is then reported as lost.

        :param step: ``NAME@N`` is its Nth passage.
        """
        driver = self.start_tier(_killed_at(step))
        assert driver.wait() == -signal.SIGKILL, driver.said
        self.report_lost()

    def kill_tier_beside(self, statement: str, step: str) -> None:
        """The same, of a driver whose lake another writer changes right before its commit."""
        driver = self.start_tier(f"round.lake_commit.ready=stop,{_killed_at(step)}")
        driver.wait_until_stopped()
        self.sql(statement)
        driver.go_on()
        assert driver.wait() == -signal.SIGKILL, driver.said
        self.report_lost()

    def stop_tier(self, step: str) -> DriverProcess:
        """``sluice tier``, stopped at that step."""
        driver = self.start_tier(f"{step}=stop")
        driver.wait_until_stopped()
        return driver

    def start_round(
        self, claim: Claim, attempt: str, failpoints: str = "", *words: str
    ) -> DriverProcess:
        """A driver of its own for a claim that this test holds (``round_driver.py``)."""
        uri = self._plan_uri(claim)
        write_json(uri, PlanFile(claim, "sluice-lease", self.address).to_json())
        settings = [f"spark.sluice.datalake.iceberg.{k}={v}" for k, v in self.lake.items()]
        script = str(ROOT / "tests/faults/scenes/round_driver.py")
        command = [sys.executable, script, "--plan", uri, "--attempt", attempt, *settings, *words]
        return self._started(command, failpoints)

    def outcome(self, claim: Claim, attempt: str) -> str:
        """What that driver left: the outcome of its result, or the class of its failure."""
        uri = self._plan_uri(claim)
        if (result := read_json(result_uri(uri, attempt))) is not None:
            return RoundResult.from_json(result).outcome
        failure = read_json(failure_uri(uri, attempt))
        assert failure is not None, f"attempt {attempt} of {claim} left neither result nor failure"
        return RoundFailure.from_json(failure).reason.kind

    def _plan_uri(self, claim: Claim) -> str:
        return plan_uri((self.home / "work").as_uri(), "sluice-lease", claim)

    def _started(self, command: list[str], failpoints: str) -> DriverProcess:
        env = {"SLUICE_FAILPOINTS": failpoints, "PYTHONPATH": str(ROOT)}
        driver = DriverProcess(command, self.home, env)
        self._drivers.append(driver)
        return driver

    # -- the checker

    def clean(self) -> CleanReport:
        """``sluice clean --yes``, in this process."""
        [done] = clean_tables(self.config(), self.path, apply=True, jvm=self.jvm)
        assert done.failed == {}
        return done

    def check_whole(self) -> None:
        """As :meth:`check`; and ``sluice clean`` finds and removes all that dead rounds left."""
        orphans = self.report().orphans
        removed = self.clean().removed
        with finding():
            assert sorted(removed) == sorted(orphans)
        self.check_no_orphans()

    @finding(Exception)
    def report(self) -> Report:
        """What the checker finds in lake files, Iceberg's metadata and the server's storage."""
        place = (self.server.data_dir, self.path.database, self.path.table)
        folder = table_folder(self.server.data_dir / "log", self.path.database, self.path.table)
        checker = self.checker(read_partitions(*place))
        return checker.report(self.logs(folder), read_registered(*place))

    def logs(self, folder: Path) -> dict[Bucket, pa.Table]:
        """What the server has stored."""
        logs = read_logs(folder, COLUMNS)
        there = sum(log.num_rows for log in logs.values())
        assert there == self.written, "acknowledged, and gone"
        return logs

    def checker(self, partitions: dict[int, str]) -> LakeChecker:
        return LakeChecker(self.sql, f"lake.{self.path}", self.table_folder, partitions)

    def check(self, rows: int | None = None) -> Report:
        """Every row that was acknowledged is in the lake exactly once, and everything agrees."""
        report = self.report()
        with finding():
            assert report.damage == {}
            assert report.rows == (self.written if rows is None else rows)
        return report

    @finding()
    def check_no_orphans(self, why: str = "") -> None:
        """As :meth:`check`; and there is no data file that no snapshot references."""
        assert self.check().orphans == [], why


def _killed_at(step: str) -> str:
    name, _, passage = step.partition("@")
    return f"{name}=kill@{passage or 1}"
