"""A table of a real Fluss, and rounds of it in processes that a test may kill."""

from __future__ import annotations

import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from sluice.client import Client, connect
from sluice.config import ClientConfig, Config
from sluice.model import Claim, Reason, TableDescriptor
from sluice.rounds.records.result import RoundResult
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from tests.faults.scenes.scene import BUCKETS, COLUMNS, DUE_S, SCHEMA, Scene
from tests.support.fluss.native_call import NativeCall
from tests.support.fluss.table_creation import create_table
from tests.support.harness.findings import finding
from tests.support.lake.lake_checker import LakeChecker, Report
from tests.support.programs.driver_process import DriverProcess
from tests.support.tables.server_files import Registered, read_logs, table_folder


class RealScene(Scene):
    """A table of a real Fluss, whose coordinator cannot be asked what it thinks of the table."""

    server: Any
    last: RoundResult

    def _warehouse(self) -> Path:
        return self.server.warehouse

    @property
    def address(self) -> str:
        return str(self.server.bootstrap)

    def config(self) -> Config:
        config = super().config()
        return replace(config, client=self._client_config())

    def client(self) -> Client:
        return connect(self._client_config())

    def _client_config(self) -> ClientConfig:
        """A round that fails here is followed by the next one; nobody waits for a back-off."""
        return ClientConfig(self.address, tiering_backoff_ms=0)

    def create(self) -> None:
        properties = {"table.datalake.enabled": "true", "table.datalake.freshness": "1s"}
        described = TableDescriptor(SCHEMA, bucket_count=BUCKETS, properties=properties)
        with self.client() as client:
            client.admin.create_database(self.path.database, ignore_if_exists=True)
            create_table(client, self.path, described, self.warehouse)

    def wait_until_due(self) -> None:
        """Not to be seen: who is too early is told so, and comes again."""

    def tier(self) -> RoundResult:
        self.last = super().tier()
        return self.last

    def kill_tier(self, step: str) -> None:
        deadline = time.monotonic() + 2 * DUE_S
        while True:
            driver = self.start_tier(f"{step}=kill")
            if driver.wait() == -signal.SIGKILL:
                return self.report_lost()
            assert "TableNotDue" in driver.said, driver.said
            assert time.monotonic() < deadline, driver.said

    def stop_tier(self, step: str) -> DriverProcess:
        deadline = time.monotonic() + 2 * DUE_S
        while True:
            driver = self.start_tier(f"{step}=stop")
            try:
                driver.wait_until_stopped()
            except AssertionError:
                assert "TableNotDue" in driver.said, driver.said
                assert time.monotonic() < deadline, driver.said
            else:
                return driver

    def report_lost(self) -> None:
        """The dead driver's epoch is the one above the last round's for which a heartbeat holds."""
        last = self.last
        with self.client() as client:
            for epoch in range(last.tiering_epoch + 1, last.tiering_epoch + 20):
                claim = Claim(last.table_id, self.path, epoch, last.coordinator_epoch)
                if client.tiering.heartbeat([claim])[last.table_id] is None:
                    return client.tiering.failed(claim, Reason.from_text("its driver was killed"))
        raise AssertionError(f"no claim of {self.path} is held")

    def report(self) -> Report:
        with finding(Exception):
            folder = table_folder(self.server.data_dir, self.path.database, self.path.table)
            logs = read_logs(folder, COLUMNS)
            there = sum(log.num_rows for log in logs.values())
            assert there == self.written, "acknowledged, and gone"
        checker = LakeChecker(self.sql, f"lake.{self.path}", self.table_folder)
        registered = self.registered()
        with finding(Exception):
            return checker.report(logs, registered)

    def registered(self) -> Registered:
        """By one native call over a plain socket."""
        request = pb.GetLakeSnapshotRequest(
            table_path=pb.PbTablePath(database_name=self.path.database, table_name=self.path.table)
        )
        with NativeCall(self.server.coordinator_port, timeout_s=60) as server:
            answer = server.call(apis.GET_LAKE_SNAPSHOT, request)
        offsets = {("", b.bucket_id): b.log_offset for b in answer.bucket_snapshots}
        return Registered(answer.snapshotId, offsets)
