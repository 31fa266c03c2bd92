"""kill -9 of ``sluice tier`` on a real Fluss, at the main steps of a round."""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sluice.model import Claim, TableDescriptor, TablePath
from sluice.rounds.files import RoundResult
from sluice.testing.lost_tables import create_table
from sluice.testing.native_call import NativeCall
from sluice.testing.real_fluss import RealFluss
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from tests.faults.scene import BUCKETS, COLUMNS, DUE_S, SCHEMA, Scene
from tests.support.lake_checker import LakeChecker, Report
from tests.support.server_files import Registered, read_logs, table_folder

pytestmark = [
    pytest.mark.spark,
    pytest.mark.real_fluss,
    pytest.mark.slow,
    pytest.mark.timeout(600),
]


class RealScene(Scene):
    """A table of a real Fluss, whose coordinator cannot be asked what it thinks of the table."""

    server: Any
    last: RoundResult

    def _warehouse(self) -> Path:
        return self.server.warehouse

    @property
    def address(self) -> str:
        return str(self.server.bootstrap)

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

    def report_lost(self) -> None:
        """The dead driver's epoch is the one above the last round's for which a heartbeat holds."""
        last = self.last
        with self.client() as client:
            for epoch in range(last.tiering_epoch + 1, last.tiering_epoch + 20):
                claim = Claim(last.table_id, self.path, epoch, last.coordinator_epoch)
                if client.tiering.heartbeat([claim])[last.table_id] is None:
                    return client.tiering.failed(claim, "its driver was killed")
        raise AssertionError(f"no claim of {self.path} is held")

    def report(self) -> Report:
        folder = table_folder(self.server.data_dir, self.path.database, self.path.table)
        logs = read_logs(folder, COLUMNS)
        assert sum(log.num_rows for log in logs.values()) == self.written, "acknowledged, and gone"
        checker = LakeChecker(self.sql, f"lake.{self.path}", self.table_folder)
        return checker.report(logs, self.registered())

    def registered(self) -> Registered:
        """By one native call over a plain socket."""
        request = pb.GetLakeSnapshotRequest(
            table_path=pb.PbTablePath(database_name=self.path.database, table_name=self.path.table)
        )
        with NativeCall(self.server.coordinator_port) as server:
            answer = server.call(apis.GET_LAKE_SNAPSHOT, request)
        offsets = {("", b.bucket_id): b.log_offset for b in answer.bucket_snapshots}
        return Registered(answer.snapshotId, offsets)


@pytest.fixture
def scene(
    tmp_path: Path,
    real_fluss: RealFluss,
    spark_jvm: Any,
    lake_sql: Callable[[Path, str], list[Any]],
) -> Iterator[RealScene]:
    path = TablePath(f"db_{uuid.uuid4().hex[:10]}", "events")
    made = RealScene(tmp_path, real_fluss, path, spark_jvm, lake_sql)  # type: ignore[arg-type]
    made.create()
    yield made
    made.close()
    with made.client() as client:
        client.admin.drop_database(path.database, cascade=True)


@pytest.mark.parametrize(
    "step",
    [
        "round.prepare.after",
        "round.lake_commit.after",
        "round.fluss_commit.after",
        "round.report.before",
    ],
)
def test_a_driver_killed_at_a_step_on_a_real_fluss(scene: RealScene, step: str) -> None:
    scene.append(300)
    scene.tier()
    scene.append(200)
    scene.kill_tier(step)
    scene.append(100)
    result = scene.tier()
    assert (result.recovered_snapshot_id is not None) == (step == "round.lake_commit.after")
    scene.check_whole()


@pytest.mark.parametrize("fence", [True, False], ids=["fence", "without-fence"])
def test_an_older_round_that_goes_on_after_a_newer_one_on_a_real_fluss(
    scene: RealScene, fence: bool
) -> None:
    """Fluss itself lets it through: only the base tells. Without the fence is the control."""
    scene.append(300)
    scene.tier()
    scene.append(200)
    with scene.client() as client:
        old = _claim(scene, client)
        words = () if fence else ("--without-fence",)
        late = scene.start_round(old, "late", "round.lake_commit.ready=stop", *words)
        late.wait_until_stopped()
        client.tiering.failed(old, "taken back")
    scene.append(100)
    assert scene.tier().rows == 300
    late.go_on()
    late.wait()
    if fence:
        assert scene.outcome(old, "late") == "LakeCommitRefused"
        assert scene.check().orphans == []
    else:
        report = scene.report()
        assert (report.rows, report.doubled >= 200) == (800, True)


def _claim(scene: RealScene, client: Any) -> Claim:
    deadline = time.monotonic() + DUE_S
    while (claim := client.tiering.claim([scene.path])) is None:
        assert time.monotonic() < deadline, f"{scene.path} was not handed out"
        time.sleep(0.1)
    return claim
