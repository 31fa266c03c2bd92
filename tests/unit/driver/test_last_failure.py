"""A table whose lake is healthy, but whose last round failed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from sluice.client import Client, connect
from sluice.config import ServerConfig
from sluice.driver.last_failure import (
    diagnose_batch,
    diagnose_batch_behind,
    with_batch_behind,
    with_last_failure,
)
from sluice.driver.repairing import choose_action
from sluice.errors import ConfigurationError, CorruptRecord
from sluice.model import (
    Column,
    LakeSnapshotInfo,
    Reason,
    Schema,
    TableBucket,
    TableDescriptor,
    TablePath,
)
from sluice.model import types as t
from sluice.rounds.commit.recover import LakeComparison, LakeStatus
from sluice.rounds.plan.bucket_repairs import GAPS_KEY, SKIPPED_KEY
from sluice.rounds.repair.diagnose import diagnose
from sluice.rounds.repair.diagnosis import Diagnosis, TableState
from sluice.rounds.values.history import HistoryEntry, LakeHistory
from sluice.rounds.values.offsets import TABLE_ID_KEY
from sluice.rounds.values.types import LakeSnapshot, OffsetRange
from sluice.server.cluster import EmbeddedCluster

PATH = TablePath("shop", "orders")
NAMED = "bucket 0 failed. Run `sluice repair shop.orders --skip 0:1` with the same --warehouse"


def config(data_dir: Path) -> ServerConfig:
    return ServerConfig(str(data_dir), listen="grpc://127.0.0.1:0", tiering_check_interval_ms=10)


def create(client: Client, batches: int) -> None:
    """A table whose batches have one row each."""
    properties = {"table.datalake.enabled": "true", "table.datalake.freshness": "0s"}
    client.admin.create_database("shop")
    schema = Schema((Column("id", t.BIGINT, 0),), highest_field_id=0)
    client.admin.create_table(PATH, TableDescriptor(schema, bucket_count=1, properties=properties))
    for number in range(batches):
        with client.log_writer(PATH) as writer:
            writer.write(pa.table({"id": [number]}))


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    """A table with two batches."""
    with EmbeddedCluster(config(tmp_path)) as cluster, connect(cluster.address) as client:
        create(client, 2)
        yield client


def damage(data_dir: Path, *, with_end: bool = False) -> None:
    """Changes a byte of the last batch.

    :param with_end: also the byte of its header that says how many rows it has.
    """
    [log] = [path for path in data_dir.rglob("*.log") if path.stat().st_size]
    content = bytearray(log.read_bytes())
    content[-3] ^= 1
    if with_end:
        content[len(content) // 2 + 28] ^= 1  # both batches have the same size
    log.write_bytes(content)


def fail(client: Client, text: str) -> None:
    claim = client.tiering.claim([PATH])
    assert claim is not None
    client.tiering.failed(claim, Reason("", text))


def diagnosed(client: Client) -> Diagnosis:
    seen = TableState(PATH, client.admin.table_info(PATH), None, None)
    return with_last_failure(client, seen, Diagnosis(str(PATH), True, "as it should be", {}))


def test_the_batch_that_the_last_round_could_not_read_is_diagnosed(
    client: Client, tmp_path: Path
) -> None:
    damage(tmp_path)
    fail(client, NAMED)
    found = diagnosed(client)
    assert not found.healthy
    assert found.state.startswith(
        "the last round failed: bucket 0: the batch at offset 1 cannot be read: checksum "
    )
    assert found.commands() == "`sluice repair shop.orders --skip 0:1 --yes`"
    assert found.to_json()["batch"] == "0:1"
    for by in (None, "retier", "rebuild"):
        with pytest.raises(ConfigurationError, match=f"run {found.commands()} with the same"):
            choose_action(found, by)


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        ("LakeNotWritable: no space left", "the last round failed: LakeNotWritable: no space left"),
        (
            NAMED,
            "the last round could not read the batch at 0:1. Now the batch at offset 1 can be"
            " read, so there is nothing to skip",
        ),
    ],
)
def test_any_other_failure_is_shown_and_the_lake_stays_healthy(
    client: Client, text: str, failure: str
) -> None:
    fail(client, text)
    found = diagnosed(client)
    assert (found.healthy, found.state, found.last_failure) == (True, "as it should be", failure)


def test_a_damaged_range_is_named_by_its_begin_and_skipped_from_the_tiered_offset_on(
    tmp_path: Path,
) -> None:
    with EmbeddedCluster(config(tmp_path)) as cluster, connect(cluster.address) as client:
        create(client, 4)
    [log] = [path for path in tmp_path.rglob("*.log") if path.stat().st_size]
    content = bytearray(log.read_bytes())
    for number in (2, 3):
        content[number * len(content) // 4 - 3] ^= 1
    log.write_bytes(content)
    with EmbeddedCluster(config(tmp_path)) as cluster, connect(cluster.address) as client:
        fail(client, NAMED)
        info = client.admin.table_info(PATH)
        tiered = LakeSnapshotInfo(info.table_id, 7, {TableBucket(info.table_id, None, 0): 2})
        healthy = Diagnosis(str(PATH), True, "as it should be", {})
        seen = TableState(PATH, info, None, tiered)
        for start in (0, 2):
            with pytest.raises(CorruptRecord, match="sluice skip-damaged shop.orders 0:"):
                list(client.log_reader(PATH).read(TableBucket(info.table_id, None, 0), start))
            client.damage.skip(*client.damage.list(PATH))
        found = with_last_failure(client, seen, healthy)
        assert "offsets 1 to 2 are lost" in found.state
        assert found.commands() == "`sluice repair shop.orders --skip 0:2 --yes`"
        diagnosed = diagnose(seen, client.tiering)  # the lake table is gone
        batch = diagnose_batch_behind(client, seen, diagnosed, ("0", 1))[1]
        assert batch == OffsetRange(TableBucket(info.table_id, None, 0), 1, 3)
        held = LakeComparison(LakeStatus.BEHIND, dict(tiered.offsets))  # another bucket is behind
        seen = replace(seen, ours=LakeSnapshot(7, 1, {}), comparison=held)
        assert diagnose_batch_behind(client, seen, diagnosed, ("0", 1)) == (diagnosed, None)


@pytest.mark.parametrize("key", [SKIPPED_KEY, GAPS_KEY])
def test_a_batch_that_a_repair_left_out_is_not_said_to_be_in_the_lake(
    client: Client, key: str
) -> None:
    info = client.admin.table_info(PATH)
    tiered = LakeSnapshotInfo(info.table_id, 7, {TableBucket(info.table_id, None, 0): 2})
    summary = {TABLE_ID_KEY: str(info.table_id), key: '{"0": [1, 2]}'}
    history = LakeHistory(7, 7, {7: HistoryEntry(7, None, 1, summary)})
    seen = TableState(PATH, info, None, tiered, history=history)
    with pytest.raises(ConfigurationError) as refused:
        diagnose_batch(client, seen, ("0", 1))
    assert str(refused.value) == (
        "--skip 0:1: an earlier repair already left out offset 1."
        " `sluice status shop.orders` shows what the lake lacks"
    )
    with pytest.raises(ConfigurationError, match="the bucket was already tiered up to offset 2"):
        diagnose_batch(client, seen, ("0", 0))


@pytest.mark.parametrize("began", [False, True])
def test_a_repair_that_did_not_run_leaves_the_failure_to_diagnose(
    client: Client, tmp_path: Path, began: bool
) -> None:
    """The table is paused, or a signal ends the round of the repair."""
    damage(tmp_path)
    fail(client, NAMED)
    if not began:
        client.statuses.pause(PATH)
    client.statuses.retry(PATH)  # as `sluice repair --yes` does before its claim
    claim = client.tiering.claim([PATH])
    assert (claim is not None) == began
    if claim is not None:
        client.tiering.release(claim, Reason("", "Ctrl-C ended `sluice repair`"), stopped=True)
    found = diagnosed(client)
    assert (found.healthy, found.batch) == (False, "0:1")


def behind(client: Client) -> tuple[TableState, Diagnosis]:
    """Both batches were tiered, and the lake table is gone."""
    info = client.admin.table_info(PATH)
    registered = LakeSnapshotInfo(info.table_id, 7, {TableBucket(info.table_id, None, 0): 2})
    seen = TableState(PATH, info, None, registered)
    return seen, diagnose(seen, client.tiering)


def test_a_lake_that_is_behind_is_tiered_again_without_a_named_batch(
    client: Client, tmp_path: Path
) -> None:
    damage(tmp_path)
    seen, found = behind(client)
    again, batch = diagnose_batch_behind(client, seen, found, ("0", 1))
    assert batch is not None
    assert (batch.start, batch.stop) == (1, 2)
    assert again.commands() == "`sluice repair shop.orders --skip 0:1 --by retier --yes`"
    assert f"lost for good: {batch} (the batch cannot be read)" in again.actions[0].risks
    assert choose_action(again, "retier", ("0", 1)) is again.actions[0]
    for by in (None, "skip"):
        with pytest.raises(ConfigurationError, match="--by retier"):
            choose_action(again, by, ("0", 1))


def test_a_lake_that_is_behind_names_the_batch_at_which_its_round_failed(client: Client) -> None:
    seen, found = behind(client)
    assert with_batch_behind(client, seen, found) == found
    fail(client, NAMED)
    note = with_batch_behind(client, seen, found).advice[-1]
    assert note == (
        "the last round could not read the batch at 0:1. `sluice repair shop.orders --skip 0:1`"
        " with the same --warehouse or --config shows how to leave it out"
    )


def test_a_batch_that_was_never_tiered_is_not_named_before_the_lake_is_repaired(
    client: Client,
) -> None:
    seen, found = behind(client)
    fail(client, NAMED.replace("0:1", "0:2"))
    assert with_batch_behind(client, seen, found) == found


def test_a_batch_behind_what_was_tiered_comes_after_the_lake(client: Client) -> None:
    seen, found = behind(client)
    assert diagnose_batch_behind(client, seen, found, ("0", 2)) == (found, None)


def test_retier_cannot_leave_out_a_batch_whose_end_is_unknown(
    client: Client, tmp_path: Path
) -> None:
    damage(tmp_path, with_end=True)
    seen, found = behind(client)
    again, batch = diagnose_batch_behind(client, seen, found, ("0", 1))
    assert (again.actions, batch) == ((), None)
    assert again.state.endswith("Its end is unknown, so retier cannot leave it out")
    no_repair = r"retier cannot leave it out\. `sluice repair` has no repair for it"
    with pytest.raises(ConfigurationError, match=no_repair):
        choose_action(again, None, ("0", 1))


def test_a_failure_before_a_round_that_succeeded_is_no_news(client: Client, tmp_path: Path) -> None:
    fail(client, NAMED)
    damage(tmp_path)
    client.statuses.retry(PATH)
    claim = client.tiering.claim([PATH])
    assert claim is not None
    client.tiering.finished(claim)
    assert diagnosed(client) == Diagnosis(str(PATH), True, "as it should be", {})


def test_a_disabled_table_has_no_status_that_names_a_failure(client: Client) -> None:
    fail(client, NAMED)
    client.admin.set_options(PATH, {"table.datalake.enabled": "false"})
    found = diagnosed(client)
    assert (found.healthy, found.last_failure) == (True, "")
    assert found.advice == (
        "whether the last round failed is not known: a table has a status only while"
        " table.datalake.enabled is true. `sluice history shop.orders` shows the last rounds",
    )
    assert client.statuses.history(PATH)[0].reason == NAMED
