"""The messages about wrong inputs, complete: options, files of rows, the exit codes.

``test_schema_text`` has those about schemas, ``tests/unit/test_config.py`` those about settings.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from sluice.cli.main import cli
from sluice.config import ServerConfig
from sluice.server.cluster import EmbeddedCluster

SCHEMA = "id BIGINT NOT NULL, item STRING, price DECIMAL(10, 2), day DATE, code CHAR(3), ok BOOLEAN"
HEADER = "id,item,price,day,code,ok\n"
GOOD = "1,pen,2.50,2024-05-01,abc,true\n"
NEW = "create-table", "shop.new", "--schema", "id INT"

USAGE = {
    ("tabels",): "no such command 'tabels'; did you mean 'tables'? see `sluice --help`",
    ("jars", "fech"): "no such command 'fech'; did you mean 'fetch'? see `sluice jars --help`",
    ("leases", "dorp"): "no such command 'dorp'; did you mean 'drop'? see `sluice leases --help`",
    ("xyz",): "no such command 'xyz'; see `sluice --help`",
    (*NEW, "--bukets", "2"): (
        "no such option '--bukets'; did you mean '--buckets'? see `sluice create-table --help`"
    ),
    (*NEW, "--buckets", "0"): (
        "--buckets: '0' is not a whole number, 1 or more; see `sluice create-table --help`"
    ),
    (*NEW, "--buckets", "two"): (
        "--buckets: 'two' is not a whole number, 1 or more; see `sluice create-table --help`"
    ),
    (*NEW, "--freshness", "3"): (
        "--freshness: '3' has no unit; write for example 3s or 3min;"
        " see `sluice create-table --help`"
    ),
    (*NEW, "--freshness", "soon"): (
        "--freshness: 'soon' is not a duration; write for example 30s or 3min;"
        " see `sluice create-table --help`"
    ),
    ("status", "--format", "jsno"): (
        "--format: 'jsno' is not one of 'table', 'json'; see `sluice status --help`"
    ),
    ("repair", "shop.orders", "--by", "acept-gap"): (
        "--by: 'acept-gap' is not one of 'register', 'restore', 'adopt', 'retier', 'tag',"
        " 'accept-gap', 'rebuild', 'skip'; see `sluice repair --help`"
    ),
    (*NEW, "--primary-key", "idd"): (
        "--primary-key: no column 'idd'; did you mean 'id'? see `sluice create-table --help`"
    ),
    (*NEW, "--partition-by", "day"): (
        "--partition-by: no column 'day'; the columns are id; see `sluice create-table --help`"
    ),
    (*NEW, "--bucket-key", "Id"): (
        "--bucket-key: no column 'Id'; did you mean 'id'? see `sluice create-table --help`"
    ),
    ("create-table", "new", "--schema", "id INT"): (
        "TABLE: 'new' is not a table; write DATABASE.TABLE; see `sluice create-table --help`"
    ),
    ("create-table", "shop.new"): (
        "give either --schema TEXT or --like FILE; see `sluice create-table --help`"
    ),
    ("create-table", "shop.new", "--schema", "name TEXT"): (
        "--schema: column name: unknown type TEXT; use STRING; see `sluice create-table --help`"
    ),
    ("append",): "missing argument 'TABLE'; see `sluice append --help`",
    ("append", "shop.orders", "none.csv"): (
        "FILE: file 'none.csv' does not exist; see `sluice append --help`"
    ),
    ("append", "shop.orders", "."): "FILE: file '.' is a directory; see `sluice append --help`",
    ("append", "shop.orders", "rows.tsv"): (
        "rows.tsv: expected a file with the suffix .parquet, .csv, .jsonl or .ndjson; see `sluice"
        " append --help`"
    ),
    ("sql", "SELECT 1", "--warehouse", "./lak"): (
        "--warehouse: folder ./lak does not exist; give the folder that `sluice tier` wrote to;"
        " see `sluice sql --help`"
    ),
    ("clean", "--warehouse", "./lak"): (
        "--warehouse: folder ./lak does not exist; give the folder that `sluice tier` wrote to;"
        " see `sluice clean --help`"
    ),
    ("repair", "shop.orders", "--warehouse", "file:///none/lak"): (
        "--warehouse: folder file:///none/lak does not exist; give the folder that `sluice tier`"
        " wrote to; see `sluice repair --help`"
    ),
    ("tier", "shop.orders", "--warehouse", "rows.tsv"): (
        "--warehouse: rows.tsv is a file; give a folder; see `sluice tier --help`"
    ),
    ("tier", "shop.orders", "--warehouse", "rows.tsv/new/lake"): (
        "--warehouse: rows.tsv is a file, so folder rows.tsv/new/lake cannot be created; give a"
        " folder; see `sluice tier --help`"
    ),
    ("tier", "shop.orders", "--warehouse", ""): (
        "--warehouse: the path is empty; give a folder; see `sluice tier --help`"
    ),
    ("lookup", "shop.stock", "itm=pen"): (
        "'itm=pen': itm is not in the primary key; did you mean 'item'? see `sluice lookup --help`"
    ),
    ("lookup", "shop.stock", "pen"): (
        "expected COLUMN=VALUE such as item=1, found 'pen'; see `sluice lookup --help`"
    ),
}

CSV = {
    "": "the file is empty",
    HEADER.replace(",", ";"): (
        "line 1: semicolons separate the values in 'id;item;price;day;code;ok'; write commas"
    ),
    "id,item,pirce,day,code,ok\n": (
        "line 1: the table has no column 'pirce'; did you mean 'price'?"
    ),
    "item,day,ok\n": ("line 1: columns id, price, code are missing. The file has item, day, ok"),
    GOOD: (
        "line 1: expected the columns id, item, price, day, code, ok;"
        " found 1, pen, 2.50, 2024-05-01, abc, true"
    ),
    "id,id," + HEADER: "more than one column is named 'id'; rename one",
    HEADER + GOOD + "2,ink,1,5,2024-05-01,abc,true\n": (
        "line 3: expected 6 values (id, item, price, day, code, ok), found 7:"
        " '2,ink,1,5,2024-05-01,abc,true'. Nothing was sent"
    ),
    HEADER + "2,ink\n": (
        "line 2: expected 6 values (id, item, price, day, code, ok), found 2:"
        " '2,ink'. Nothing was sent"
    ),
    HEADER + GOOD.replace("1,pen", ",pen"): (
        "line 2: column id: expected BIGINT NOT NULL, found no value. Nothing was sent"
    ),
    HEADER + GOOD.replace("2.50", '"2,50"'): (
        "line 2: column price: expected DECIMAL(10,2), found '2,50';"
        " write up to 8 digits before and 2 after the point. Nothing was sent"
    ),
    HEADER + GOOD.replace("2024-05-01", "1.5.2024"): (
        "line 2: column day: expected DATE, found '1.5.2024'; write it as 2024-05-01."
        " Nothing was sent"
    ),
    HEADER + GOOD.replace("abc", "abcd"): (
        "line 2: column code: expected CHAR(3), found 'abcd'; write up to 3 characters."
        " Nothing was sent"
    ),
    HEADER + GOOD.replace("true", "yes"): (
        "line 2: column ok: expected BOOLEAN, found 'yes'; write true or false. Nothing was sent"
    ),
    HEADER + '1,"pen,2.50,2024-05-01,abc,true\n' + GOOD: (
        "line 2: column item: the quote before 'pen,2.50,2024-05-01,abc,true' is never closed."
        " Nothing was sent"
    ),
}
BYTES = {
    (HEADER + GOOD.replace("pen", "Füller")).encode("latin-1"): (
        "line 2: column item: expected STRING, found b'F\\xfcller'; use UTF-8. Nothing was sent"
    ),
    HEADER.encode("utf-16"): "line 1: the header is not UTF-8; save the file as UTF-8",
}
PARQUET = {
    b"": "the file is empty",
    **dict.fromkeys(
        (HEADER.encode(), b"PAR1 and no end"),
        "the file is not Parquet, or it is cut off or damaged; copy it again: Parquet magic bytes"
        " not found in footer. Either the file is corrupted or this is not a parquet file.",
    ),
}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    config = ServerConfig(str(tmp_path_factory.mktemp("data")), listen="grpc://127.0.0.1:0")
    with EmbeddedCluster(config) as cluster:
        tables = {"shop.orders": SCHEMA, "shop.stock": "item STRING PRIMARY KEY, n INT"}
        for table, schema in tables.items():
            words = ["create-table", table, "--schema", schema, "--bootstrap", cluster.address]
            assert CliRunner().invoke(cli, words).exit_code == 0
        yield cluster.address


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def error_of(address: str, *words: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, words, env={"SLUICE_CLIENT_BOOTSTRAP": address})
    assert done.stdout == ""
    return done.exit_code, done.stderr


@pytest.mark.parametrize("words", USAGE)
def test_a_wrong_use(words: tuple[str, ...], shop: str) -> None:
    Path("rows.tsv").touch()
    assert error_of(shop, *words) == (2, f"sluice: {USAGE[words]}\n")


@pytest.mark.parametrize("content", [*CSV, *BYTES])
def test_a_wrong_csv_file(content: str | bytes, shop: str) -> None:
    Path("rows.csv").write_bytes(content.encode() if isinstance(content, str) else content)
    message = CSV[content] if isinstance(content, str) else BYTES[content]
    expected = f"sluice: InvalidFile: rows.csv: {message}\n"
    assert error_of(shop, "append", "shop.orders", "rows.csv") == (1, expected)


@pytest.mark.parametrize("content", PARQUET)
def test_a_file_that_is_not_parquet(content: bytes, shop: str) -> None:
    Path("rows.parquet").write_bytes(content)
    expected = f"sluice: InvalidFile: rows.parquet: {PARQUET[content]}\n"
    assert error_of(shop, "append", "shop.orders", "rows.parquet") == (1, expected)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        (
            "id",
            pa.array([1, None]),
            "row 2 (row group 1 of 1): column id: expected BIGINT NOT NULL, found no value",
        ),
        (
            "id",
            pa.array([1, 2.5]),
            "row 2 (row group 1 of 1): column id: expected BIGINT NOT NULL, found 2.5;"
            " write a whole number from -9223372036854775808 to 9223372036854775807",
        ),
        (
            "price",
            pa.array(["1", "a lot"]),
            "row 2 (row group 1 of 1): column price: expected DECIMAL(10,2), found 'a lot';"
            " write up to 8 digits before and 2 after the point",
        ),
        (
            "day",
            pa.array([True, False]),
            "column day: expected DATE, found a column of type bool",
        ),
        (
            "day",
            pa.array([0, 2**60], pa.timestamp("us")),
            "row 2 (row group 1 of 1): column day: expected DATE, found 38504-08-17"
            " 21:30:06.846976; write it as 2024-05-01",
        ),
    ],
)
def test_wrong_values_of_a_parquet_file(
    name: str, values: pa.Array, message: str, shop: str
) -> None:
    nulls = {column: pa.nulls(2) for column in HEADER.strip().split(",")}
    pq.write_table(pa.table({**nulls, "id": pa.array([1, 2]), name: values}), "rows.parquet")
    expected = f"sluice: InvalidFile: rows.parquet: {message}. Nothing was sent\n"
    assert error_of(shop, "append", "shop.orders", "rows.parquet") == (1, expected)


def test_a_missing_table_and_a_missing_row_have_a_kind(shop: str) -> None:
    code, text = error_of(shop, "lookup", "shop.stock", "item=pen")
    assert (code, text) == (1, "sluice: RowNotFound: shop.stock has no row with item=pen\n")
    code, text = error_of(shop, "lookup", "shop.stok", "item=pen")
    assert (code, text) == (
        1,
        "sluice: TableNotExist: table shop.stok does not exist; did you mean 'shop.stock'?\n",
    )


@pytest.mark.parametrize(
    ("words", "end"),
    [
        (("status", "shop.order"), "; did you mean 'shop.orders'?"),
        (("pause", "shp.order"), "; did you mean 'shop.orders'?"),
        (("tier", "shop.order", "--warehouse", "."), "; did you mean 'shop.orders'?"),
        (("tables", "shp"), "; did you mean 'shop'?"),
        (("status", "shop.xyz"), "; `sluice tables` lists all tables"),
        (("tables", "xyz"), "; `sluice tables` lists all tables"),
    ],
)
def test_an_unknown_name_brings_the_most_similar_one(
    words: tuple[str, ...], end: str, shop: str
) -> None:
    code, text = error_of(shop, *words)
    assert (code, text.count("\n")) == (1, 1)
    assert text.endswith(f" does not exist{end}\n")
