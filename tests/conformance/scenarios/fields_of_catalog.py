"""The fields of answers about databases, tables, schemas, partitions and servers."""

from __future__ import annotations

import json
from typing import Any

from sluice.model import (
    Column,
    DataType,
    RowField,
    Schema,
    TableDescriptor,
    TablePath,
    TypeRoot,
)
from sluice.model import types as t
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Api, Role
from sluice.wire.messages import values
from sluice.wire.messages.table_paths import table_path
from tests.conformance.every_type import EVERY_TYPE
from tests.conformance.raw_calls import NO_TABLE, RawCalls, raw_calls
from tests.conformance.scenario import LAKE, ScenarioContext, scenario

LOG = {"id": t.BIGINT, "note": t.STRING}
KEYED = {"id": t.BIGINT.not_null(), "note": t.STRING}


_FIELDS = (RowField("n", t.INT, "a field", 4), RowField("s", t.STRING, None, 5))
_ROW = DataType(TypeRoot.ROW, fields=_FIELDS)
_NESTED = Schema(
    (
        Column("id", t.BIGINT, 0),
        Column("list", DataType(TypeRoot.ARRAY, element=t.INT), 1),
        Column("map", DataType(TypeRoot.MAP, key=t.STRING.not_null(), value=t.BIGINT), 2),
        Column("row", _ROW, 3),
    ),
    (),
    5,
)
_KEYED = Schema((Column("id", t.BIGINT.not_null(), 0), Column("note", t.STRING, 1)), ("id",), 1)
_KINDS = {
    "nested": TableDescriptor(_NESTED, bucket_count=1),
    "first_rows": TableDescriptor(
        _KEYED, bucket_count=1, properties={"table.merge-engine": "first_row"}
    ),
}


@scenario
def fields_of_servers(context: ScenarioContext) -> None:
    with raw_calls(context) as calls:
        hello = pb.ApiVersionsRequest(client_software_name="fluss", client_software_version="0.1.0")
        for role in Role:
            calls.offered(role)
        calls.ask_both("as the Java client", apis.API_VERSIONS, hello)
        calls.ask_both("of the servers", apis.GET_METADATA, pb.MetadataRequest())
        calls.ask_both(
            "of local files",
            apis.GET_FILESYSTEM_SECURITY_TOKEN,
            pb.GetFileSystemSecurityTokenRequest(),
        )
        calls.ask_both(
            "of the settings", apis.DESCRIBE_CLUSTER_CONFIGS, pb.DescribeClusterConfigsRequest()
        )


@scenario
def fields_of_producers(context: ScenarioContext) -> None:
    producer = context.database  # a name of its own: no scenario deletes another's

    def register(name: str) -> pb.RegisterProducerOffsetsRequest:
        request = pb.RegisterProducerOffsetsRequest(producer_id=name, ttl_ms=60_000)
        table = request.table_offsets.add(table_id=7)  # Fluss does not look for the table
        table.bucket_offsets.add(bucket_id=0, log_end_offset=7)
        return request

    def ask(question: str, name: str, *apis_of_it: Api) -> None:
        for api in apis_of_it:
            calls.ask(question, api, api.request(producer_id=name))

    with raw_calls(context) as calls:
        ask("before", producer, apis.GET_PRODUCER_OFFSETS, apis.DELETE_PRODUCER_OFFSETS)
        first = register(producer)
        for question in ("of a producer", "again"):
            calls.ask(question, apis.REGISTER_PRODUCER_OFFSETS, first)
        ask("of a producer", producer, apis.GET_PRODUCER_OFFSETS, apis.DELETE_PRODUCER_OFFSETS)
        nothing = pb.RegisterProducerOffsetsRequest(producer_id=producer)
        calls.ask("of nothing", apis.REGISTER_PRODUCER_OFFSETS, nothing)
        ask("of nothing", producer, apis.GET_PRODUCER_OFFSETS, apis.DELETE_PRODUCER_OFFSETS)
        wrong = register("a b")
        calls.ask("of a wrong name", apis.REGISTER_PRODUCER_OFFSETS, wrong)
        ask("of a wrong name", "a b", apis.GET_PRODUCER_OFFSETS, apis.DELETE_PRODUCER_OFFSETS)


@scenario
def fields_of_databases(context: ScenarioContext) -> None:
    name, described = context.database, f"{context.database}_described"

    def create(database: str, ignore: bool = False, **more: bytes) -> pb.CreateDatabaseRequest:
        return pb.CreateDatabaseRequest(database_name=database, ignore_if_exists=ignore, **more)

    def drop(
        database: str, *, ignore: bool = False, cascade: bool = False
    ) -> pb.DropDatabaseRequest:
        return pb.DropDatabaseRequest(
            database_name=database, ignore_if_not_exists=ignore, cascade=cascade
        )

    content = {"version": 1, "comment": "what it is", "custom_properties": {"owner": "me"}}
    with raw_calls(context) as calls:
        calls.ask("of no table", apis.LIST_TABLES, pb.ListTablesRequest(database_name=name))
        context.create("t", LOG)
        calls.ask_both("of one table", apis.LIST_TABLES, pb.ListTablesRequest(database_name=name))
        missing = pb.ListTablesRequest(database_name="missing")
        calls.ask("of a missing database", apis.LIST_TABLES, missing)
        described_json = json.dumps(content).encode()
        request = create(described, database_json=described_json)
        calls.ask("with a description", apis.CREATE_DATABASE, request)
        calls.ask("once more", apis.CREATE_DATABASE, create(described))
        calls.ask("once more, ignored", apis.CREATE_DATABASE, create(described, ignore=True))
        calls.ask("of a bad name", apis.CREATE_DATABASE, create("no.dots"))
        for what, database in (("plain", name), ("described", described), ("missing", "missing")):
            info = pb.GetDatabaseInfoRequest(database_name=database)
            calls.ask_both(f"of a {what} one", apis.GET_DATABASE_INFO, info)
            exists = pb.DatabaseExistsRequest(database_name=database)
            calls.ask(f"of a {what} one", apis.DATABASE_EXISTS, exists)
        calls.ask_both("by name", apis.LIST_DATABASES, pb.ListDatabasesRequest())
        summary = pb.ListDatabasesRequest(include_summary=True)
        calls.ask_both("with summaries", apis.LIST_DATABASES, summary)
        calls.ask("without tables", apis.DROP_DATABASE, drop(described))
        calls.ask("of a missing one", apis.DROP_DATABASE, drop(described))
        calls.ask("of a missing one, ignored", apis.DROP_DATABASE, drop(described, ignore=True))
        calls.ask("with a table", apis.DROP_DATABASE, drop(name))
        calls.ask("with a table, cascading", apis.DROP_DATABASE, drop(name, cascade=True))


@scenario
def fields_of_tables(context: ScenarioContext) -> None:
    with raw_calls(context) as calls:
        _created(context, calls)
        _described(context, calls)
        _dropped(context, calls)


def _created(context: ScenarioContext, calls: RawCalls) -> None:
    path = context.create("plain", LOG, bucket_count=None)

    def create(question: str, table: TablePath, ignore: bool = False, **changes: object) -> None:
        request = pb.CreateTableRequest(
            table_path=table_path(table),
            table_json=json.dumps(_descriptor() | changes).encode(),
            ignore_if_exists=ignore,
        )
        calls.ask(question, apis.CREATE_TABLE, request)

    other = context.path("other")
    create("once more", path)
    create("once more, ignored", path, True)
    create("in a missing database", TablePath("missing", "t"))
    create("of a bad name", context.path("no.dots"))
    create("with an unknown option", other, properties={"table.unknown": "1"})
    create("with an option of a bad value", other, properties={"table.log.ttl": "never"})
    create("with a bucket key that is no column", other, bucket_key=["none"])
    engine = {"table.merge-engine": "aggregation"}
    create("of an aggregated table", other, schema=_AGGREGATED, properties=engine)


def _descriptor() -> dict[str, object]:
    """A table descriptor as Fluss's Java client writes it."""
    column = {"name": "id", "data_type": {"type": "BIGINT"}, "id": 0}
    return {
        "version": 1,
        "schema": {"version": 1, "columns": [column], "highest_field_id": 0},
        "partition_key": [],
        "bucket_key": [],
        "bucket_count": 1,
        "properties": {},
        "custom_properties": {},
    }


_AGGREGATED = {
    "version": 1,
    "columns": [
        {"name": "id", "data_type": {"type": "BIGINT", "nullable": False}, "id": 0},
        {
            "name": "total",
            "data_type": {"type": "BIGINT"},
            "agg_function": {"type": "sum"},
            "id": 1,
        },
    ],
    "primary_key": ["id"],
    "highest_field_id": 1,
}


def _described(context: ScenarioContext, calls: RawCalls) -> None:
    commented = Schema(
        (Column("id", t.BIGINT, 0, comment="the id"), Column("note", t.STRING, 1)), (), 1
    )
    context.client.admin.create_table(
        context.path("commented"),
        TableDescriptor(
            commented,
            bucket_keys=("id",),
            bucket_count=2,
            properties={"table.log.ttl": "1d"},
            custom_properties={"owner": "me"},
            comment="what it is",
        ),
    )
    for name, descriptor in _KINDS.items():
        context.client.admin.create_table(context.path(name), descriptor)
    context.create("keyed", KEYED, key=("id",))
    context.create("types", EVERY_TYPE)
    lake = context.create("lake", LOG, properties=LAKE)
    for name in ("plain", "commented", "keyed", "types", *_KINDS, lake.table, "missing"):
        path, kind = table_path(context.path(name)), "lake" if name == lake.table else name
        calls.ask_both(f"of {kind}", apis.GET_TABLE_INFO, pb.GetTableInfoRequest(table_path=path))
        schema = pb.GetTableSchemaRequest(table_path=path)
        calls.ask(f"of {kind}", apis.GET_TABLE_SCHEMA, schema)
        calls.ask(f"of {kind}", apis.TABLE_EXISTS, pb.TableExistsRequest(table_path=path))
        if name not in ("commented", *_KINDS):  # nothing has waited for their leaders
            calls.ask_both(f"of {kind}", apis.GET_METADATA, pb.MetadataRequest(table_path=[path]))
    plain = table_path(context.path("plain"))
    for schema_id in (1, 7):
        by_id = pb.GetTableSchemaRequest(table_path=plain, schema_id=schema_id)
        calls.ask(f"by id {schema_id}", apis.GET_TABLE_SCHEMA, by_id)


def _dropped(context: ScenarioContext, calls: RawCalls) -> None:
    path = table_path(context.path("plain"))

    def alter(
        question: str, table: pb.PbTablePath = path, ignore: bool = False, **change: Any
    ) -> None:
        request = pb.AlterTableRequest(table_path=table, ignore_if_not_exists=ignore, **change)
        calls.ask(question, apis.ALTER_TABLE, request)

    def option(key: str, value: str | None) -> list[pb.PbAlterConfig]:
        kind = values.ALTER_DELETE if value is None else values.ALTER_SET
        return [pb.PbAlterConfig(config_key=key, config_value=value, op_type=kind)]

    added = pb.PbAddColumn(
        column_name="more",
        data_type_json=b'{"type":"INTEGER"}',
        comment="added",
        column_position_type=values.POSITION_LAST,
    )
    alter("an option set", config_changes=option("table.datalake.freshness", "1min"))
    alter("an option deleted", config_changes=option("table.datalake.freshness", None))
    alter("a custom property set", config_changes=option("owner", "you"))
    alter("an unknown option", config_changes=option("table.unknown", "1"))
    alter("an option that stays", config_changes=option("table.log.format", "INDEXED"))
    alter("tiering switched on", config_changes=option("table.datalake.enabled", "true"))
    alter("tiering switched off", config_changes=option("table.datalake.enabled", "false"))
    alter("a column added", add_columns=[added])
    alter("a column added again", add_columns=[added])
    alter("a column dropped", drop_columns=[pb.PbDropColumn(column_name="note")])
    missing = table_path(context.path("missing"))
    alter("a missing table", missing, config_changes=option("owner", "you"))
    alter("a missing table, ignored", missing, True, config_changes=option("owner", "you"))
    calls.ask_both(
        "of an altered one", apis.GET_TABLE_INFO, pb.GetTableInfoRequest(table_path=path)
    )
    calls.ask("of an altered one", apis.GET_TABLE_SCHEMA, pb.GetTableSchemaRequest(table_path=path))
    for question, table, ignore in (
        ("of a table", path, False),
        ("once more", path, False),
        ("once more, ignored", path, True),
    ):
        request = pb.DropTableRequest(table_path=table, ignore_if_not_exists=ignore)
        calls.ask(question, apis.DROP_TABLE, request)


@scenario
def fields_of_partitions(context: ScenarioContext) -> None:
    path = context.create_partitioned("t", {"id": t.BIGINT, "day": t.STRING}, "day")
    where, admin = table_path(path), context.client.admin
    plain = table_path(context.create("plain", LOG))

    def spec(**values: str) -> pb.PbPartitionSpec:
        pairs = [pb.PbKeyValue(key=key, value=value) for key, value in values.items()]
        return pb.PbPartitionSpec(partition_key_values=pairs)

    with raw_calls(context) as calls:

        def change(
            question: str,
            create: bool,
            parts: pb.PbPartitionSpec,
            ignore: bool = False,
            table: pb.PbTablePath = where,
        ) -> None:
            kind = pb.CreatePartitionRequest if create else pb.DropPartitionRequest
            api = apis.CREATE_PARTITION if create else apis.DROP_PARTITION
            request = kind(table_path=table, partition_spec=parts, ignore_if_not_exists=ignore)
            calls.ask(question, api, request)

        def listed(question: str, table: pb.PbTablePath = where, **parts: str) -> None:
            request = pb.ListPartitionInfosRequest(table_path=table)
            if parts:
                request.partial_partition_spec.CopyFrom(spec(**parts))
            calls.ask(question, apis.LIST_PARTITION_INFOS, request)

        listed("of none")
        for day in ("a", "b"):
            change(f"of {day}", True, spec(day=day))
        change("of a again", True, spec(day="a"))
        change("of a again, ignored", True, spec(day="a"), True)
        change("of another key", True, spec(month="a"))
        change("of no key", True, spec())
        change("of a bad value", True, spec(day="a/b"))
        change("of a plain table", True, spec(day="a"), table=plain)
        listed("of two")
        listed("of one of them", day="a")
        listed("of no match", day="c")
        listed("by another key", month="a")
        listed("of a plain table", plain)
        listed("of a missing table", table_path(context.path("missing")))
        _metadata(context, calls, path)
        change("of a partition", False, spec(day="a"))
        change("once more", False, spec(day="a"))
        change("once more, ignored", False, spec(day="a"), True)
        change("of a plain table", False, spec(day="a"), table=plain)
    assert [p.name for p in admin.partitions(path)] == ["b"]


def _metadata(context: ScenarioContext, calls: RawCalls, path: TablePath) -> None:
    where = table_path(path)
    ids = sorted(p.partition_id for p in context.client.admin.partitions(path))

    def named(name: str) -> pb.PbPhysicalTablePath:
        return pb.PbPhysicalTablePath(
            database_name=path.database, table_name=path.table, partition_name=name
        )

    by_id = pb.MetadataRequest(table_path=[where], partitions_id=ids)
    for role in Role:
        calls.wait(
            apis.GET_METADATA,
            by_id,
            lambda answer: all(
                bucket.HasField("leader_id")
                for partition in answer.partition_metadata
                for bucket in partition.bucket_metadata
            ),
            role,
        )
    table = pb.MetadataRequest(table_path=[where])
    calls.ask_both("of a partitioned table", apis.GET_METADATA, table)
    calls.ask_both("of partitions by id", apis.GET_METADATA, by_id)
    by_path = pb.MetadataRequest(partitions_path=[named("a")])
    calls.ask_both("of a partition by path", apis.GET_METADATA, by_path)
    unknown = pb.MetadataRequest(table_path=[where], partitions_id=[NO_TABLE])
    calls.ask_both("of an unknown partition", apis.GET_METADATA, unknown)
    missing = pb.MetadataRequest(partitions_path=[named("c")])
    calls.ask_both("of a missing partition", apis.GET_METADATA, missing)
