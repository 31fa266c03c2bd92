"""Scenarios about databases, tables, schemas and partitions."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from sluice.model import Column, DataType, TablePath
from sluice.model import types as t
from tests.conformance.every_type import EVERY_TYPE
from tests.conformance.scenario import LAKE, ScenarioContext, done, scenario


@scenario
def databases(context: ScenarioContext) -> None:
    admin = context.client.admin
    name, other = context.database, f"{context.database}_other"
    context.expect_call("exists", lambda: admin.database_exists(name), True)
    context.expect_call("the default one", lambda: admin.database_exists("fluss"), True)
    context.expect_call("listed", lambda: name in admin.list_databases(), True)
    context.expect_call(
        "created again", lambda: admin.create_database(name), "DatabaseAlreadyExist"
    )
    context.expect_call(
        "created again, ignored", done(lambda: admin.create_database(name, True)), "done"
    )
    context.expect_call(
        "of a bad name", lambda: admin.create_database("no.dots"), "InvalidDatabase"
    )
    context.expect_call("a missing one exists", lambda: admin.database_exists(other), False)
    context.expect_call(
        "tables of a missing one", lambda: admin.list_tables(other), "DatabaseNotExist"
    )
    context.expect_call(
        "dropping a missing one", lambda: admin.drop_database(other), "DatabaseNotExist"
    )
    context.expect_call(
        "dropping a missing one, ignored",
        done(lambda: admin.drop_database(other, ignore_if_not_exists=True)),
        "done",
    )
    path = context.create("t", {"id": t.INT})
    context.expect_call(
        "dropping one with a table", lambda: admin.drop_database(name), "DatabaseNotEmpty"
    )
    context.expect_call(
        "dropping all", done(lambda: admin.drop_database(name, cascade=True)), "done"
    )
    context.expect_call(
        "dropped", lambda: (admin.database_exists(name), admin.table_exists(path)), (False,) * 2
    )


@scenario
def tables(context: ScenarioContext) -> None:
    admin = context.client.admin
    path = context.create(
        "orders",
        {"id": t.BIGINT, "day": t.STRING, "note": t.STRING},
        partition_keys=("day",),
        bucket_keys=("id",),
        bucket_count=3,
        custom_properties={"owner": "shop"},
        comment="all orders",
    )
    descriptor = admin.table_info(path).descriptor
    context.expect(
        "columns",
        [(c.name, str(c.data_type)) for c in descriptor.schema.columns],
        [("id", "BIGINT"), ("day", "STRING"), ("note", "STRING")],
    )
    context.expect("column ids", [c.column_id for c in descriptor.schema.columns], [0, 1, 2])
    context.expect("keys", (descriptor.partition_keys, descriptor.bucket_keys), (("day",), ("id",)))
    context.expect("buckets", descriptor.bucket_count, 3)
    context.expect("comment", descriptor.comment, "all orders")
    context.expect("custom properties", dict(descriptor.custom_properties), {"owner": "shop"})
    context.expect("replication", descriptor.properties.get("table.replication.factor"), "1")
    context.expect("lake format", descriptor.properties.get("table.datalake.format"), "iceberg")
    context.expect_call("listed", lambda: admin.list_tables(context.database), ["orders"])
    context.expect_call("exists", lambda: admin.table_exists(path), True)
    context.expect_call(
        "again", lambda: context.create("orders", {"id": t.INT}), "TableAlreadyExist"
    )
    context.expect_call(
        "again, ignored", done(lambda: admin.create_table(path, descriptor, True)), "done"
    )
    lost = TablePath(f"{context.database}_other", "t")
    context.expect_call(
        "in a missing database", lambda: admin.create_table(lost, descriptor), "DatabaseNotExist"
    )
    one = {"id": t.INT}
    context.expect_call("of a bad name", lambda: context.create("no.dots", one), "InvalidTable")
    context.expect_call(
        "bucket key missing", lambda: context.create("b", one, bucket_keys=("x",)), "InvalidTable"
    )
    context.expect_call(
        "partition key missing",
        lambda: context.create("p", one, partition_keys=("x",)),
        "InvalidTable",
    )
    context.expect_call(
        "a system column", lambda: context.create("s", {"__bucket": t.INT}), "InvalidTable"
    )
    context.expect_call(
        "an unknown property",
        lambda: context.create("u", one, properties={"table.x": "1"}),
        "InvalidConfig",
    )
    context.expect_call(
        "no buckets", lambda: context.create("n", one, bucket_count=0), "UnknownServerError"
    )
    gone = context.path("gone")
    context.expect_call("a missing one", lambda: admin.table_info(gone), "TableNotExist")
    context.expect_call("schema of a missing one", lambda: admin.schema(gone), "SchemaNotExist")
    context.expect_call("dropping a missing one", lambda: admin.drop_table(gone), "TableNotExist")
    context.expect_call(
        "dropping a missing one, ignored",
        done(lambda: admin.drop_table(gone, ignore_if_not_exists=True)),
        "done",
    )
    context.expect_call("dropping", done(lambda: admin.drop_table(path)), "done")
    context.expect_call("dropped", lambda: admin.table_exists(path), False)


@scenario
def schemas(context: ScenarioContext) -> None:
    admin = context.client.admin
    path = context.create("t", EVERY_TYPE)
    kinds = [(name, str(kind)) for name, kind in EVERY_TYPE.items()]
    found = admin.table_info(path)
    context.expect("every type", [(c.name, str(c.data_type)) for c in found.schema.columns], kinds)
    context.expect("first schema id", found.schema_id, 1)

    def add(name: str, kind: DataType, comment: str | None = None) -> Callable[[], str]:
        return done(lambda: admin.add_columns(path, [Column(name, kind, -1, comment)]))

    context.expect_call("adding a column", add("added", t.STRING, "later"), "done")
    newest = admin.table_info(path)
    last = newest.schema.columns[-1]
    context.expect("schema id then", newest.schema_id, 2)
    context.expect(
        "the added column",
        (last.name, str(last.data_type), last.column_id, last.comment),
        ("added", "STRING", len(EVERY_TYPE), "later"),
    )
    context.expect("latest schema", admin.schema(path).names, newest.schema.names)
    context.expect("first schema", admin.schema(path, 1).names, tuple(EVERY_TYPE))
    context.expect_call(
        "a schema that never was", lambda: admin.schema(path, 9).names, "SchemaNotExist"
    )
    context.expect_call("adding it again", add("added", t.STRING), "InvalidAlterTable")
    context.expect_call(
        "adding one that must not be null", add("n", t.INT.not_null()), "UnknownServerError"
    )
    context.expect_call("adding a system column", add("__offset", t.BIGINT), "done")
    gone = context.path("gone")
    context.expect_call(
        "adding to a missing table",
        lambda: admin.add_columns(gone, [Column("x", t.INT, -1)]),
        "TableNotExist",
    )
    context.expect("schema id at the end", admin.table_info(path).schema_id, 3)


@scenario
def partitions(context: ScenarioContext) -> None:
    admin = context.client.admin
    columns = {"id": t.BIGINT, "day": t.STRING}
    path = context.create_partitioned("t", columns, "day")
    first, second = {"day": "2026-01-01"}, {"day": "2026-01-02"}

    def names() -> list[str]:
        return [partition.name for partition in admin.partitions(path)]

    context.expect("none at first", names(), [])
    context.expect_call("creating one", done(lambda: admin.create_partition(path, first)), "done")
    context.expect_call(
        "again", lambda: admin.create_partition(path, first), "PartitionAlreadyExists"
    )
    context.expect_call(
        "again, ignored", done(lambda: admin.create_partition(path, first, True)), "done"
    )
    wrong = {"hour": "1"}
    context.expect_call(
        "of another key", lambda: admin.create_partition(path, wrong), "PartitionSpecInvalid"
    )
    context.expect_call(
        "of no key", lambda: admin.create_partition(path, {}), "PartitionSpecInvalid"
    )
    rows = pa.table({"id": [1, 2, 3], "day": ["2026-01-01", "2026-01-02", "2026-01-02"]})
    context.expect_call(
        "a row without partition", lambda: context.append(path, rows), "PartitionNotExists"
    )
    context.append(path, rows, dynamic_partitions=True)
    context.expect("created by the writer", names(), ["2026-01-01", "2026-01-02"])
    for partition, count in zip(admin.partitions(path), (1, 2), strict=True):
        ends = admin.list_offsets(path, [0, 1], partition_id=partition.partition_id)
        context.expect(f"rows of {partition.name}", sum(ends.values()), count)
    context.expect_call("dropping one", done(lambda: admin.drop_partition(path, second)), "done")
    context.expect_call(
        "again dropping", lambda: admin.drop_partition(path, second), "PartitionNotExists"
    )
    context.expect_call(
        "again dropping, ignored", done(lambda: admin.drop_partition(path, second, True)), "done"
    )
    context.expect("left", names(), ["2026-01-01"])
    plain = context.create("plain", columns)
    context.expect_call("of a plain table", lambda: admin.partitions(plain), "TableNotPartitioned")
    context.expect_call(
        "creating one in a plain table",
        lambda: admin.create_partition(plain, first),
        "TableNotPartitioned",
    )
    gone = context.path("gone")
    context.expect_call("of a missing table", lambda: admin.partitions(gone), "TableNotExist")


@scenario
def options(context: ScenarioContext) -> None:
    """The options of a table that can change, and how tiering limits column changes."""
    admin = context.client.admin
    path = context.create("t", {"id": t.INT}, properties=LAKE)
    freshness, enabled = "table.datalake.freshness", "table.datalake.enabled"

    def put(key: str, value: str | None) -> Callable[[], str]:
        return done(lambda: admin.set_options(path, {key: value}))

    def found(key: str) -> str | None:
        return admin.table_info(path).descriptor.properties.get(key)

    def add(name: str) -> Callable[[], str]:
        return done(lambda: admin.add_columns(path, [Column(name, t.STRING, -1)]))

    context.expect_call("freshness", put(freshness, "5min"), "done")
    context.expect("freshness then", found(freshness), "5min")
    context.expect_call("freshness by default", put(freshness, None), "done")
    context.expect("freshness at last", found(freshness), None)
    context.expect_call("lake format", put("table.datalake.format", "paimon"), "InvalidAlterTable")
    context.expect_call("a custom one", put("owner", "shop"), "done")
    context.expect(
        "custom ones", dict(admin.table_info(path).descriptor.custom_properties), {"owner": "shop"}
    )
    gone = context.path("gone")
    context.expect_call(
        "of a missing table", lambda: admin.set_options(gone, {freshness: "1s"}), "TableNotExist"
    )
    context.expect_call("a column while it is tiered", add("first"), "UnknownServerError")
    context.expect_call("tiering off", put(enabled, "false"), "done")
    context.expect_call("a column then", add("second"), "done")
    context.expect_call("tiering on again", put(enabled, "true"), "LakeTableAlreadyExist")


@scenario
def properties(context: ScenarioContext) -> None:
    """What a cluster adds to the properties of a table, and what clients get in addition."""
    admin, one = context.client.admin, {"id": t.INT.not_null()}
    enabled, warehouse = "table.datalake.enabled", "table.datalake.iceberg.warehouse"
    own = {"table.replication.factor": "1", "table.datalake.format": "iceberg"}
    lake = {"table.datalake.iceberg.type": "hadoop", warehouse: "its folder"}

    def found(path: TablePath) -> dict[str, str]:
        properties = dict(admin.table_info(path).descriptor.properties)
        return properties | ({warehouse: "its folder"} if warehouse in properties else {})

    context.expect("of a log table", found(context.create("log", one)), own)
    context.expect(
        "of a primary-key table",
        found(context.create("keyed", one, key=("id",))),
        {**own, "table.kv.format-version": "2"},
    )
    tiered = context.create("tiered", one, properties={enabled: "true"})
    context.expect("of a tiered table", found(tiered), {**own, enabled: "true", **lake})
    admin.set_options(tiered, {enabled: "false"})
    context.expect("of one that is no longer tiered", found(tiered), {**own, enabled: "false"})
    context.expect_call(
        "a table with the lake's options",
        lambda: context.create("copy", one, properties=lake),
        "InvalidConfig",
    )
