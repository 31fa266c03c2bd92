"""Databases, tables, schemas, partitions and metadata over gRPC."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sluice.errors import (
    BucketMaxNum,
    CorruptMessage,
    DatabaseAlreadyExist,
    DatabaseNotEmpty,
    DatabaseNotExist,
    InvalidAlterTable,
    InvalidConfig,
    InvalidDatabase,
    InvalidReplicationFactor,
    InvalidTable,
    PartitionAlreadyExists,
    PartitionMaxNum,
    PartitionNotExists,
    PartitionSpecInvalid,
    SchemaNotExist,
    SluiceError,
    TableAlreadyExist,
    TableNotExist,
    TableNotPartitioned,
    UnknownTableOrBucket,
)
from sluice.formats.types.descriptors import descriptor_from_json, schema_from_json
from sluice.model import Column, Schema, TableDescriptor, TablePath
from sluice.model.types import BIGINT, BOOLEAN, INT, STRING, decimal
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Role
from sluice.wire.messages.values import POSITION_LAST
from tests.unit.server.support import (
    LOG_TABLE,
    PATH,
    SCHEMA,
    Caller,
    Node,
    OwnedClock,
    batch,
    to_pb,
)

PARTITIONED = replace(LOG_TABLE, partition_keys=("text",), bucket_count=2)


def create_partition(
    caller: Caller, value: str, *, ignore: bool = False, key: str = "text"
) -> None:
    request = pb.CreatePartitionRequest(table_path=to_pb(PATH), ignore_if_not_exists=ignore)
    request.partition_spec.partition_key_values.add(key=key, value=value)
    caller.call(apis.CREATE_PARTITION, request)


def drop_partition(caller: Caller, value: str, *, ignore: bool = False) -> None:
    request = pb.DropPartitionRequest(table_path=to_pb(PATH), ignore_if_not_exists=ignore)
    request.partition_spec.partition_key_values.add(key="text", value=value)
    caller.call(apis.DROP_PARTITION, request)


def partitions(caller: Caller) -> dict[str, int]:
    request = pb.ListPartitionInfosRequest(table_path=to_pb(PATH))
    return {
        info.partition_spec.partition_key_values[0].value: info.partition_id
        for info in caller.call(apis.LIST_PARTITION_INFOS, request).partitions_info
    }


def alter(caller: Caller, **fields: object) -> None:
    request = pb.AlterTableRequest(table_path=to_pb(PATH), ignore_if_not_exists=False, **fields)
    caller.call(apis.ALTER_TABLE, request)


def added(name: str, kind: str = "STRING", **more: object) -> pb.PbAddColumn:
    json_type = json.dumps({"type": kind, **more}).encode()
    return pb.PbAddColumn(column_name=name, data_type_json=json_type, column_position_type=0)


def option(key: str, value: str | None) -> pb.PbAlterConfig:
    return pb.PbAlterConfig(config_key=key, config_value=value, op_type=0 if value else 1)


def schema(caller: Caller, schema_id: int | None = None) -> tuple[int, Schema]:
    request = pb.GetTableSchemaRequest(table_path=to_pb(PATH), schema_id=schema_id)
    answer = caller.call(apis.GET_TABLE_SCHEMA, request)
    return answer.schema_id, schema_from_json(answer.schema_json)


# -- databases


def test_databases(caller: Caller) -> None:
    create = pb.CreateDatabaseRequest(database_name="one", ignore_if_exists=False)
    caller.call(apis.CREATE_DATABASE, create)
    with pytest.raises(DatabaseAlreadyExist, match="'one'"):
        caller.call(apis.CREATE_DATABASE, create)
    caller.create_database("one")
    caller.create_table(TablePath("two", "t"))
    listed = caller.call(apis.LIST_DATABASES, pb.ListDatabasesRequest(), Role.TABLET)
    assert list(listed.database_name) == ["fluss", "one", "two"]
    summaries = caller.call(apis.LIST_DATABASES, pb.ListDatabasesRequest(include_summary=True))
    assert [(s.database_name, s.table_count) for s in summaries.database_summary] == [
        ("fluss", 0),
        ("one", 0),
        ("two", 1),
    ]
    assert not summaries.database_name
    info = caller.call(apis.GET_DATABASE_INFO, pb.GetDatabaseInfoRequest(database_name="one"))
    assert json.loads(info.database_json) == {"version": 1, "custom_properties": {}}

    drop = pb.DropDatabaseRequest(database_name="two", ignore_if_not_exists=False, cascade=False)
    with pytest.raises(DatabaseNotEmpty, match="1 tables"):
        caller.call(apis.DROP_DATABASE, drop)
    drop.cascade = True
    caller.call(apis.DROP_DATABASE, drop)
    with pytest.raises(DatabaseNotExist, match="'two'"):
        caller.call(apis.DROP_DATABASE, drop)
    drop.ignore_if_not_exists = True
    caller.call(apis.DROP_DATABASE, drop)
    exists = caller.call(apis.DATABASE_EXISTS, pb.DatabaseExistsRequest(database_name="two"))
    assert not exists.exists


def alter_database(caller: Caller, name: str = "db", *, ignore: bool = False, **more: Any) -> None:
    caller.call(
        apis.ALTER_DATABASE,
        pb.AlterDatabaseRequest(database_name=name, ignore_if_not_exists=ignore, **more),
    )


def test_a_database_is_altered(start: Callable[..., Node], clock: OwnedClock) -> None:
    def described() -> tuple[dict[str, Any], int, int]:
        request = pb.GetDatabaseInfoRequest(database_name="db")
        info = node.caller.call(apis.GET_DATABASE_INFO, request)
        return json.loads(info.database_json), info.created_time, info.modified_time

    node = start(clock=clock)
    made_ms = clock.ms
    node.caller.create_database("db")
    clock.jump(1_000)
    alter_database(node.caller, comment="shop", config_changes=[option("a", "1"), option("b", "2")])
    custom = {"a": "1", "b": "2"}
    expected = {"version": 1, "custom_properties": custom, "comment": "shop"}
    assert described() == (expected, made_ms, made_ms + 1_000)
    clock.jump(1_000)
    alter_database(node.caller, comment="shop", config_changes=[option("a", "1")])
    alter_database(node.caller, config_changes=[option("missing", None)])
    assert described() == (expected, made_ms, made_ms + 1_000), "nothing was changed"
    alter_database(node.caller, comment="", config_changes=[option("a", None), option("c", "3")])
    node.restart()
    expected = {"version": 1, "custom_properties": {"b": "2", "c": "3"}}
    assert described() == (expected, made_ms, made_ms + 2_000)


def test_a_database_that_is_missing_is_not_altered(caller: Caller) -> None:
    with pytest.raises(DatabaseNotExist, match="'db'"):
        alter_database(caller, comment="shop")
    alter_database(caller, comment="shop", ignore=True)
    caller.create_database("db")
    append = pb.PbAlterConfig(config_key="a", config_value="1", op_type=2)
    with pytest.raises(InvalidDatabase, match="database 'db', a: invalid op_type 2"):
        alter_database(caller, config_changes=[append])


def drop_database(caller: Caller, name: str) -> None:
    request = pb.DropDatabaseRequest(database_name=name, ignore_if_not_exists=False, cascade=True)
    caller.call(apis.DROP_DATABASE, request)


def test_a_start_without_databases_makes_one(start: Callable[..., Node]) -> None:
    def names() -> list[str]:
        answer = node.caller.call(apis.LIST_DATABASES, pb.ListDatabasesRequest())
        return list(answer.database_name)

    node = start()
    assert names() == ["fluss"]
    info = node.caller.call(
        apis.GET_DATABASE_INFO, pb.GetDatabaseInfoRequest(database_name="fluss")
    )
    assert json.loads(info.database_json) == {"version": 1, "custom_properties": {}}
    drop_database(node.caller, "fluss")
    node.caller.create_database("shop")
    node.restart()
    assert names() == ["shop"]
    drop_database(node.caller, "shop")
    assert names() == []
    node.restart()
    assert names() == ["fluss"]


@pytest.mark.parametrize("name", ["", "a b", "a.b", "__x", "x" * 201, "../up"])
def test_names_are_checked(caller: Caller, name: str) -> None:
    with pytest.raises(InvalidDatabase):
        caller.create_database(name)
    with pytest.raises(SluiceError):
        caller.create_table(TablePath("db", name))
    assert caller.call(apis.LIST_TABLES, pb.ListTablesRequest(database_name="db")).table_name == []


def test_the_database_of_the_system_tables_cannot_be_created(caller: Caller) -> None:
    with pytest.raises(InvalidDatabase, match="'sys' is reserved for the system tables .* another"):
        caller.create_database("sys")
    exists = caller.call(apis.DATABASE_EXISTS, pb.DatabaseExistsRequest(database_name="sys"))
    assert not exists.exists
    caller.create_database("sys_of_ours")


# -- tables


def test_a_table_gets_the_defaults(caller: Caller) -> None:
    table = caller.create_table(custom_properties={"owner": "me"}, comment="hello")
    info = caller.table_info()
    stored = descriptor_from_json(info.table_json)
    assert (info.table_id, info.schema_id) == (table, 1)
    assert stored.bucket_count == 1
    assert stored.properties == {
        "table.replication.factor": "1",
        "table.datalake.format": "iceberg",
    }
    assert (stored.custom_properties, stored.comment) == ({"owner": "me"}, "hello")
    assert stored.schema == SCHEMA
    assert info.created_time == info.modified_time > 0
    assert info.remote_data_dir.startswith("file:///")


def test_tables_exist_until_dropped(caller: Caller) -> None:
    first = caller.create_table()
    with pytest.raises(TableAlreadyExist, match=r"db\.t already exists"):
        caller.create_table()
    ignored = pb.CreateTableRequest(
        table_path=to_pb(PATH), table_json=b"nonsense", ignore_if_exists=True
    )
    caller.call(apis.CREATE_TABLE, ignored)
    assert caller.call(apis.TABLE_EXISTS, pb.TableExistsRequest(table_path=to_pb(PATH))).exists
    caller.produce(first, batch("a"))
    caller.drop_table()
    assert not caller.call(apis.TABLE_EXISTS, pb.TableExistsRequest(table_path=to_pb(PATH))).exists
    with pytest.raises(TableNotExist, match=r"db\.t does not exist"):
        caller.drop_table()
    second = caller.create_table()
    assert second > first
    assert caller.offsets(second) == [0]


def test_a_table_needs_its_database(caller: Caller) -> None:
    request = pb.CreateTableRequest(
        table_path=to_pb(TablePath("nowhere", "t")), table_json=b"{}", ignore_if_exists=False
    )
    with pytest.raises(DatabaseNotExist, match="'nowhere'"):
        caller.call(apis.CREATE_TABLE, request)
    with pytest.raises(DatabaseNotExist):
        caller.call(apis.LIST_TABLES, pb.ListTablesRequest(database_name="nowhere"))


def columns(*types: object) -> Schema:
    named = tuple(Column(f"c{i}", kind, i) for i, kind in enumerate(types))  # type: ignore[arg-type]
    return Schema(named, highest_field_id=len(named) - 1)


@pytest.mark.parametrize(
    ("error", "match", "changes"),
    [
        (InvalidTable, "no column", {"schema": Schema(())}),
        (InvalidTable, "__offset", {"schema": Schema((Column("__offset", INT, 0),))}),
        (
            InvalidTable,
            "a",
            {"schema": Schema((Column("a", INT, 0), Column("a", INT, 1)))},
        ),
        (InvalidConfig, "table.unknown", {"properties": {"table.unknown": "1"}}),
        (InvalidConfig, "owner", {"properties": {"owner": "1"}}),
        (InvalidConfig, "maybe", {"properties": {"table.datalake.enabled": "maybe"}}),
        (InvalidConfig, "soon", {"properties": {"table.datalake.freshness": "soon"}}),
        (InvalidTable, "paimon", {"properties": {"table.datalake.format": "paimon"}}),
        (InvalidConfig, "AVRO", {"properties": {"table.log.format": "AVRO"}}),
        (
            InvalidReplicationFactor,
            "= 3",
            {"properties": {"table.replication.factor": "3"}},
        ),
        (
            InvalidConfig,
            "needs a partition key",
            {"properties": {"table.auto-partition.enabled": "true"}},
        ),
        (InvalidConfig, "merge-engine", {"properties": {"table.merge-engine": "first_row"}}),
        (InvalidTable, "nobody", {"bucket_keys": ("nobody",)}),
        (InvalidTable, "nobody", {"partition_keys": ("nobody",)}),
        (
            InvalidTable,
            "cannot write into a partition's name",
            {"schema": columns(decimal(9, 2)), "partition_keys": ("c0",)},
        ),
        (
            InvalidTable,
            "both partition key and bucket key",
            {"partition_keys": ("text",), "bucket_keys": ("text",)},
        ),
        (InvalidTable, "only one bucket column", {"bucket_keys": ("id", "text")}),
        (
            InvalidTable,
            "Iceberg cannot bucket",
            {"schema": columns(BOOLEAN), "bucket_keys": ("c0",)},
        ),
        (BucketMaxNum, "5000", {"bucket_count": 5000}),
        (InvalidTable, "may not begin", {"custom_properties": {"table.x": "1"}}),
    ],
)
def test_bad_descriptors_are_refused(
    caller: Caller, error: type[SluiceError], match: str, changes: dict[str, object]
) -> None:
    with pytest.raises(error, match=match):
        caller.create_table(**changes)
    assert caller.call(apis.LIST_TABLES, pb.ListTablesRequest(database_name="db")).table_name == []


def test_a_descriptor_that_is_no_json(caller: Caller) -> None:
    caller.create_database()
    request = pb.CreateTableRequest(
        table_path=to_pb(PATH), table_json=b"\xff{", ignore_if_exists=False
    )
    with pytest.raises(CorruptMessage):
        caller.call(apis.CREATE_TABLE, request)


def test_json_nested_without_end_is_an_error_of_its_own(caller: Caller) -> None:
    caller.create_table()
    deep = b"[" * 100_000
    database = pb.CreateDatabaseRequest(
        database_name="deep", ignore_if_exists=False, database_json=deep
    )
    with pytest.raises(InvalidDatabase, match="not JSON"):
        caller.call(apis.CREATE_DATABASE, database)
    column = pb.PbAddColumn(
        column_name="deep", data_type_json=deep, column_position_type=POSITION_LAST
    )
    with pytest.raises(CorruptMessage, match="its type is not JSON"):
        alter(caller, add_columns=[column])


# -- changes to tables


def test_columns_are_added_at_the_end(node: Node) -> None:
    caller = node.caller
    table = caller.create_table()
    caller.produce(table, batch("old"))
    row = {"fields": [{"name": "x", "field_type": {"type": "INTEGER"}, "field_id": 77}]}
    alter(caller, add_columns=[added("more"), added("nested", "ROW", **row)])
    alter(caller, add_columns=[added("last", "BIGINT")])
    for _ in range(2):
        assert caller.table_info().schema_id == 3
        assert schema(caller, 1) == (1, SCHEMA)
        newest, found = schema(caller)
        assert newest == 3
        assert [(c.name, c.column_id) for c in found.columns] == [
            ("id", 0),
            ("text", 1),
            ("more", 2),
            ("nested", 3),
            ("last", 5),
        ]
        assert found.column("nested").data_type.fields[0].field_id == 4
        assert found.highest_field_id == 5
        with pytest.raises(SchemaNotExist, match="no schema 4"):
            schema(caller, 4)
        node.restart()
        caller = node.caller
    caller.produce(table, batch("old schema still written"))
    assert caller.offsets(table) == [2]


@pytest.mark.parametrize(
    ("error", "match", "fields"),
    [
        (InvalidAlterTable, "already has", {"add_columns": [added("id")]}),
        (InvalidAlterTable, "__bucket", {"add_columns": [added("__bucket")]}),
        (InvalidAlterTable, "must be", {"add_columns": [added("x", nullable=False)]}),
        (
            InvalidAlterTable,
            "at the end",
            {
                "add_columns": [
                    pb.PbAddColumn(
                        column_name="x",
                        data_type_json=b'{"type":"INTEGER"}',
                        column_position_type=1,
                    )
                ]
            },
        ),
        (InvalidAlterTable, "dropped", {"drop_columns": [pb.PbDropColumn(column_name="id")]}),
        (
            InvalidAlterTable,
            "cannot be changed",
            {"config_changes": [option("table.log.format", "ARROW")]},
        ),
        (
            InvalidConfig,
            "not a duration",
            {"config_changes": [option("table.datalake.freshness", "x")]},
        ),
    ],
)
def test_bad_changes_change_nothing(
    caller: Caller, error: type[SluiceError], match: str, fields: dict[str, list[object]]
) -> None:
    caller.create_table()
    before = caller.table_info()
    with pytest.raises(error, match=match):
        alter(caller, **{"config_changes": [option("owner", "you")], **fields})
    assert caller.table_info() == before


def test_options_change(node: Node) -> None:
    node.caller.create_table(
        custom_properties={"owner": "me"}, properties={"table.changelog.image": "WAL"}
    )
    alter(
        node.caller,
        config_changes=[
            option("table.log.tiered.local-segments", "5"),
            option("table.datalake.enabled", "true"),
            option("table.datalake.freshness", "30s"),
            option("owner", None),
            option("team", "us"),
        ],
    )
    node.restart()
    info = node.caller.table_info()
    stored = descriptor_from_json(info.table_json)
    assert stored.properties["table.datalake.enabled"] == "true"
    assert stored.properties["table.datalake.freshness"] == "30s"
    assert stored.custom_properties == {"team": "us"}
    assert info.schema_id == 1


# -- partitions


def test_partitions(node: Node) -> None:
    caller = node.caller
    table = caller.create_table(descriptor=PARTITIONED)
    create_partition(caller, "north")
    create_partition(caller, "south")
    with pytest.raises(PartitionAlreadyExists, match="north"):
        create_partition(caller, "north")
    create_partition(caller, "north", ignore=True)
    ids = partitions(caller)
    assert list(ids) == ["north", "south"]
    assert caller.produce(table, batch("a"), 1, ids["north"]) == 0
    with pytest.raises(UnknownTableOrBucket):
        caller.produce(table, batch("a"), 1)
    node.restart()
    caller = node.caller
    assert partitions(caller) == ids
    assert caller.offsets(table, buckets=[0, 1], partition_id=ids["north"]) == [0, 1]
    drop_partition(caller, "north")
    with pytest.raises(PartitionNotExists, match="north"):
        drop_partition(caller, "north")
    drop_partition(caller, "north", ignore=True)
    with pytest.raises(UnknownTableOrBucket):
        caller.offsets(table, partition_id=ids["north"])
    create_partition(caller, "north")
    again = partitions(caller)
    assert again["north"] > ids["south"]
    assert caller.offsets(table, buckets=[1], partition_id=again["north"]) == [0]


def test_bad_partitions(caller: Caller) -> None:
    caller.create_table(descriptor=PARTITIONED)
    for value in ("", "a/b", "..", "__historical__", "a$b"):
        with pytest.raises(PartitionSpecInvalid):
            create_partition(caller, value)
    with pytest.raises(PartitionSpecInvalid, match="partitioned by text"):
        create_partition(caller, "a", key="id")
    caller.drop_table()
    caller.create_table()
    with pytest.raises(TableNotPartitioned):
        create_partition(caller, "a")
    with pytest.raises(TableNotPartitioned):
        drop_partition(caller, "a", ignore=True)


def test_a_table_may_not_have_too_many_buckets(caller: Caller) -> None:
    caller.create_table(descriptor=replace(PARTITIONED, bucket_count=3000))
    create_partition(caller, "one")
    with pytest.raises(BucketMaxNum, match="2 partitions, the new one with 3000 buckets"):
        create_partition(caller, "two")


def test_a_table_may_not_have_too_many_partitions(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluice.server.coordinator.catalog.catalog.PARTITIONS_MAX", 1)
    caller.create_table(descriptor=PARTITIONED)
    create_partition(caller, "one")
    with pytest.raises(PartitionMaxNum):
        create_partition(caller, "two")


def test_partitions_are_filtered_by_a_part_of_their_values(caller: Caller) -> None:
    schema = Schema(
        (Column("a", STRING, 0), Column("b", STRING, 1), Column("n", BIGINT, 2)), highest_field_id=2
    )
    caller.create_table(descriptor=TableDescriptor(schema, partition_keys=("a", "b")))
    for a, b in (("x", "1"), ("x", "2"), ("y", "1")):
        request = pb.CreatePartitionRequest(table_path=to_pb(PATH), ignore_if_not_exists=False)
        request.partition_spec.partition_key_values.add(key="b", value=b)
        request.partition_spec.partition_key_values.add(key="a", value=a)
        caller.call(apis.CREATE_PARTITION, request)
    wanted = pb.ListPartitionInfosRequest(table_path=to_pb(PATH))
    wanted.partial_partition_spec.partition_key_values.add(key="b", value="1")
    found = caller.call(apis.LIST_PARTITION_INFOS, wanted).partitions_info
    assert [[p.value for p in f.partition_spec.partition_key_values] for f in found] == [
        ["x", "1"],
        ["y", "1"],
    ]


# -- metadata


def test_metadata_names_the_leader(caller: Caller) -> None:
    caller.create_table(bucket_count=3)
    answer = caller.call(
        apis.GET_METADATA, pb.MetadataRequest(table_path=[to_pb(PATH)]), Role.TABLET
    )
    server = answer.tablet_servers[0]
    assert f"grpc://{server.host}:{server.port}" == caller.address
    assert answer.coordinator_server.port == server.port
    (table,) = answer.table_metadata
    assert [(b.bucket_id, b.leader_id) for b in table.bucket_metadata] == [
        (n, server.node_id) for n in range(3)
    ]
    with pytest.raises(TableNotExist, match=r"no\.where"):
        caller.call(
            apis.GET_METADATA,
            pb.MetadataRequest(table_path=[to_pb(TablePath("no", "where"))]),
        )


def test_metadata_of_partitions(caller: Caller) -> None:
    caller.create_table(descriptor=PARTITIONED)
    create_partition(caller, "north")
    partition_id = partitions(caller)["north"]
    by_path = pb.PbPhysicalTablePath(database_name="db", table_name="t", partition_name="north")
    for request in (
        pb.MetadataRequest(table_path=[to_pb(PATH)], partitions_path=[by_path]),
        pb.MetadataRequest(table_path=[to_pb(PATH)], partitions_id=[partition_id]),
    ):
        answer = caller.call(apis.GET_METADATA, request)
        assert len(answer.table_metadata[0].bucket_metadata) == 0
        (partition,) = answer.partition_metadata
        assert (partition.partition_id, len(partition.bucket_metadata)) == (partition_id, 2)
    by_path.partition_name = "south"
    for request in (
        pb.MetadataRequest(partitions_path=[by_path]),
        pb.MetadataRequest(partitions_id=[99]),
    ):
        with pytest.raises(PartitionNotExists):
            caller.call(apis.GET_METADATA, request)


def test_restart_keeps_everything(node: Node) -> None:
    table = node.caller.create_table(bucket_count=2, custom_properties={"a": "b"})
    for n in range(10):
        node.caller.produce(table, batch(f"row {n}"), n % 2)
    before = node.caller.table_info(), [node.caller.read_all(table, b) for b in (0, 1)]
    node.restart()
    assert before == (
        node.caller.table_info(),
        [node.caller.read_all(table, bucket) for bucket in (0, 1)],
    )
    assert node.caller.produce(table, batch("more")) == 5
