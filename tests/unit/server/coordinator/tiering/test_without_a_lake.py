"""A server without a lake refuses nothing on the lake's behalf, and tiers nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from sluice.client import connect
from sluice.client.client import Client
from sluice.config import DatalakeConfig, ServerConfig
from sluice.errors import ConfigurationError, InvalidAlterTable, InvalidTable
from sluice.formats.keys.bucketing import bucket_numbers
from sluice.formats.keys.keys import encode_key
from sluice.formats.types.types import arrow_schema
from sluice.model import Column, DataType, Schema, TableDescriptor, TablePath, TypeRoot
from sluice.model import types as t
from sluice.server.cluster import EmbeddedCluster
from tests.conformance.every_type import EVERY_TYPE, every_value

ENABLED = {"table.datalake.enabled": "true"}
PATH = TablePath("shop", "orders")
PLAIN = TableDescriptor(Schema((Column("id", t.BIGINT.not_null(), 0),), ("id",), 0))
NESTED = ("ARRAY", "MAP", "ROW")
KEY_TYPES = {name: kind for name, kind in EVERY_TYPE.items() if kind.root.name not in NESTED}

Serving = Callable[..., AbstractContextManager[Client]]


@pytest.fixture
def serving(tmp_path: Path) -> Serving:
    """Starts a server on the same data directory with a lake format."""

    @contextmanager
    def served(lake: str, enabled: str = "") -> Iterator[Client]:
        config = ServerConfig(str(tmp_path / "data"), listen="grpc://127.0.0.1:0")
        with (
            EmbeddedCluster(config, datalake=DatalakeConfig(lake, enabled=enabled)) as cluster,
            connect(cluster.address) as client,
        ):
            client.admin.create_database(PATH.database, ignore_if_exists=True)
            yield client

    return served


def test_a_key_of_every_type_that_fluss_allows(serving: Serving) -> None:
    columns = tuple(Column(n, k.not_null(), i) for i, (n, k) in enumerate(KEY_TYPES.items()))
    schema = Schema(
        (*columns, Column("value", t.INT, len(columns))), tuple(KEY_TYPES), len(columns)
    )
    given = every_value().slice(0, 1).select(list(KEY_TYPES))
    with serving("none") as client:
        client.admin.create_table(PATH, TableDescriptor(schema, bucket_count=7))
        info = client.admin.table_info(PATH)
        assert info.datalake_format is None
        with client.kv_writer(PATH) as writer:
            writer.upsert(given.append_column("value", pa.array([1], pa.int32())))
        assert client.lookup(PATH, given).column("value").to_pylist() == [1]
        keys = [c.name for c in columns]
        batch = given.cast(arrow_schema(Schema(columns))).to_batches()[0]
        encoded = encode_key(batch, keys, schema, None)
        (bucket,) = bucket_numbers(encoded, 7, None).tolist()
        ends = client.admin.list_offsets(PATH)
        assert ends == {number: int(number == bucket) for number in range(7)}


def test_partition_keys_need_not_be_texts(serving: Serving) -> None:
    named = [n for n in KEY_TYPES if n not in ("f_decimal", "f_string")]  # no name for "größe"
    with serving("none") as client:
        for name in named:
            path = TablePath("shop", name)
            columns = Column("k", EVERY_TYPE[name], 0), Column("n", t.INT, 1)
            schema = Schema(columns, highest_field_id=1)
            client.admin.create_table(path, TableDescriptor(schema, partition_keys=("k",)))
            rows = every_value().select([name]).rename_columns(["k"]).drop_null()
            with client.log_writer(path, dynamic_partitions=True) as writer:
                writer.write(rows)
            stored = 0
            for partition in client.admin.partitions(path):
                ends = client.admin.list_offsets(path, partition_id=partition.partition_id)
                stored += sum(ends.values())
            assert stored == len(rows), name


def test_several_bucket_keys_of_a_log_table(serving: Serving) -> None:
    schema = Schema((Column("a", t.BOOLEAN, 0), Column("b", t.DOUBLE, 1)), highest_field_id=1)
    keyed = TableDescriptor(schema, bucket_keys=("a", "b"), bucket_count=3)
    with serving("none") as client:
        client.admin.create_table(PATH, keyed)
        with client.log_writer(PATH) as writer:
            writer.write(pa.table({"a": [True] * 5, "b": [1.5] * 5}))
        assert sorted(client.admin.list_offsets(PATH).values()) == [0, 0, 5]
        nested = Schema(
            (Column("k", DataType(TypeRoot.ARRAY, element=t.INT), 0),), highest_field_id=0
        )
        with pytest.raises(InvalidTable, match="which a key cannot have"):
            client.admin.create_table(
                TablePath("shop", "nested"), TableDescriptor(nested, bucket_keys=("k",))
            )
        with pytest.raises(InvalidTable, match="cannot write into a partition's name"):
            client.admin.create_table(
                TablePath("shop", "nested"), TableDescriptor(nested, partition_keys=("k",))
            )


def test_nothing_can_be_tiered_without_a_lake(serving: Serving) -> None:
    with serving("none") as client:
        with pytest.raises(InvalidTable, match="this server has no lake"):
            client.admin.create_table(PATH, replace(PLAIN, properties=ENABLED))
        with pytest.raises(InvalidTable, match="this server has no lake"):
            both = ENABLED | {"table.datalake.format": "iceberg"}
            client.admin.create_table(PATH, replace(PLAIN, properties=both))
        client.admin.create_table(PATH, PLAIN)
        with pytest.raises(InvalidAlterTable, match="created without a lake"):
            client.admin.set_options(PATH, ENABLED)
        client.admin.set_options(PATH, {"table.datalake.freshness": "1 min", "owner": "me"})
        assert not client.admin.table_info(PATH).datalake_enabled


def test_a_table_made_without_a_lake_cannot_be_tiered_later(serving: Serving) -> None:
    """As Fluss has it: its keys and buckets stay those of no lake format."""
    with serving("none") as client:
        client.admin.create_table(PATH, PLAIN)
    with serving("iceberg") as client:
        for change in (ENABLED, {"table.datalake.enabled": "false"}):
            with pytest.raises(InvalidAlterTable, match="created without a lake"):
                client.admin.set_options(PATH, change)
        assert client.admin.table_info(PATH).datalake_format is None
        later = TablePath("shop", "later")
        client.admin.create_table(later, replace(PLAIN, properties=ENABLED))
        assert client.admin.table_info(later).datalake_enabled


def test_a_table_may_name_the_format_of_a_later_lake(serving: Serving) -> None:
    named = replace(PLAIN, properties={"table.datalake.format": "iceberg"})
    with serving("none") as client:
        client.admin.create_table(PATH, named)
        with pytest.raises(InvalidAlterTable, match="this server has no lake"):
            client.admin.set_options(PATH, ENABLED)
        two = Schema((*PLAIN.schema.columns, Column("b", t.INT.not_null(), 1)), ("id", "b"), 1)
        with pytest.raises(InvalidTable, match="one key column"):
            client.admin.create_table(TablePath("shop", "two"), replace(named, schema=two))
    with serving("iceberg") as client:
        client.admin.set_options(PATH, ENABLED)
        assert client.admin.table_info(PATH).datalake_enabled


def test_partition_keys_of_a_lake_table_are_texts(serving: Serving) -> None:
    schema = Schema((Column("day", t.DATE, 0), Column("n", t.INT, 1)), highest_field_id=1)
    by_day = TableDescriptor(schema, partition_keys=("day",))
    with serving("iceberg") as client:
        with pytest.raises(InvalidTable, match="partition key day has type DATE, but only"):
            client.admin.create_table(PATH, replace(by_day, properties=ENABLED))
        client.admin.create_table(PATH, by_day)
        with pytest.raises(InvalidAlterTable, match="partition key day has type DATE, but only"):
            client.admin.set_options(PATH, ENABLED)


def test_a_table_of_another_lake_format_is_never_tiered(serving: Serving) -> None:
    """A server without a lake takes each format; its buckets are not those of a later lake."""
    with serving("none") as client:
        named = replace(PLAIN, properties={"table.datalake.format": "paimon"})
        client.admin.create_table(PATH, named)
    with serving("iceberg") as client:
        said = r"its table\.datalake\.format is 'paimon', and this server's lake has .* 'iceberg'"
        with pytest.raises(InvalidAlterTable, match=said):
            client.admin.set_options(PATH, ENABLED)
        client.admin.set_options(PATH, {"owner": "shop"})


@pytest.mark.parametrize("lake", ["paimon", "lance", "parquet", "Iceberg", ""])
def test_another_lake_format_stops_the_start(tmp_path: Path, lake: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"datalake\.format='{lake}' is not supported"):
        EmbeddedCluster(ServerConfig(str(tmp_path)), datalake=DatalakeConfig(lake))


LOG = TableDescriptor(Schema((Column("id", t.BIGINT, 0),), highest_field_id=0))


def test_a_log_table_without_a_bucket_key_can_be_tiered_later(serving: Serving) -> None:
    """Its rows may be in any bucket, whatever the format (apache/fluss PR 2973)."""
    with serving("none") as client:
        client.admin.create_table(PATH, LOG)
        keyed = TablePath("shop", "keyed")
        client.admin.create_table(keyed, replace(LOG, bucket_keys=("id",)))
    with serving("iceberg") as client:
        client.admin.set_options(PATH, ENABLED)
        info = client.admin.table_info(PATH)
        assert (info.datalake_enabled, info.datalake_format) == (True, "iceberg")
        with pytest.raises(InvalidAlterTable, match="created without a lake"):
            client.admin.set_options(keyed, ENABLED)


def test_a_lake_that_is_not_enabled_binds_new_tables_to_its_format(serving: Serving) -> None:
    """``datalake.enabled`` of Fluss 1.0 (apache/fluss PR 2924)."""
    with serving("iceberg", "false") as client:
        with pytest.raises(InvalidTable, match=r"this server has datalake\.enabled=false"):
            client.admin.create_table(PATH, replace(PLAIN, properties=ENABLED))
        client.admin.create_table(PATH, PLAIN)
        assert client.admin.table_info(PATH).datalake_format == "iceberg"
        with pytest.raises(InvalidAlterTable, match="tables are bound to iceberg, and tiered once"):
            client.admin.set_options(PATH, ENABLED)
    with serving("iceberg", "true") as client:
        client.admin.set_options(PATH, ENABLED)
        assert client.admin.table_info(PATH).datalake_enabled


@pytest.mark.parametrize(
    ("lake_format", "enabled", "said"),
    [
        ("none", "true", "datalake.enabled is true, but datalake.format is none"),
        ("iceberg", "yes", "datalake.enabled is 'yes': use true or false"),
    ],
)
def test_a_lake_that_cannot_be_switched_so_is_refused(
    lake_format: str, enabled: str, said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        DatalakeConfig(lake_format, enabled=enabled)


@pytest.mark.parametrize("option", ["table.datalake.database-name", "table.datalake.table-name"])
def test_an_iceberg_table_has_its_own_name_in_the_lake(serving: Serving, option: str) -> None:
    """As in Fluss 1.0: other names are Paimon's alone (apache/fluss 4251)."""
    named = {option: "other"}
    with serving("iceberg") as client:
        with pytest.raises(InvalidTable, match=f"{option} is not supported for Iceberg"):
            client.admin.create_table(PATH, replace(LOG, properties=named))
        client.admin.create_table(PATH, LOG)
        with pytest.raises(InvalidAlterTable):
            client.admin.set_options(PATH, named)
    with serving("none") as client:
        paimon = {**named, "table.datalake.format": "paimon"}
        client.admin.create_table(TablePath("shop", "p"), replace(LOG, properties=paimon))
