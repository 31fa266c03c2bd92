"""Tiering statuses of a real Fluss, which keeps none: rounds write them into a table of its own."""

from __future__ import annotations

import json
import logging
import re
import signal
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from sluice.client import Client, connect
from sluice.client.statuses.round_table import LAYOUT as ROUND_LAYOUT
from sluice.client.statuses.round_table import PATH as ROUNDS_PATH
from sluice.client.statuses.round_table import RoundTable
from sluice.client.statuses.status_table import LAYOUT, PATH
from sluice.client.statuses.system_table import SystemTable
from sluice.clock import SystemClock
from sluice.config import DatalakeConfig
from sluice.driver.local import tier_once
from sluice.errors import (
    FencedTieringEpoch,
    RequestTimeOut,
    SchemaNotExist,
    SluiceError,
    StatusUnreadable,
    TableNotDue,
)
from sluice.formats.types.types import schema_from_arrow
from sluice.model import Claim, Reason, TableDescriptor, TablePath, TieringRound
from sluice.model import types as t
from sluice.rounds.records.result import RoundResult
from sluice.rounds.values.progress import NoProgress
from sluice.stop_signals import Terminated, sigterm_raises
from sluice.wire import fluss_api_pb2 as pb
from sluice_airflow.acquire.acquire import acquire
from sluice_airflow.config.connection import FlussConnection
from sluice_airflow.outcomes.settle import settle
from tests.real_fluss.place import DUE_S, LAKE, ROWS, Place
from tests.support.fluss.table_creation import create_table
from tests.support.programs.driver_process import DriverProcess
from tests.support.programs.processes import SLUICE

pytestmark = [pytest.mark.real_fluss, pytest.mark.spark, pytest.mark.timeout(600)]

NOTHING = pb.LakeTieringHeartbeatRequest()
DAY = {"table.datalake.freshness": "1d"}
DELETED = TieringRound(
    outcome="committed", keys_deleted=2, deletes_as="equality deletes (no bounds)", lookup_files=8,
    lookup_bytes=1 << 33, lookup_ms=9,
)  # fmt: skip
LOOKUP_FIELDS = ("deletes_as", "lookup_files", "lookup_bytes", "lookup_ms")


class Later(SystemClock):
    """A machine's clock some time from now."""

    def __init__(self, ms: int) -> None:
        self._ms = ms

    def now_ms(self) -> int:
        return super().now_ms() + self._ms


def test_tables_in_every_condition(place: Place) -> None:
    healthy, failing = place.create("healthy"), place.create("failing")
    paused = place.create("paused")
    never = place.create("never", rows=False)
    snapshot = place.tier(healthy).lake_snapshot_id
    claim = place.claim(failing)
    place.client.tiering.failed(
        claim, Reason.from_text("LakeNotWritable: s3://lake: token=planted-secret")
    )
    assert place.sluice("pause", str(paused)).exit_code == 0
    for path in (healthy, never):
        place.client.admin.set_options(path, DAY)

    shown = place.sluice("status", "--wide")
    assert shown.exit_code == 1
    lines = [line for line in shown.output.splitlines() if line.startswith(place.database)]
    by_name = {line.split()[0].partition(".")[2]: line for line in lines if "  " in line}
    assert set(by_name) == {"failing", "healthy", "never", "paused"}
    assert "LakeNotWritable: s3://lake: token=***" in by_name["failing"]
    assert "Unknown, paused" in by_name["paused"]
    assert f"{never}: Unknown: no round of Sluice is recorded" in lines

    told = place.sluice("status", "--format", "json").output
    assert "planted" not in told
    found = {entry["path"]: entry for entry in json.loads(told)}
    good = found[str(healthy)]
    assert (good["status"], good["failures"], good["lag_rows"]) == ("Scheduled", 0, 0)
    assert (good["lake_snapshot_id"], good["tiering_epoch"]) == (snapshot, 1)
    bad = found[str(failing)]
    assert (bad["failures"], bad["lag_rows"], bad["last_tiered_ms"]) == (1, 3, None)
    assert bad["lag_ms"] >= 0
    assert bad["status"] in ("Failed", "Pending"), "as the machine is fast or slow"
    assert (found[str(paused)]["paused"], found[str(never)]["status"]) == (True, "Unknown")
    rows = place.client.limit_scan(PATH, 1000)
    assert "planted" not in str(rows.to_pylist())


@pytest.mark.slow
def test_failures_are_counted_and_wait_until_retry(place: Place) -> None:
    path = place.create("orders")
    place.config = replace(
        place.config, client=replace(place.config.client, tiering_backoff_ms=3_600_000)
    )
    file = place.fluss.home / f"file-{uuid.uuid4().hex}"
    file.write_text("no folder")
    broken = replace(
        place.config, datalake=DatalakeConfig("iceberg", {"type": "hadoop", "warehouse": str(file)})
    )
    with pytest.raises(SluiceError, match="not a directory"):
        place.soon(lambda: tier_once(broken, path, jvm=place.jvm))
    seen = place.status(path)
    assert (seen.status, seen.failures, seen.is_failing) == ("Failed", 1, True)
    assert seen.last_error is not None
    assert "not a directory" in seen.last_error
    place.hands_out(path)  # Fluss itself knows of no wait
    with pytest.raises(TableNotDue, match="has failed once: the next attempt is due in"):
        tier_once(place.config, path, jvm=place.jvm)
    assert place.status(path).failures == 1
    assert place.sluice("retry", str(path)).exit_code == 0
    assert place.tier(path).outcome == "committed"
    seen = place.status(path)
    assert (seen.failures, seen.last_error, seen.last_round_ms is not None) == (0, None, True)


class Stopped(NoProgress):
    """SIGTERM arrives when the round begins to copy."""

    def phase(self, name: str) -> None:
        if name == "copy":
            signal.raise_signal(signal.SIGTERM)


@pytest.mark.slow
def test_a_round_ended_by_sigterm_is_no_failure(place: Place) -> None:
    path = place.create("orders")
    with pytest.raises(Terminated), sigterm_raises():
        place.soon(lambda: tier_once(place.config, path, progress=Stopped(), jvm=place.jvm))
    seen = place.status(path)
    assert (seen.failures, seen.is_failing, seen.last_error) == (0, False, None)
    assert seen.stopped == "StoppedByUser: SIGTERM ended `sluice tier`"
    assert place.tier(path).outcome == "committed"


@pytest.mark.slow
def test_a_paused_table_is_tiered_once_it_is_resumed(place: Place) -> None:
    path = place.create("orders")
    assert place.sluice("pause", str(path)).exit_code == 0
    place.hands_out(path)  # Fluss itself knows of no pause
    with pytest.raises(TableNotDue, match="is paused"):
        tier_once(place.config, path, jvm=place.jvm)
    assert place.sluice("resume", str(path)).exit_code == 0
    assert place.tier(path).rows == 3


@pytest.mark.slow
def test_a_run_that_was_killed_is_seen_and_the_next_one_goes_on(
    place: Place, tmp_path: Path
) -> None:
    path = place.create("orders")
    env = place.environment | {"SLUICE_FAILPOINTS": "round.lake_commit.after=kill"}
    command = [SLUICE, "tier", str(path), "--warehouse", str(place.fluss.warehouse)]
    driver = DriverProcess([*command, "--wait", "60s"], tmp_path, env)
    assert driver.wait() == -signal.SIGKILL, driver.said
    seen = place.status(path)
    assert seen.status == "Tiering"
    with Client(place.config.client, Later(121_000)) as later:
        (unknown,) = later.statuses.list(path)
    assert unknown.status == "Unknown"
    assert re.fullmatch(r"claimed \d+ s ago by \S+, no end reported", unknown.note or "")
    # The coordinator would take the claim back in two minutes; told so, it does at once.
    with connect(place.config.client) as client:
        epoch = client.tiering._heartbeat(NOTHING, idempotent=True).coordinator_epoch
    lost = Claim(seen.table_id, path, seen.tiering_epoch, epoch)
    with suppress(FencedTieringEpoch):  # two minutes have passed already
        place.client.tiering._give_back(lost, Reason.from_text("its run was killed"))
    result = place.tier(path)
    assert result.recovered_snapshot_id is not None
    seen = place.status(path)
    assert (seen.failures, seen.lag_rows, seen.note) == (0, 0, None)


@pytest.mark.slow
def test_who_comes_first_makes_the_table(place: Place) -> None:
    """Two at once; the coordinator may miss it: then it is dropped, and made the next time."""
    paths = [place.create(name) for name in ("a", "b")]
    claims = [place.claim(path) for path in paths]
    for _ in range(10):
        place.client.admin.drop_table(PATH, ignore_if_not_exists=True)
        with (
            connect(place.config.client) as one,
            connect(place.config.client) as other,
            ThreadPoolExecutor(2) as pool,
        ):
            begun = [
                pool.submit(client._recorded.claimed_many, [claim])
                for client, claim in zip((one, other), claims, strict=True)
            ]
            assert [each.result() for each in begun] == [[None], [None]]
        if [place.status(path).status for path in paths] == ["Tiering"] * 2:
            break
    else:
        raise AssertionError("ten times it was not there")
    info = place.client.admin.table_info(PATH)
    assert (info.schema.primary_key, info.bucket_count) == (("table_id",), 1)
    assert not info.datalake_enabled


@pytest.mark.slow
def test_beside_a_foreign_table_nothing_is_tiered(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    path = place.create("orders")
    columns = tuple(
        replace(column, data_type=t.STRING) if column.name == "failures" else column
        for column in LAYOUT.descriptor.schema.columns
    )
    place.client.admin.drop_table(PATH)
    foreign = replace(LAYOUT.descriptor, schema=replace(LAYOUT.descriptor.schema, columns=columns))
    create_table(place.client, PATH, foreign)
    try:
        with (
            caplog.at_level(logging.WARNING, "sluice.client"),
            pytest.raises(StatusUnreadable, match="column failures is STRING instead of INT"),
        ):
            tier_once(place.config, path, jvm=place.jvm)
        shown = place.sluice("status", str(path))
        assert "column failures is STRING instead of INT" in shown.output
        assert "Unknown" in shown.output
    finally:
        place.client.admin.drop_table(PATH)


def test_rounds_are_kept(place: Place) -> None:
    path = place.create("orders")
    result = place.tier(path)
    place.client.tiering.finished(place.claim(path), details=DELETED)
    place.client.tiering.failed(place.claim(path), Reason.from_text("no such bucket"))
    failed, deleted, done = place.client.statuses.history(path)
    assert (failed.succeeded, failed.reason, failed.round_number) == (False, "no such bucket", 3)
    assert [getattr(deleted, n) for n in LOOKUP_FIELDS] == [
        getattr(DELETED, n) for n in LOOKUP_FIELDS
    ]
    assert place.status(path).deletes_as == DELETED.deletes_as
    assert (done.outcome, done.rows_written, done.files_written) == ("committed", 3, 1)
    assert (done.lag_rows_before, done.lag_rows_after) == (3, 0)
    assert min(done.copy_ms or 0, done.lake_commit_ms or 0, done.duration_ms or 0) > 0
    assert done.lake_snapshot_id == result.lake_snapshot_id
    assert not place.client.admin.table_info(ROUNDS_PATH).datalake_enabled


@pytest.mark.slow
def test_the_age_of_a_lag_in_several_buckets(place: Place) -> None:
    """Fluss cuts the batches of all buckets of a fetch but one."""
    path = TablePath(place.database, "wide")
    properties = LAKE | {"table.datalake.freshness": "1d"}
    wide = TableDescriptor(schema_from_arrow(ROWS.schema), bucket_count=4, properties=properties)
    create_table(place.client, path, wide, place.fluss.warehouse)
    with place.client.log_writer(path) as writer:
        ids = Random(1).sample(range(2**62), 60_000)  # they do not compress below the fetch's limit
        for at in range(0, 60_000, 15_000):  # one batch for each bucket
            writer.write(pa.table({"id": pa.array(ids[at : at + 15_000], pa.int64())}))
            writer.flush()
    (seen,) = place.client.statuses.list(path)
    assert seen.lag_rows == 60_000
    assert seen.lag_ms is not None


@pytest.mark.slow
def test_a_table_of_an_older_sluice_is_completed(place: Place) -> None:
    """Its pauses hold, and Fluss adds the columns that it lacks."""
    path = place.create("orders")
    columns = LAYOUT.descriptor.schema.columns
    older = tuple(c for c in columns if c.name not in ("last_round_ms", "claimed_by", "deletes_as"))
    schema = replace(LAYOUT.descriptor.schema, columns=older, highest_field_id=len(older) - 1)
    hasty = replace(place.config.client, tiering_status_timeout_ms=5_000)
    for attempt in range(4):  # Fluss may miss a column that is added to a table just created
        place.client.admin.drop_table(PATH)
        create_table(place.client, PATH, replace(LAYOUT.descriptor, schema=schema))
        with connect(hasty) as client, suppress(SchemaNotExist, RequestTimeOut):
            client.statuses.pause(path)
            break
        assert attempt < 3
    with pytest.raises(TableNotDue, match="is paused"):
        tier_once(place.config, path, jvm=place.jvm)
    place.client.statuses.resume(path)
    assert place.tier(path).outcome == "committed"
    (seen,) = place.client.statuses.list(path)
    assert (seen.status, seen.paused) == ("Scheduled", False)
    assert seen.last_round_ms is not None
    assert {"last_round_ms", "claimed_by", "deletes_as"} < set(
        place.client.admin.schema(PATH).names
    )
    done = replace(DELETED, deletes_as="positions")
    place.client.tiering.finished(place.claim(path), details=done)
    assert place.status(path).deletes_as == "positions"


def test_a_history_of_an_older_sluice_goes_on(place: Place) -> None:
    """Fluss adds the columns that it lacks; rounds of the older version have no value there."""
    path = TablePath(place.database, "rounds")  # never dropped: then Fluss misses no column
    layout = replace(ROUND_LAYOUT, path=path)
    columns = layout.descriptor.schema.columns
    older = tuple(column for column in columns if column.name not in LOOKUP_FIELDS)
    schema = replace(layout.descriptor.schema, columns=older, highest_field_id=len(older) - 1)
    create_table(place.client, path, replace(layout.descriptor, schema=schema))
    written = {"table_id": 7, "slot": 1, "round_number": 1, "keys_deleted": 4}
    with place.client.kv_writer(path, [*written]) as writer:
        writer.upsert(layout.columns_of([written]))
    with connect(place.config.client) as client:
        table = SystemTable(client._connection, client.admin, place.config.client, layout)
        rounds = RoundTable(table)
        (old,) = rounds.newest(7, 10)
        assert (old.keys_deleted, [getattr(old, n) for n in LOOKUP_FIELDS]) == (4, [None] * 4)
        newer = replace(DELETED, table_id=7, round_number=2, ended_ms=1)
        rounds.write([newer], lambda: False)
        assert rounds.newest(7, 10) == [newer, old]
    assert set(LOOKUP_FIELDS) < set(place.client.admin.schema(path).names)


@pytest.mark.slow
def test_the_tasks_of_a_run_write_too(place: Place, tmp_path: Path) -> None:
    good, bad = place.create("good"), place.create("bad")
    connection = FlussConnection.parse(
        "fluss_default", "127.0.0.1", 1, {"transport": "fluss", "work_uri": tmp_path.as_uri()}
    )
    entries: dict[str, Any] = {}
    deadline = time.monotonic() + 2 * DUE_S
    while len(entries) < 2:
        assert time.monotonic() < deadline, entries
        pattern = f"{place.database}.*"
        for entry in acquire(place.client, connection, "lease-of-run-1", [pattern], tables_max=5):
            entries[entry["table"]] = entry
    assert [place.status(path).status for path in (good, bad)] == ["Tiering", "Tiering"]
    rows = place.client.limit_scan(PATH, 1000).to_pylist()
    claimed = {row["table_name"]: row["claimed_by"] for row in rows if row["paused"] is None}
    assert (claimed["good"], claimed["bad"]) == ("lease-of-run-1",) * 2
    with connect(place.config.client) as client:
        failure = {"kind": "DriverLost", "reason": "password=*** is wrong"}
        assert settle(client, entries[str(bad)], None, failure).reported == "failed"
        entry = entries[str(good)]
        epochs = (entry["tiering_epoch"], entry["coordinator_epoch"])
        result = RoundResult(str(good), entry["table_id"], *epochs, "nothing_new")
        assert settle(client, entry, result.to_json(), None).reported == "finished"
    seen = place.status(bad)
    assert (seen.failures, seen.last_error) == (1, "DriverLost: password=*** is wrong")
    assert place.status(good).last_tiered_ms is not None
