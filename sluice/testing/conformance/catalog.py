"""Databases, tables, schemas, partitions."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from sluice.model import Column, DataType, TablePath
from sluice.model import types as t
from sluice.testing.conformance.every_type import EVERY_TYPE
from sluice.testing.conformance.stage import LAKE, Stage, done, scenario


@scenario
def databases(stage: Stage) -> None:
    admin = stage.client.admin
    name, other = stage.database, f"{stage.database}_other"
    stage.ask("exists", lambda: admin.database_exists(name), True)
    stage.ask("listed", lambda: name in admin.list_databases(), True)
    stage.ask("created again", lambda: admin.create_database(name), "DatabaseAlreadyExist")
    stage.ask("created again, ignored", done(lambda: admin.create_database(name, True)), "done")
    stage.ask("of a bad name", lambda: admin.create_database("no.dots"), "InvalidDatabase")
    stage.ask("a missing one exists", lambda: admin.database_exists(other), False)
    stage.ask("tables of a missing one", lambda: admin.list_tables(other), "DatabaseNotExist")
    stage.ask("dropping a missing one", lambda: admin.drop_database(other), "DatabaseNotExist")
    stage.ask(
        "dropping a missing one, ignored",
        done(lambda: admin.drop_database(other, ignore_if_not_exists=True)),
        "done",
    )
    path = stage.create("t", {"id": t.INT})
    stage.ask("dropping one with a table", lambda: admin.drop_database(name), "DatabaseNotEmpty")
    stage.ask("dropping all", done(lambda: admin.drop_database(name, cascade=True)), "done")
    stage.ask(
        "dropped", lambda: (admin.database_exists(name), admin.table_exists(path)), (False,) * 2
    )


@scenario
def tables(stage: Stage) -> None:
    admin = stage.client.admin
    path = stage.create(
        "orders",
        {"id": t.BIGINT, "day": t.STRING, "note": t.STRING},
        partition_keys=("day",),
        bucket_keys=("id",),
        bucket_count=3,
        custom_properties={"owner": "shop"},
        comment="all orders",
    )
    descriptor = admin.table_info(path).descriptor
    stage.see(
        "columns",
        [(c.name, str(c.data_type)) for c in descriptor.schema.columns],
        [("id", "BIGINT"), ("day", "STRING"), ("note", "STRING")],
    )
    stage.see("column ids", [c.column_id for c in descriptor.schema.columns], [0, 1, 2])
    stage.see("keys", (descriptor.partition_keys, descriptor.bucket_keys), (("day",), ("id",)))
    stage.see("buckets", descriptor.bucket_count, 3)
    stage.see("comment", descriptor.comment, "all orders")
    stage.see("custom properties", dict(descriptor.custom_properties), {"owner": "shop"})
    stage.see("replication", descriptor.properties.get("table.replication.factor"), "1")
    stage.see("lake format", descriptor.properties.get("table.datalake.format"), "iceberg")
    stage.ask("listed", lambda: admin.list_tables(stage.database), ["orders"])
    stage.ask("exists", lambda: admin.table_exists(path), True)
    stage.ask("again", lambda: stage.create("orders", {"id": t.INT}), "TableAlreadyExist")
    stage.ask("again, ignored", done(lambda: admin.create_table(path, descriptor, True)), "done")
    lost = TablePath(f"{stage.database}_other", "t")
    stage.ask(
        "in a missing database", lambda: admin.create_table(lost, descriptor), "DatabaseNotExist"
    )
    one = {"id": t.INT}
    stage.ask("of a bad name", lambda: stage.create("no.dots", one), "InvalidTable")
    stage.ask(
        "bucket key missing", lambda: stage.create("b", one, bucket_keys=("x",)), "InvalidTable"
    )
    stage.ask(
        "partition key missing",
        lambda: stage.create("p", one, partition_keys=("x",)),
        "InvalidTable",
    )
    stage.ask("a system column", lambda: stage.create("s", {"__bucket": t.INT}), "InvalidTable")
    stage.ask(
        "an unknown property",
        lambda: stage.create("u", one, properties={"table.x": "1"}),
        "InvalidConfig",
    )
    stage.ask("no buckets", lambda: stage.create("n", one, bucket_count=0), "UnknownServerError")
    gone = stage.path("gone")
    stage.ask("a missing one", lambda: admin.table_info(gone), "TableNotExist")
    stage.ask("schema of a missing one", lambda: admin.schema(gone), "SchemaNotExist")
    stage.ask("dropping a missing one", lambda: admin.drop_table(gone), "TableNotExist")
    stage.ask(
        "dropping a missing one, ignored",
        done(lambda: admin.drop_table(gone, ignore_if_not_exists=True)),
        "done",
    )
    stage.ask("dropping", done(lambda: admin.drop_table(path)), "done")
    stage.ask("dropped", lambda: admin.table_exists(path), False)


@scenario
def schemas(stage: Stage) -> None:
    admin = stage.client.admin
    path = stage.create("t", EVERY_TYPE)
    kinds = [(name, str(kind)) for name, kind in EVERY_TYPE.items()]
    found = admin.table_info(path)
    stage.see("every type", [(c.name, str(c.data_type)) for c in found.schema.columns], kinds)
    stage.see("first schema id", found.schema_id, 1)

    def add(name: str, kind: DataType, comment: str | None = None) -> Callable[[], str]:
        return done(lambda: admin.add_columns(path, [Column(name, kind, -1, comment)]))

    stage.ask("adding a column", add("added", t.STRING, "later"), "done")
    newest = admin.table_info(path)
    last = newest.schema.columns[-1]
    stage.see("schema id then", newest.schema_id, 2)
    stage.see(
        "the added column",
        (last.name, str(last.data_type), last.column_id, last.comment),
        ("added", "STRING", len(EVERY_TYPE), "later"),
    )
    stage.see("latest schema", admin.schema(path).names, newest.schema.names)
    stage.see("first schema", admin.schema(path, 1).names, tuple(EVERY_TYPE))
    stage.ask("a schema that never was", lambda: admin.schema(path, 9).names, "SchemaNotExist")
    stage.ask("adding it again", add("added", t.STRING), "InvalidAlterTable")
    stage.ask("adding one that must not be null", add("n", t.INT.not_null()), "UnknownServerError")
    stage.ask("adding a system column", add("__offset", t.BIGINT), "done")
    gone = stage.path("gone")
    stage.ask(
        "adding to a missing table",
        lambda: admin.add_columns(gone, [Column("x", t.INT, -1)]),
        "TableNotExist",
    )
    stage.see("schema id at the end", admin.table_info(path).schema_id, 3)


@scenario
def partitions(stage: Stage) -> None:
    admin = stage.client.admin
    columns = {"id": t.BIGINT, "day": t.STRING}
    path = stage.create_partitioned("t", columns, "day")
    first, second = {"day": "2026-01-01"}, {"day": "2026-01-02"}

    def names() -> list[str]:
        return [partition.name for partition in admin.partitions(path)]

    stage.see("none at first", names(), [])
    stage.ask("creating one", done(lambda: admin.create_partition(path, first)), "done")
    stage.ask("again", lambda: admin.create_partition(path, first), "PartitionAlreadyExists")
    stage.ask("again, ignored", done(lambda: admin.create_partition(path, first, True)), "done")
    wrong = {"hour": "1"}
    stage.ask("of another key", lambda: admin.create_partition(path, wrong), "PartitionSpecInvalid")
    stage.ask("of no key", lambda: admin.create_partition(path, {}), "PartitionSpecInvalid")
    rows = pa.table({"id": [1, 2, 3], "day": ["2026-01-01", "2026-01-02", "2026-01-02"]})
    stage.ask("a row without partition", lambda: stage.append(path, rows), "PartitionNotExists")
    stage.append(path, rows, dynamic_partitions=True)
    stage.see("created by the writer", names(), ["2026-01-01", "2026-01-02"])
    for partition, count in zip(admin.partitions(path), (1, 2), strict=True):
        ends = admin.list_offsets(path, [0, 1], partition_id=partition.partition_id)
        stage.see(f"rows of {partition.name}", sum(ends.values()), count)
    stage.ask("dropping one", done(lambda: admin.drop_partition(path, second)), "done")
    stage.ask("again dropping", lambda: admin.drop_partition(path, second), "PartitionNotExists")
    stage.ask(
        "again dropping, ignored", done(lambda: admin.drop_partition(path, second, True)), "done"
    )
    stage.see("left", names(), ["2026-01-01"])
    plain = stage.create("plain", columns)
    stage.ask("of a plain table", lambda: admin.partitions(plain), "TableNotPartitioned")
    stage.ask(
        "creating one in a plain table",
        lambda: admin.create_partition(plain, first),
        "TableNotPartitioned",
    )
    gone = stage.path("gone")
    stage.ask("of a missing table", lambda: admin.partitions(gone), "TableNotExist")


@scenario
def options(stage: Stage) -> None:
    """Options that a table can change, and what tiering has to do with its columns."""
    admin = stage.client.admin
    path = stage.create("t", {"id": t.INT}, properties=LAKE)
    freshness, enabled = "table.datalake.freshness", "table.datalake.enabled"

    def put(key: str, value: str | None) -> Callable[[], str]:
        return done(lambda: admin.set_options(path, {key: value}))

    def found(key: str) -> str | None:
        return admin.table_info(path).descriptor.properties.get(key)

    def add(name: str) -> Callable[[], str]:
        return done(lambda: admin.add_columns(path, [Column(name, t.STRING, -1)]))

    stage.ask("freshness", put(freshness, "5min"), "done")
    stage.see("freshness then", found(freshness), "5min")
    stage.ask("freshness by default", put(freshness, None), "done")
    stage.see("freshness at last", found(freshness), None)
    stage.ask("lake format", put("table.datalake.format", "paimon"), "InvalidAlterTable")
    stage.ask("a custom one", put("owner", "shop"), "done")
    stage.see(
        "custom ones", dict(admin.table_info(path).descriptor.custom_properties), {"owner": "shop"}
    )
    gone = stage.path("gone")
    stage.ask(
        "of a missing table", lambda: admin.set_options(gone, {freshness: "1s"}), "TableNotExist"
    )
    stage.ask("a column while it is tiered", add("first"), "UnknownServerError")
    stage.ask("tiering off", put(enabled, "false"), "done")
    stage.ask("a column then", add("second"), "done")
    stage.ask("tiering on again", put(enabled, "true"), "LakeTableAlreadyExist")
