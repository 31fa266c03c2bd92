"""`sluice append`: all of a file or nothing is sent, and what breaks off can continue."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from sluice.cli.rows.append import _again
from sluice.cli.rows.sending import FileSender
from sluice.client import connect
from sluice.model import Column, Schema, TableDescriptor
from sluice.model import types as t
from tests.docs.blocks import claimed
from tests.support.models.tables import table_info
from tests.support.tables.append_shop import ORDERS, ROWS, Shop, command_of, stored_of

# ---- nothing is sent before all is checked ----


def test_a_bad_last_row_of_many_leaves_nothing_behind(shop: Shop) -> None:
    shop.create(ORDERS, "--buckets", "4")
    large = {"SLUICE_CLIENT_WRITER_BATCH_BYTES": "1000000"}
    path = shop.file(200_000)
    with path.open("a") as file:
        file.write("twelve,the last one\n")
    said = shop.append(path, fails=1)
    told = (
        "rows.csv: line 200002: column id: expected BIGINT NOT NULL, found 'twelve';"
        " write a whole number from -9223372036854775808 to 9223372036854775807"
    )
    assert f"{told}. Nothing was sent\n" in said
    assert shop.ids() == []
    path.write_text(path.read_text().replace("twelve", "200000"))
    assert "200,001 rows appended in" in shop.append(path, **large)
    assert sorted(shop.ids()) == list(range(200_001))


def test_a_bad_last_row_of_a_parquet_file_too(shop: Shop) -> None:
    shop.create("id BIGINT NOT NULL, n INT")
    n = pa.array([*range(200_000), 2**31])
    path = shop.home / "rows.parquet"
    pq.write_table(pa.table({"id": range(200_001), "n": n}), path, row_group_size=50_000)
    said = shop.append(path, fails=1)
    told = (
        "row 200001 (row group 5 of 5): column n: expected INT, found 2147483648;"
        " write a whole number from -2147483648 to 2147483647"
    )
    assert f"rows.parquet: {told}. Nothing was sent\n" in said
    assert shop.ids() == []


@pytest.mark.parametrize(
    ("schema", "options", "lines", "told"),
    [
        (
            "region STRING, n INT",
            ["--partition-by", "region"],
            ["eu,1", "eu,2", "us,3", "eu,4"],
            "PartitionNotExists: {file}: line 4: table {table} has no partition region=us;",
        ),
        (
            "region STRING, n INT",
            ["--partition-by", "region"],
            ["eu,1", "e/u,2"],
            "line 3: partition key 'region' has the value 'e/u': use 1 to 200 letters",
        ),
        (
            "region STRING, n INT",
            ["--partition-by", "region"],
            ["eu,1", ",2"],
            "line 3: column region: expected STRING, found no value (it is a partition key)",
        ),
        (
            "region STRING, n INT",
            ["--bucket-key", "n"],
            ["eu,1", "us,"],
            "line 3: column n: expected INT, found no value (it is in the bucket key)",
        ),
        (
            "region STRING, n INT, PRIMARY KEY (n)",
            [],
            ["eu,1", "us,"],
            "line 3: column n: expected INT NOT NULL, found no value (it is in the primary key)",
        ),
    ],
)
def test_what_a_table_wants_of_its_rows_is_checked_first(
    shop: Shop, schema: str, options: list[str], lines: list[str], told: str
) -> None:
    shop.create(schema, *options)
    if "--partition-by" in options:
        with connect(shop.address) as client:
            client.admin.create_partition(shop.table, {"region": "eu"})
    path = shop.home / "rows.csv"
    path.write_text("\n".join(["region,n", *lines, ""]))
    said = shop.append(path, fails=1)
    assert told.format(file=path, table=shop.table) in said
    assert said.endswith("Nothing was sent\n")


def test_partitions_are_made_when_all_rows_are_checked(shop: Shop) -> None:
    shop.create("region STRING, id INT", "--partition-by", "region")
    path = shop.home / "rows.csv"
    path.write_text("region,id\neu,1\nus,two\n")
    shop.append(path, "--create-partitions", fails=1)
    with connect(shop.address) as client:
        assert client.admin.partitions(shop.table) == []
        path.write_text("region,id\neu,1\nus,2\n")
        assert "2 rows appended" in shop.append(path, "--create-partitions")
        assert [p.values for p in client.admin.partitions(shop.table)] == [("eu",), ("us",)]


def test_a_row_too_large_for_a_request_is_told_by_its_line(shop: Shop) -> None:
    shop.create(ORDERS)
    path = shop.home / "rows.csv"
    noise = os.urandom(150_000).hex()
    path.write_text(f"id,note\n1,{'x' * 300_000}\n2,\n3,{noise}\n4,\n")
    said = shop.append(path, fails=1, SLUICE_CLIENT_MAX_MESSAGE_BYTES="100000")
    assert re.search(r"RecordTooLarge: \S+rows.csv: line 4: a row has 1[\d,]+ bytes", said)
    assert shop.ids() == []


def test_rows_of_a_keyed_table_are_checked_as_they_are_encoded(shop: Shop) -> None:
    column = Column("code", t.char(3), 1)
    schema = Schema((Column("id", t.INT.not_null(), 0), column), ("id",), highest_field_id=1)
    described = TableDescriptor(schema, bucket_count=1, properties={"table.kv.format": "INDEXED"})
    with connect(shop.address) as client:
        client.admin.create_table(shop.table, described)
    path = shop.home / "rows.csv"
    path.write_text("id,code\n1,abc\n2,äöü\n")  # three characters, six bytes
    said = shop.append(path, fails=1)
    assert "line 3: the value of column 'code' does not fit CHAR(3)" in said
    assert shop.keys() == []
    path.write_text("id,code\n1,abc\n,\n")
    assert "line 3: column id: expected INT NOT NULL" in shop.run(
        "delete", str(shop.table), str(path), fails=1
    )


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl", "rows.parquet"])
def test_a_lossy_value_in_the_third_batch_is_named_and_nothing_is_sent(
    shop: Shop, name: str
) -> None:
    shop.create("id BIGINT NOT NULL, price DECIMAL(10, 2), note STRING", "--buckets", "2")
    prices = [f"{i % 100}.25" for i in range(200_000)]
    prices[150_000] = "1.255"
    path = shop.home / name
    if name.endswith("csv"):
        lines = ["id,price,note", *(f"{i},{price},{i:020}" for i, price in enumerate(prices))]
    else:
        lines = [f'{{"id":{i},"price":{price}}}' for i, price in enumerate(prices)]
    if name.endswith("parquet"):
        data = {"id": range(200_000), "price": pa.array(prices).cast(pa.decimal128(20, 3))}
        pq.write_table(pa.table(data), path)
    else:
        path.write_text("\n".join(lines))
    place = {"rows.csv": "line 150002", "rows.jsonl": "line 150001"}.get(
        name, "row 150001 (row group 1 of 1)"
    )
    shown = "'1.255'" if name == "rows.csv" else "1.255"
    said = shop.append(path, fails=1)
    assert said.endswith(
        f"sluice: InvalidFile: {path}: {place}: column price: expected DECIMAL(10,2), found"
        f" {shown}; write up to 8 digits before and 2 after the point. Nothing was sent\n"
    )
    assert shop.ids() == []


# ---- what breaks off ----


def test_a_keyed_table_takes_the_file_again(shop: Shop, breaks: Callable[[int], None]) -> None:
    shop.create(f"{ORDERS}, PRIMARY KEY (id)", "--buckets", "2")
    path = shop.file()
    breaks(80)
    said = shop.append(path, fails=1)
    breaks(0)
    stored = stored_of(said)
    assert 0 < stored < len(shop.keys()) < ROWS
    assert f"Continue with:\nsluice append {shop.table} {path} --skip-rows {stored}\n" in said
    assert "rows after them may be stored, too: upserting them again changes nothing" in said
    assert "20,000 rows upserted" in shop.append(path), "it need not be told how to go on"
    assert shop.keys() == list(range(ROWS))
    assert "15,000 rows upserted in" in shop.append(path, "--skip-rows", "5000")
    said = shop.run("delete", str(shop.table), str(path), "--skip-rows", "15000")
    assert "5,000 deletes sent in" in said
    assert shop.keys() == list(range(15_000))
    assert "rows.csv has: 20,000 rows" in shop.append(path, "--skip-rows", "20001", fails=2)


def test_a_log_loses_no_row_by_the_printed_commands(
    shop: Shop, breaks: Callable[[int], None]
) -> None:
    """Which can break off, too."""
    shop.create(ORDERS, "--buckets", "2")
    path, doubtful = shop.file(), 0
    breaks(80)
    said = shop.append(path, fails=1)
    for batch in (1, 4, 2, 0):
        stored = stored_of(said)
        assert set(range(stored)) <= set(shop.ids())
        found = re.search(
            r"Up to ([\d,]+) rows after them may be stored, too: appending them", said
        )
        assert found, said
        doubtful += int(found[1].replace(",", ""))
        breaks(batch)
        said = shop.run(*command_of(said), fails=1 if batch else 0)
    assert f"{ROWS - stored:,} rows appended in" in said
    ids = shop.ids()
    assert set(ids) == set(range(ROWS))
    assert len(ids) <= ROWS + doubtful


def test_the_page_shows_what_is_printed(shop: Shop, breaks: Callable[[int], None]) -> None:
    shop.create(ORDERS, "--buckets", "2")
    path = shop.file()
    breaks(80)
    said = shop.append(path, fails=1)
    breaks(0)
    (command,) = claimed("docs/append.md", __file__)
    shown = "\n".join(command.output)
    shown = shown.replace("shop.orders many.csv", f"{shop.table} {path}")
    shown = shown.replace("many.csv", path.name).partition(". The first")[2]
    expected = re.sub(
        r"\d[\d,]*", r"[\\d,]+", re.escape(shown.replace(f"{shop.table} {path}", "@"))
    )
    expected = expected.replace("@", re.escape(f"{shop.table} {path}"))
    assert re.search(rf"\. The first{expected}\n$", said), said


def test_a_file_that_changes_while_it_is_sent_ends_the_run(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.create(ORDERS)
    path, check = shop.file(), FileSender.check_all

    def check_and_change(sending: FileSender) -> int:
        found = check(sending)
        with path.open("a") as file:
            file.write("20000,one more\n")
        return found

    monkeypatch.setattr(FileSender, "check_all", check_and_change)
    said = shop.append(path, fails=1)
    assert "rows.csv: the file was changed while it was read. Nothing was sent\n" in said
    assert shop.ids() == []


def test_what_it_does_to_send_a_row_twice() -> None:
    columns = {"id": t.INT.not_null()}
    assert _again(table_info(columns)).endswith("stores them twice")
    assert _again(table_info(columns, primary_key=["id"])).endswith("changes nothing")
    for engine, effect in (("aggregation", "aggregates them twice"), ("versioned", "nothing")):
        merged = table_info(columns, primary_key=["id"], properties={"table.merge-engine": engine})
        assert _again(merged).endswith(effect)


# ---- memory ----


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_a_large_file_takes_no_more_memory_than_a_small_one(tmp_path: Path, name: str) -> None:
    """A row group of 160 MB is no more than one of 40."""
    code = """
import sys
from pathlib import Path
import pyarrow as pa
import pyarrow.csv
from sluice.cli.rows.columns import rows_of
from tests.support.programs.peak_memory import peak_mib
wanted = pa.schema([("id", pa.int64()), ("note", pa.string())])
for name in sys.argv[1:]:
    rows = rows_of(Path(name), wanted)
    count = sum(batch.num_rows for batch in rows.batches())
    print(count, peak_mib())
"""
    paths = []
    for rows in (400_000, 1_500_000):
        notes = pa.array(["x" * 100, "y" * 100]).take(pa.array(np.arange(rows) % 2))
        data = pa.table({"id": np.arange(rows), "note": notes})
        paths.append(tmp_path / str(rows) / name)
        paths[-1].parent.mkdir()
        if name.endswith("csv"):
            pa.csv.write_csv(data, paths[-1])
        else:
            pq.write_table(
                data, paths[-1], row_group_size=rows, use_dictionary=False, compression="none"
            )
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, paths)],
        cwd=Path(__file__).resolve().parents[4],
        # The default, mimalloc, keeps freed pages of other threads: up to 51 MiB under load.
        env=os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "jemalloc"},
        capture_output=True,
        text=True,
        check=True,
    )
    small, large = (line.split() for line in done.stdout.splitlines())
    assert (small[0], large[0]) == ("400000", "1500000")
    assert int(large[1]) - int(small[1]) < 48, done.stdout
