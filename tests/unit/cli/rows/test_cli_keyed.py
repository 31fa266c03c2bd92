"""Tables with a primary key on the command line: create, upsert, delete, look up, snapshots."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from sluice.cli.main import cli
from sluice.client import connect
from sluice.config import ServerConfig
from sluice.model import TablePath
from sluice.server.cluster import EmbeddedCluster

STOCK = "item STRING, n INT, price DECIMAL(10, 2), PRIMARY KEY (item)"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    folder = tmp_path_factory.mktemp("keyed")
    config = ServerConfig(
        data_dir=str(folder), listen="grpc://127.0.0.1:0", kv_snapshot_interval_ms=0
    )
    with EmbeddedCluster(config) as cluster:
        yield cluster


def run(cluster: EmbeddedCluster, *arguments: str, fails: int = 0) -> str:
    result = CliRunner().invoke(cli, [*arguments, "--bootstrap", cluster.address])
    assert result.exit_code == fails, result.output
    assert "Traceback" not in result.output
    return result.output


def rows(cluster: EmbeddedCluster, *arguments: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(
        run(cluster, "lookup", *arguments, "--format", "json")
    )
    return found


def csv(folder: Path, text: str) -> str:
    path = folder / "rows.csv"
    path.write_text(text)
    return str(path)


def test_a_table_is_filled_changed_and_looked_up(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    made = run(cluster, "create-table", "shop.stock", "--schema", STOCK, "--buckets", "2")
    assert made.endswith("2 buckets, primary key item, will be tiered as Iceberg\n")
    assert made.count("\n") == 1, "and nothing of what the server logs"
    assert run(cluster, "lookup", "shop.stock") == "shop.stock has no rows\n"
    file = csv(tmp_path, "item,n,price\npen,3,1.20\nink,1,7.50\ncap,9,\n")
    assert "3 rows upserted" in run(cluster, "append", "shop.stock", file)
    file = csv(tmp_path, "item,n\npen,30\nbag,5\n")
    assert run(cluster, "append", "shop.stock", file, fails=1).endswith(
        "line 1: column price is missing. The file has item, n; --columns item,n writes these"
        " columns alone\n"
    )
    other = csv(tmp_path, "n,prices\n1,2\n")
    said = run(cluster, "append", "shop.stock", other, fails=1)
    assert "line 1: the table has no column 'prices'; did you mean 'price'?" in said
    assert "--columns" not in said
    file = csv(tmp_path, "item,n\npen,30\nbag,5\n")
    told = run(cluster, "append", "shop.stock", file, "--columns", "item, n")
    assert "2 rows upserted" in told
    assert rows(cluster, "shop.stock", "item=pen") == [{"item": "pen", "n": 30, "price": "1.20"}]
    assert rows(cluster, "shop.stock", "item=bag") == [{"item": "bag", "n": 5, "price": None}]
    file = csv(tmp_path, "n,item\n0,ink\n0,nobody\n")
    told = run(cluster, "delete", "shop.stock", file)
    assert "2 deletes sent" in told
    assert f"note: {file}: ignored columns: n\n" in told
    assert {row["item"] for row in rows(cluster, "shop.stock")} == {"pen", "cap", "bag"}
    assert len(rows(cluster, "shop.stock", "--limit", "2")) == 2
    shown = run(cluster, "lookup", "shop.stock", "item=pen").split()
    assert shown[:3] == ["item", "n", "price"]
    assert shown[-3:] == ["pen", "30", "1.20"]


def test_what_is_not_there_or_cannot_be_asked(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    run(cluster, "create-table", "shop.asked", "--schema", "id BIGINT, PRIMARY KEY (id)")
    for arguments, code, told in (
        (("id=7",), 1, "shop.asked has no row with id=7"),
        (("id=x",), 2, "column id: expected BIGINT NOT NULL, found 'x'; write a whole"),
        (("n=1",), 2, "n is not in the primary key; the primary key is (id)"),
        (("id=1", "id=1"), 2, "'id=1': column id is given twice"),
        (("--key", "id=1"), 2, "no such option '--key'; see `sluice lookup --help`"),
        (("--limt", "1"), 2, "no such option '--limt'; did you mean '--limit'?"),
        (("id=1", "--limit", "3"), 2, "cannot be combined with a key"),
        (("--limit", "0"), 2, "--limit: '0' is not a whole number, 1 to 2147483647"),
        (("--partition", "eu"), 1, "shop.asked has no partition eu"),
    ):
        assert told in run(cluster, "lookup", "shop.asked", *arguments, fails=code)
    run(cluster, "create-table", "shop.log", "--schema", "id BIGINT")
    file = csv(tmp_path, "id\n1\n")
    no_key = "sluice: NonPrimaryKeyTable: table shop.log has no primary key: "
    assert run(cluster, "lookup", "shop.log", "id=1", fails=1) == (
        f"{no_key}`sluice tier` copies its rows to the lake, `sluice sql` shows them\n"
    )
    assert run(cluster, "delete", "shop.log", file, fails=1) == (
        f"{no_key}`sluice append` adds rows to its log\n"
    )
    told = run(cluster, "append", "shop.log", file, "--columns", "id", fails=2)
    assert "shop.log has no primary key" in told
    told = run(cluster, "append", "shop.asked", file, "--columns", "colour", fails=2)
    assert "--columns: no column 'colour'; the columns are id" in told
    told = run(
        cluster, "create-table", "shop.x", "--schema", "a INT", "--primary-key", "b", fails=2
    )
    assert "--primary-key: no column 'b'; the columns are a" in told
    words = ("create-table", "shop.x", "--schema", "a DOUBLE", "--primary-key", "a")
    told = run(cluster, *words, fails=1)
    assert told.endswith("use DECIMAL or an integer type; or use --no-datalake\n")


def test_partitions_prefixes_and_snapshots(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    data = pa.table(
        {
            "region": ["eu", "eu", "us"],
            "customer": ["ann", "ann", "bob"],
            "id": [1, 2, 3],
            "day": pa.array([0, 1, None], pa.date32()),
        }
    )
    pq.write_table(data, tmp_path / "orders.parquet")
    file = str(tmp_path / "orders.parquet")
    options = ["--primary-key", "region,customer,id", "--partition-by", "region"]
    options += ["--bucket-key", "customer", "--no-datalake"]
    run(cluster, "create-table", "shop.orders", "--like", file, *options)
    told = run(cluster, "append", "shop.orders", file, fails=1)
    assert "has no partition region=eu; --create-partitions creates it" in told
    assert "--create-partitions" in told
    assert "dynamic_partitions" not in told
    run(cluster, "append", "shop.orders", file, "--create-partitions")
    found = rows(cluster, "shop.orders", "region=eu", "customer=ann")
    assert [(row["id"], row["day"]) for row in found] == [(1, "1970-01-01"), (2, "1970-01-02")]
    assert rows(cluster, "shop.orders", "region=us", "customer=bob", "id=3")[0]["day"] is None
    assert len(rows(cluster, "shop.orders", "--partition", "us")) == 1
    for given, missing in (
        (["customer=ann"], "region, id"),
        (["region=eu"], "customer, id"),
        (["id=1"], "region, customer"),
        (["customer=ann", "id=1"], "region"),
    ):
        told = " ".join(run(cluster, "lookup", "shop.orders", *given, fails=2).split())
        assert f"lacks {missing}; the primary key is (region, customer, id). " in told
        assert "region, customer alone shows all rows with that prefix" in told
    assert run(cluster, "snapshots", "shop.orders") == "shop.orders has no KV snapshots yet\n"
    cluster.take_kv_snapshots(TablePath("shop", "orders"))
    listed = json.loads(run(cluster, "snapshots", "shop.orders", "--format", "json"))
    with connect(cluster.address) as client:
        buckets = client.admin.table_info(TablePath("shop", "orders")).bucket_count
    assert {row["partition"] for row in listed} == {"eu", "us"}
    assert all(row["snapshot"] == 0 and 0 <= row["bucket"] < buckets for row in listed)
    assert "eu" in run(cluster, "snapshots", "shop.orders")


def test_a_table_is_made_once_and_left_as_it_is_after(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    words = ("create-table", "shop.one", "--schema", "id BIGINT", "--buckets", "1")
    assert run(cluster, *words).endswith(", 1 bucket, will be tiered as Iceberg\n")
    assert "TableAlreadyExist" in run(cluster, *words, fails=1)
    told = run(cluster, *words, "--if-not-exists")
    assert told == "shop.one: exists already, unchanged\n"
    assert "1 row appended" in run(cluster, "append", "shop.one", csv(tmp_path, "id\n1\n"))


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        (
            "rows.parquet",
            "no Parquet",
            "the file is not Parquet, or it is cut off or damaged; copy it again",
        ),
        ("rows.csv", "id,id\n1,2\n", "rows.csv: more than one column is named 'id'; rename one"),
    ],
)
def test_a_broken_file_is_named(
    cluster: EmbeddedCluster, tmp_path: Path, name: str, content: str, told: str
) -> None:
    table = f"shop.broken_{name[5:]}"
    run(cluster, "create-table", table, "--schema", "id BIGINT")
    (tmp_path / name).write_text(content)
    said = run(cluster, "append", table, str(tmp_path / name), fails=1)
    assert told in said
    assert "not expected" not in said
    made = ("create-table", "shop.like", "--like", str(tmp_path / name))
    assert told in run(cluster, *made, fails=1)


def test_a_part_of_a_key_that_has_no_prefix(cluster: EmbeddedCluster) -> None:
    schema = "a INT, b INT, PRIMARY KEY (a, b)"
    run(cluster, "create-table", "shop.second", "--schema", schema, "--bucket-key", "b")
    for given, missing in (("a=1", "b"), ("b=1", "a")):
        told = " ".join(run(cluster, "lookup", "shop.second", given, fails=2).split())
        assert f"lacks {missing}; the primary key is (a, b). " in told
        assert "the bucket key (b) is not a prefix of the primary key" in told
    schema = "region STRING, k INT, PRIMARY KEY (region, k)"
    run(cluster, "create-table", "shop.whole", "--schema", schema, "--partition-by", "region")
    told = " ".join(run(cluster, "lookup", "shop.whole", "k=1", fails=2).split())
    assert "lacks region; the primary key is (region, k). Give all of them; see" in told


@pytest.mark.parametrize("options", [(), ("--no-datalake",)])
def test_a_key_of_several_columns_needs_a_bucket_key_of_one(
    options: tuple[str, ...], cluster: EmbeddedCluster
) -> None:
    table = f"shop.pairs{len(options)}"
    words = ("create-table", table, "--schema", "a INT, b INT, PRIMARY KEY (a, b)", *options)
    assert run(cluster, *words, fails=1) == (
        f"sluice: InvalidTable: table {table}: its key cannot be encoded: an Iceberg table has one"
        " key column, not 2: ['a', 'b']; set bucket.key to one of them (`sluice create-table"
        " --bucket-key a`), or use a server without a lake (datalake.format=none)\n"
    )
    assert "primary key a, b" in run(cluster, *words, "--bucket-key", "a")


def test_values_are_shown_as_they_are(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    schema = "k INT, rate DOUBLE, PRIMARY KEY (k)"
    run(cluster, "create-table", "shop.rates", "--schema", schema)
    strict = "k INT, n INT NOT NULL, s STRING, PRIMARY KEY (k)"
    run(cluster, "create-table", "shop.strict", "--schema", strict)
    said = run(cluster, "append", "shop.strict", csv(tmp_path, "k,s\n1,a\n"), fails=1)
    assert said.endswith("column n is missing. The file has k, s\n")
    file = csv(tmp_path, "k,rate\n1234,0.0035\n5,1234567.25\n6,inf\n")
    run(cluster, "append", "shop.rates", file)
    shown = run(cluster, "lookup", "shop.rates")
    for text in ("1234 ", "0.0035", "1234567.25", "inf"):
        assert text in shown, shown
    assert rows(cluster, "shop.rates", "k=6") == [{"k": 6, "rate": "inf"}]


def test_rows_of_a_partitioned_table_are_asked_for_by_partition(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    schema = "region STRING, k INT, PRIMARY KEY (region, k)"
    run(cluster, "create-table", "shop.parted", "--schema", schema, "--partition-by", "region")
    said = run(cluster, "lookup", "shop.parted", fails=2)
    assert "shop.parted has partitions: give a key, or --partition with one of them" in said
    file = csv(tmp_path, "region,k\neu,1\nus,2\n")
    run(cluster, "append", "shop.parted", file, "--create-partitions")
    assert "--partition with one of eu, us" in " ".join(
        run(cluster, "lookup", "shop.parted", fails=2).split()
    )
    assert rows(cluster, "shop.parted", "--partition", "us") == [{"region": "us", "k": 2}]


def test_an_instant_of_a_csv_file_and_of_a_key_may_have_a_zone(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    schema = "id INT, at TIMESTAMP_LTZ(3), note STRING, PRIMARY KEY (id, at)"
    run(cluster, "create-table", "shop.seen", "--schema", schema, "--bucket-key", "id")
    lines = ('1,2024-05-01T12:00:00+02:00,"NA"', "2,2024-05-01T10:00:00,NA")
    file = csv(tmp_path, "id,at,note\n" + "\n".join(lines) + "\n")
    assert "2 rows upserted" in run(cluster, "append", "shop.seen", file)
    for number, note in ((1, "NA"), (2, None)):
        for text in ("2024-05-01T10:00:00Z", "2024-05-01 10:00", "2024-05-01T05:00-05:00"):
            [row] = rows(cluster, "shop.seen", f"id={number}", f"at={text}")
            assert (row["at"], row["note"]) == ("2024-05-01 10:00:00", note)


def test_all_digits_of_a_value_are_shown(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    types = "at TIMESTAMP(9), seen TIMESTAMP_LTZ(9), t TIME(9), late TIMESTAMP(6), day DATE"
    schema = f"k INT, {types}, amount DECIMAL(38, 9), raw BINARY(2), PRIMARY KEY (k)"
    run(cluster, "create-table", "shop.exact", "--schema", schema)
    nanos = 1_714_557_600_123_456_789
    data = {
        "k": pa.array([1], pa.int32()),
        "at": pa.array([nanos], pa.timestamp("ns")),
        "seen": pa.array([nanos], pa.timestamp("ns", "UTC")),
        "t": pa.array([36_000_123_000_000], pa.time64("ns")),
        "late": pa.array([2**60], pa.timestamp("us")),
        "day": pa.array([2**31 - 1], pa.int32()).cast(pa.date32()),
        "amount": pa.array(["12345678901234567890.000000001"]),
        "raw": pa.array([b"\x00\xff"], pa.binary(2)),
    }
    pq.write_table(pa.table(data), tmp_path / "exact.parquet")
    run(cluster, "append", "shop.exact", str(tmp_path / "exact.parquet"))
    shown = {
        "k": 1,
        "at": "2024-05-01 10:00:00.123456789",
        "seen": "2024-05-01 10:00:00.123456789",
        "t": "10:00:00.123",
        "late": "38504-08-17 21:30:06.846976",
        "day": "5881580-07-11",
        "amount": "12345678901234567890.000000001",
        "raw": "00ff",
    }
    assert rows(cluster, "shop.exact", "k=1") == [shown]
    table = run(cluster, "lookup", "shop.exact")
    assert all(str(value) in table for value in shown.values()), table
