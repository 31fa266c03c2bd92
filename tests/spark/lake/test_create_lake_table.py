"""`sluice create-lake-table`: lake tables that are there before any round."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from sluice import failpoints
from sluice.cli.main import cli
from sluice.client import Client, connect
from sluice.config import ClientConfig, Config, DatalakeConfig, ServerConfig, TieringConfig
from sluice.driver.lake_tables import NOT_REGISTERED, create_lake_tables
from sluice.driver.lakes.jvm import Jvm
from sluice.driver.local import tier_once
from sluice.errors import (
    ConfigurationError,
    LakeNotWritable,
    LakeRolledBack,
    LakeTableMismatch,
    LakeTableMissing,
    UnsupportedLakeOption,
)
from sluice.lake.iceberg.lake import IcebergLake
from sluice.model import Column, Schema, TableDescriptor, TablePath
from sluice.model import types as t
from sluice.server.cluster import EmbeddedCluster
from tests.spark.conftest import JARS

pytestmark = pytest.mark.spark
ORDERS, LOOSE = TablePath("shop", "orders"), TablePath("shop", "loose")
TIERED = {"table.datalake.enabled": "true", "table.datalake.freshness": "0s"}
ROWS = pa.table({"id": pa.array(range(7), pa.int64())})


@dataclass
class Shop:
    """A server with one tiered table and one that is not, and a lake that is empty at first."""

    client: Client
    config: Config
    jvm: Jvm

    def __post_init__(self) -> None:
        self.client.admin.create_database("shop")
        self.table(ORDERS, TIERED)
        self.table(LOOSE)

    @property
    def folder(self) -> Path:
        return Path(self.config.datalake.iceberg["warehouse"]) / "shop"

    def table(self, path: TablePath, properties: dict[str, str] | None = None) -> None:
        schema = Schema((Column("id", t.BIGINT, 0),), highest_field_id=0)
        descriptor = TableDescriptor(schema, bucket_count=2, properties=properties or {})
        self.client.admin.create_table(path, descriptor)

    def made(self, path: TablePath | None = None) -> dict[str, str]:
        """Outcome by table."""
        reports = create_lake_tables(self.config, path, self.jvm)
        return {report.table: report.error or report.outcome for report in reports}

    def tier(self, path: TablePath = ORDERS) -> str:
        with self.client.log_writer(path) as writer:
            writer.write(ROWS)
        return tier_once(self.config, path, jvm=self.jvm).outcome

    def columns(self) -> list[str]:
        with closing(IcebergLake(self.jvm.gateway, self.config.datalake.iceberg)) as lake:
            table = lake.load(ORDERS)
            assert table is not None
            return [field["name"] for field in table._columns.schema()["fields"]]

    def ran(self, *words: str) -> Result:
        """The command in this process, which starts a JVM of its own."""
        settings = {
            "SLUICE_CLIENT_BOOTSTRAP": self.config.client.bootstrap,
            "SLUICE_TIERING_JARS": JARS,
        }
        command = ["create-lake-table", "--warehouse", str(self.folder.parent), *words]
        return CliRunner().invoke(cli, command, env=settings)


@pytest.fixture
def shop(tmp_path: Path, jvm: Jvm) -> Iterator[Shop]:
    server = ServerConfig(data_dir=str(tmp_path / "server"), listen="grpc://127.0.0.1:0")
    lake = DatalakeConfig("iceberg", {"type": "hadoop", "warehouse": str(tmp_path / "lake")})
    with EmbeddedCluster(server) as cluster, connect(cluster.address) as client:
        config = Config(
            ClientConfig(cluster.address), datalake=lake, tiering=TieringConfig(jars=JARS)
        )
        yield Shop(client, config, jvm)


def test_missing_ones_are_created_and_rounds_continue_them(shop: Shop) -> None:
    assert shop.made() == {"shop.orders": "created"}
    assert shop.made() == {"shop.orders": "exists"}
    assert {path.name for path in shop.folder.iterdir()} == {"orders"}
    assert shop.tier() == "committed"
    assert shop.made() == {"shop.orders": "exists"}


def test_a_table_that_is_named_need_not_be_tiered(shop: Shop) -> None:
    [report] = create_lake_tables(shop.config, LOOSE, shop.jvm)
    assert (report.outcome, report.is_tiered) == ("created", False)
    shop.client.admin.set_options(LOOSE, TIERED)
    [report] = create_lake_tables(shop.config, LOOSE, shop.jvm)
    assert (report.outcome, report.is_tiered) == ("exists", True)
    assert shop.tier(LOOSE) == "committed"


def test_columns_that_the_table_has_got_since_are_added(shop: Shop) -> None:
    shop.made()
    shop.client.admin.add_columns(ORDERS, [Column("note", t.STRING, -1)])
    assert shop.made() == {"shop.orders": "exists"}
    assert shop.columns() == ["id", "note"]


def test_partition_fields_are_checked_first_and_kept_afterwards(shop: Shop) -> None:
    with pytest.raises(ConfigurationError, match="dayz is unknown; did you mean 'days'"):
        [*create_lake_tables(shop.config, ORDERS, shop.jvm, ["dayz(id)"])]

    def told(*fields: str) -> tuple[str, str]:
        [report] = create_lake_tables(shop.config, ORDERS, shop.jvm, fields)
        return report.outcome, report.note

    assert told("bucket(4, id)") == ("created", "")
    assert told("bucket(4, `id`)") == ("exists", "")
    kept = (
        "it exists, and keeps its partition fields [bucket[4](id)]: change them by ALTER TABLE in"
        " Spark SQL"
    )
    assert told("bucket(4, id)", "id") == ("exists", kept)
    [*create_lake_tables(shop.config, LOOSE, shop.jvm)]
    [report] = create_lake_tables(shop.config, LOOSE, shop.jvm, ["id"])
    assert report.note == "it exists without partition fields: add them by ALTER TABLE in Spark SQL"


def test_a_lake_table_that_another_process_creates_meanwhile_is_taken(shop: Shop) -> None:
    info = shop.client.admin.table_info(ORDERS)
    with closing(IcebergLake(shop.jvm.gateway, shop.config.datalake.iceberg)) as lake:
        assert lake.create(info).uuid == lake.create(info).uuid


def test_lakes_that_no_round_could_continue_are_left_alone(shop: Shop) -> None:
    shop.tier()
    aside = shop.folder.with_name("aside")
    shutil.move(shop.folder / "orders", aside)
    with pytest.raises(LakeTableMissing, match=r"sluice repair shop\.orders"):
        shop.made(ORDERS)
    assert not (shop.folder / "orders").exists()

    with closing(IcebergLake(shop.jvm.gateway, shop.config.datalake.iceberg)) as lake:
        lake.create(shop.client.admin.table_info(ORDERS))
    with pytest.raises(LakeRolledBack, match=r"sluice repair shop\.orders"):
        shop.made(ORDERS)

    shutil.rmtree(shop.folder / "orders")
    shutil.move(aside, shop.folder / "orders")
    shop.client.admin.drop_table(ORDERS)
    shop.table(ORDERS, TIERED)
    with pytest.raises(LakeTableMismatch, match="holds the rows of Fluss table id 0"):
        shop.made(ORDERS)
    made = shop.made()  # of all: the others are made
    assert made["shop.orders"].startswith("LakeTableMismatch: lake table shop.orders holds")


def test_a_snapshot_that_is_not_registered_is_noted(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failpoints, "_armed", {"round.lake_commit.after": ("raise", 1)})
    monkeypatch.setattr(failpoints, "_passages", {})
    with pytest.raises(RuntimeError, match="failpoint"):
        shop.tier()
    [report] = create_lake_tables(shop.config, ORDERS, shop.jvm)
    assert (report.outcome, report.note) == ("exists", NOT_REGISTERED)


def test_iceberg_has_to_be_able_to_store_the_table(shop: Shop) -> None:
    fields = tuple(Column(name, t.BIGINT.not_null(), i) for i, name in enumerate("ab"))
    wide = TableDescriptor(Schema(fields, ("a", "b"), 1), bucket_keys=("a",))
    shop.client.admin.create_table(TablePath("shop", "wide"), wide)
    assert shop.made(TablePath("shop", "wide")) == {"shop.wide": "created"}
    no_key = Schema((Column("a", t.FLOAT.not_null(), 0),), ("a",), 0)
    shop.client.admin.create_table(TablePath("shop", "floats"), TableDescriptor(no_key))
    with pytest.raises(UnsupportedLakeOption, match=r"table shop\.floats"):
        shop.made(TablePath("shop", "floats"))


@pytest.mark.slow
def test_what_the_command_prints(shop: Shop) -> None:
    ran = shop.ran("--all", "--format", "json")
    assert ran.exit_code == 0, ran.output
    orders = str(shop.folder / "orders")
    content: dict[str, object] = {"table": "shop.orders", "outcome": "created"}
    content["location"] = orders
    content |= {"layout": "clean", "is_tiered": True, "note": "", "error": ""}
    assert json.loads(ran.stdout) == {"complete": True, "tables": [content]}

    ran = shop.ran("shop.loose")
    assert ran.stdout.splitlines() == [
        f"shop.loose: created at {shop.folder / 'loose'} (clean)",
        "  it is not tiered yet: in Flink SQL, ALTER TABLE shop.loose SET"
        " ('table.datalake.enabled' = 'true'); in Python,"
        " client.admin.set_options(TablePath('shop', 'loose'),"
        " {'table.datalake.enabled': 'true'})",
    ]
    shutil.rmtree(shop.folder)
    shop.folder.write_text("no folder")
    ran = shop.ran("--all")
    assert ran.exit_code == 1
    assert ran.stdout.startswith("shop.orders: LakeNotWritable: create lake table shop.orders: ")


def test_a_lake_that_cannot_be_used_is_asked_for_one_table_only(shop: Shop, tmp_path: Path) -> None:
    shop.table(TablePath("shop", "second"), TIERED)
    (tmp_path / "file").write_text("in the way")
    lake = DatalakeConfig("iceberg", {"type": "hadoop", "warehouse": str(tmp_path / "file/lake")})
    config = replace(shop.config, datalake=lake)
    reports = []
    with pytest.raises(LakeNotWritable, match=r"shop\.orders: .*let this user write there, or"):
        reports += create_lake_tables(config, None, jvm=shop.jvm)
    assert reports == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "give either TABLE or --all"),
        (("shop.orders", "--all"), "give either TABLE or --all"),
        (("shop.*",), "'shop.*' is a pattern; give one name, or --all"),
        (("--all", "--warehouse", " "), "the path is empty; give a folder"),
    ],
)
def test_wrong_arguments(words: tuple[str, ...], said: str) -> None:
    ran = CliRunner().invoke(cli, ["create-lake-table", "--warehouse", "lake", *words])
    assert ran.exit_code == 2
    assert said in ran.stderr
