"""Partitions that a server creates and drops by time, on a clock that the test owns."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from structlog.testing import capture_logs

from sluice.errors import (
    InvalidAlterTable,
    InvalidConfig,
    TableNotExist,
    UnknownTableOrBucket,
)
from sluice.model import Column, Partition, Schema, TableDescriptor, TableInfo, TablePath
from sluice.model.types import BIGINT, STRING
from sluice.server.coordinator.tiering.auto_partitioner import AutoPartitioner
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from tests.support.programs.processes import wait_for
from tests.unit.server.coordinator.calls.test_catalog_calls import (
    alter,
    create_partition,
    drop_partition,
    partitions,
)
from tests.unit.server.coordinator.tiering.test_lake_snapshots import commit, prepare
from tests.unit.server.support import LOG_TABLE, PATH, Caller, Node, OwnedClock, batch, to_pb

DAY_MS = 86_400_000
NEVER_MS = 86_400_000
OPTIONS = {
    "table.auto-partition.enabled": "true",
    "table.auto-partition.time-zone": "UTC",
    "table.auto-partition.num-retention": "2",
}
TABLE = replace(LOG_TABLE, partition_keys=("text",), properties=OPTIONS)
LAKE_TABLE = replace(TABLE, properties={**OPTIONS, "table.datalake.enabled": "true"})


@pytest.fixture
def clock() -> OwnedClock:
    clock = OwnedClock()
    clock.ms = int(datetime(2024, 2, 28, 12, tzinfo=UTC).timestamp() * 1000)
    return clock


@pytest.fixture
def node(start: Callable[..., Node], clock: OwnedClock) -> Node:
    return start(clock=clock, auto_partition_check_interval_ms=NEVER_MS)


def partitioner(node: Node) -> AutoPartitioner:
    parts = node.cluster._parts
    assert parts is not None
    return parts.auto_partitioner


def check(node: Node) -> list[Mapping[str, object]]:
    """What the check of an interval logs."""
    with capture_logs() as events:
        partitioner(node).check()
    return [event for event in events if event["log_level"] != "info"]


def names(node: Node) -> list[str]:
    return sorted(partitions(node.caller))


def later(node: Node, clock: OwnedClock, days: int) -> list[Mapping[str, object]]:
    clock.ms += days * DAY_MS
    return check(node)


def test_a_new_table_has_its_partitions_at_once(node: Node, clock: OwnedClock) -> None:
    table = node.caller.create_table(descriptor=TABLE)
    ids = partitions(node.caller)
    assert list(ids) == ["20240228", "20240229"]
    assert node.caller.produce(table, batch("20240228"), partition_id=ids["20240228"]) == 0
    assert check(node) == []
    assert partitions(node.caller) == ids, "a partition that exists is fine"


def test_partitions_come_and_go_with_the_days(node: Node, clock: OwnedClock) -> None:
    node.caller.create_table(descriptor=TABLE)
    later(node, clock, 1)
    assert names(node) == ["20240228", "20240229", "20240301"]
    later(node, clock, 2)
    assert names(node) == ["20240229", "20240301", "20240302", "20240303"]
    later(node, clock, 30)
    assert names(node) == ["20240401", "20240402"]


def test_the_data_of_an_expired_partition_is_deleted(node: Node, clock: OwnedClock) -> None:
    table = node.caller.create_table(descriptor=TABLE)
    partition_id = partitions(node.caller)["20240228"]
    node.caller.produce(table, batch("20240228"), partition_id=partition_id)
    folder = node.data_dir / "log" / "db" / f"t-{table}" / f"20240228-p{partition_id}"
    assert folder.is_dir()
    later(node, clock, 3)
    assert not folder.exists()
    with pytest.raises(UnknownTableOrBucket):
        node.caller.produce(table, batch("20240228"), partition_id=partition_id)


def test_files_that_cannot_be_deleted_end_no_check(node: Node, clock: OwnedClock) -> None:
    """Neither that of other partitions nor that of other tables."""
    table = node.caller.create_table(descriptor=TABLE)
    other = TablePath("db", "t2")
    node.caller.create_table(other, descriptor=TABLE)
    ids = partitions(node.caller)
    node.caller.produce(table, batch("20240228"), partition_id=ids["20240228"])
    parts = node.cluster._parts
    assert parts is not None
    partitioner = AutoPartitioner(
        parts.catalog, parts._lake, parts._logs.drop_within, refuse, clock
    )
    clock.ms += 10 * DAY_MS
    with capture_logs() as events:
        partitioner.check()
    for path in (PATH, other):
        left = parts.catalog.table(path).partitions.values()
        assert sorted(one.name for one in left) == ["20240309", "20240310"]
    told = [event for event in events if event["log_level"] == "error"]
    assert len(told) == 4
    assert (told[0]["partition"], told[0]["error"]) == ("20240228", "[Errno 5] p0")
    folder = node.data_dir / "log" / "db" / f"t-{table}"
    assert list(folder.iterdir())
    node.restart()
    assert not list(folder.iterdir()), "the next start deletes them"


def refuse(info: TableInfo, partition_id: int | None = None) -> None:
    raise OSError(errno.EIO, f"p{partition_id}")


def test_a_restart_creates_what_is_missing_before_it_listens(node: Node, clock: OwnedClock) -> None:
    node.caller.create_table(descriptor=TABLE)
    node.stop()
    clock.ms += 5 * DAY_MS
    node.start()
    assert {"20240304", "20240305"} <= set(names(node))


def test_the_server_checks_by_itself(start: Callable[..., Node], clock: OwnedClock) -> None:
    node = start(clock=clock, auto_partition_check_interval_ms=5)
    node.caller.create_table(descriptor=TABLE)
    clock.ms += 10 * DAY_MS
    wait_for("the check", lambda: names(node) == ["20240309", "20240310"], 60)


def test_partitions_of_users_count_by_their_names(node: Node, clock: OwnedClock) -> None:
    node.caller.create_table(descriptor=TABLE)
    for value in ("20240225", "20240227", "north", "0", "20240229"):
        create_partition(node.caller, value, ignore=True)
    drop_partition(node.caller, "20240228")
    check(node)
    assert names(node) == ["20240227", "20240228", "20240229", "north"]


def test_several_keys_lose_old_partitions_and_get_none(node: Node, clock: OwnedClock) -> None:
    columns = (Column("region", STRING, 0), Column("day", STRING, 1), Column("id", BIGINT, 2))
    table = TableDescriptor(
        Schema(columns, highest_field_id=2),
        partition_keys=("region", "day"),
        properties={**OPTIONS, "table.auto-partition.key": "day"},
    )
    node.caller.create_table(descriptor=table)
    stored = node.caller.table_info().table_json
    assert b'"table.auto-partition.num-precreate":"0"' in stored
    for region, day in (("a", "20240225"), ("b", "20240225"), ("20230101", "20240228")):
        request = pb.CreatePartitionRequest(table_path=to_pb(PATH), ignore_if_not_exists=False)
        request.partition_spec.partition_key_values.add(key="region", value=region)
        request.partition_spec.partition_key_values.add(key="day", value=day)
        node.caller.call(apis.CREATE_PARTITION, request)
    check(node)
    request = pb.ListPartitionInfosRequest(table_path=to_pb(PATH))
    (left,) = node.caller.call(apis.LIST_PARTITION_INFOS, request).partitions_info
    assert left.partition_spec.partition_key_values[0].value == "20230101"


def test_what_the_lake_lacks_stays(node: Node, clock: OwnedClock) -> None:
    caller = node.caller
    table = caller.create_table(descriptor=LAKE_TABLE)
    ids = partitions(caller)
    caller.produce(table, batch("20240228", "20240228"), partition_id=ids["20240228"])
    (told,) = later(node, clock, 10)
    assert (told["partitions"], told["oldest"]) == (1, "20240228")
    assert "the lake lacks rows" in str(told["event"])
    assert names(node) == ["20240228", "20240309", "20240310"], "empty ones are gone"
    for offset, kept in ((1, True), (2, False)):
        path = prepare(caller, table, {0: offset}, partition_id=ids["20240228"])
        commit(caller, table, offset, path)
        assert bool(check(node)) == kept
        assert ("20240228" in names(node)) == kept


def test_unreadable_offsets_of_the_lake_keep_everything(node: Node, clock: OwnedClock) -> None:
    caller = node.caller
    table = caller.create_table(descriptor=LAKE_TABLE)
    ids = partitions(caller)
    caller.produce(table, batch("20240228"), partition_id=ids["20240228"])
    commit(caller, table, 1, prepare(caller, table, {0: 1}, partition_id=ids["20240228"]))
    shutil.rmtree(node.data_dir / "remote" / "lake")
    (told,) = later(node, clock, 10)
    assert told["log_level"] == "error"
    assert {"20240228", "20240229", "20240309"} <= set(names(node))


def test_rows_that_come_after_the_look_keep_their_partition(node: Node, clock: OwnedClock) -> None:
    table = node.caller.create_table(descriptor=LAKE_TABLE)
    parts = node.cluster._parts
    assert parts is not None
    seen = parts.catalog.table(PATH)
    (old, _) = seen.partitions.values()
    node.caller.produce(table, batch("20240228"), partition_id=old.partition_id)
    assert not parts.auto_partitioner._drop(seen.info, old)
    assert names(node) == ["20240228", "20240229"]
    commit(
        node.caller, table, 1, prepare(node.caller, table, {0: 1}, partition_id=old.partition_id)
    )
    assert parts.auto_partitioner._drop(seen.info, old)
    assert names(node) == ["20240229"]


def test_the_lake_may_be_switched_on_after_the_look(node: Node, clock: OwnedClock) -> None:
    off = {**OPTIONS, "table.datalake.enabled": "false"}
    table = node.caller.create_table(descriptor=replace(TABLE, properties=off))
    parts = node.cluster._parts
    assert parts is not None
    seen = parts.catalog.table(PATH)
    (old, _) = seen.partitions.values()
    node.caller.produce(table, batch("20240228"), partition_id=old.partition_id)
    change = pb.PbAlterConfig(config_key="table.datalake.enabled", config_value="true", op_type=0)
    alter(node.caller, config_changes=[change])
    assert not parts.auto_partitioner._drop(seen.info, old)


def test_a_new_partition_of_the_same_name_is_left_alone(node: Node, clock: OwnedClock) -> None:
    """Dropped and created again between the look and the change, with a row."""
    table = node.caller.create_table(descriptor=LAKE_TABLE)
    parts = node.cluster._parts
    assert parts is not None
    seen = parts.catalog.table(PATH)
    (old, _) = seen.partitions.values()
    drop_partition(node.caller, "20240228")
    create_partition(node.caller, "20240228")
    new_id = partitions(node.caller)["20240228"]
    node.caller.produce(table, batch("20240228"), partition_id=new_id)
    assert parts.auto_partitioner._drop(seen.info, old)
    assert partitions(node.caller)["20240228"] == new_id != old.partition_id
    assert node.caller.produce(table, batch("20240228"), partition_id=new_id) == 1


def test_a_table_of_the_same_name_is_another_one(node: Node, clock: OwnedClock) -> None:
    """Dropped and created again between the look and the change."""
    node.caller.create_table(descriptor=TABLE)
    parts = node.cluster._parts
    assert parts is not None
    old = parts.catalog.table(PATH)
    node.caller.drop_table()
    node.caller.create_table(descriptor=replace(TABLE, properties={}))
    create_partition(node.caller, "20200101")
    parts.auto_partitioner.create_missing(old.info)
    with pytest.raises(TableNotExist, match="with the id"):
        parts.auto_partitioner._drop(old.info, Partition(0, ("20200101",)))
    assert names(node) == ["20200101"]


def test_the_limit_of_partitions_is_kept(node: Node, clock: OwnedClock) -> None:
    options = {**OPTIONS, "table.auto-partition.num-precreate": "2000"}
    many = replace(TABLE, properties=options, bucket_count=100)
    with capture_logs() as events:
        node.caller.create_table(descriptor=many)
    assert len(names(node)) == 40, "4,096 buckets"
    (told,) = [event for event in events if event["event"] == "partition not created"]
    assert "4096" in str(told["reason"])


def test_options_by_time_cannot_be_altered_and_columns_can(node: Node) -> None:
    node.caller.create_table(descriptor=TABLE)
    change = pb.PbAlterConfig(
        config_key="table.auto-partition.num-retention", config_value="9", op_type=0
    )
    with pytest.raises(InvalidAlterTable, match="num-retention"):
        alter(node.caller, config_changes=[change])
    alter(
        node.caller, config_changes=[pb.PbAlterConfig(config_key="a", config_value="b", op_type=0)]
    )
    check(node)
    assert names(node) == ["20240228", "20240229"]


def test_a_table_whose_options_do_not_fit_is_not_created(caller: Caller) -> None:
    with pytest.raises(InvalidConfig, match="needs a partition key"):
        caller.create_table(properties=OPTIONS)
    with pytest.raises(InvalidConfig, match="unknown table option"):  # of a later Fluss
        caller.create_table(
            descriptor=TABLE,
            properties={**OPTIONS, "table.auto-partition.time-format": "yyyy-MM-dd"},
        )
    path = TablePath("db", "t")
    assert not caller.call(apis.TABLE_EXISTS, pb.TableExistsRequest(table_path=to_pb(path))).exists


def test_a_dropped_table_is_not_touched(node: Node, clock: OwnedClock) -> None:
    node.caller.create_table(descriptor=TABLE)
    node.caller.drop_table()
    assert later(node, clock, 10) == []
