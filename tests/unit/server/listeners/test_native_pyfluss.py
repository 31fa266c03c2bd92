"""The official client against the embedded server's native ports.

What pyfluss 1.0.0 cannot do here, and why:

- tables with the merge engine aggregation: the server refuses them (code 15);
- append to a partition that does not exist: pyfluss has no dynamic partitions; it asks for the
  partition's metadata for ever, against a real Fluss too;
- ``filter``: a hint to leave out batches, which the server does not take; all rows come, as they do
  from a real Fluss for a table without statistics;
- SASL: the port is a PLAINTEXT listener, and says so (code 46).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

from sluice.client import Client, connect
from sluice.model import Column, Schema, TableBucket, TableDescriptor, TablePath
from sluice.model.types import BIGINT, INT, TypeRoot
from tests.conformance.every_type import EVERY_TYPE, every_value
from tests.support.clients.official_client import BUCKET, OFFSET, OfficialClient
from tests.support.harness.needs import needs_pyfluss
from tests.unit.server.support import Node

pytestmark = needs_pyfluss
ROOT = Path(__file__).parents[4]
TYPES = Schema(tuple(Column(n, kind, i) for i, (n, kind) in enumerate(EVERY_TYPE.items())))
PATH = TablePath("tour", "types")
COMPRESSIONS = ("ZSTD", "LZ4_FRAME", "NONE")


@pytest.fixture
def address(start: Callable[..., Node]) -> str:
    return start(listen="fluss://127.0.0.1:0").cluster.address


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with connect(address) as client:
        client.admin.create_database("tour")
        yield client


def pyfluss(address: str, *arguments: str) -> Any:
    command = [sys.executable, "-m", "tests.support.clients.pyfluss_tour"]
    done = subprocess.run(
        [*command, address.removeprefix("fluss://"), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-3000:]}"
    return json.loads(done.stdout.splitlines()[-1])


def test_a_tour_of_all_kinds_of_tables(address: str) -> None:
    said = pyfluss(address)
    (_, host, port), (_, other_host, other_port) = said["nodes"]
    assert [kind for kind, _, _ in said["nodes"]] == ["CoordinatorServer", "TabletServer"]
    assert (host, other_host, port) == ("127.0.0.1", "127.0.0.1", urlsplit(address).port)
    assert other_port != port
    assert said["databases"] == [["fluss", "tour"], True]
    assert said["info"] == [2, "a tour", ["id", "text", "day", "n"], 1]
    ids = list(range(1001))
    assert (said["rows"], said["earliest"], said["since 1970"]) == (1001, 0, 0)
    texts = [None if i % 3 == 0 else f"t{i}" for i in range(1000)]
    assert said["scan"]["id"] == ids
    assert said["scan"]["text"] == [*texts, "one row"]
    assert said["one column"] == {"id": ids}
    assert said["two columns"] == {"n": [*range(1000), None], "id": ids}
    assert list(said["two columns"]) == ["n", "id"]
    assert said["from the end"]["id"] == []
    assert (said["records"], said["last rows"]) == (1001, 3)
    assert said["partitions"] == ["2026-01-01", "2026-01-02"]
    assert said["partition rows"] == [50, 50]
    assert said["partition scan"]["id"] == [*range(50), *range(100, 150)]
    assert sorted(said["partition column"]["day"]) == ["2026-01-01"] * 50 + ["2026-01-02"] * 50
    assert said["partitions left"] == ["2026-01-02"]
    assert [row and row["n"] for row in said["looked up"]] == [-1, None, 333, 4, None]
    assert said["looked up"][2] == {"id": 3, "text": None, "day": "2026-01-01", "n": 333}
    assert said["changes"] == [
        [1, "+I", 1],
        [1, "+U", -1],
        [1, "-U", 1],
        [2, "+I", 2],
        [2, "-D", 2],
        [3, "+I", 3],
        [3, "+U", 333],
        [3, "-U", 3],
    ]
    assert said["change count"] == 105
    assert said["first rows"] == [5, 5]
    assert said["key options"]["table.kv.format-version"] == "2"
    assert said["tables"] == ["daily", "keyed", "plain"]
    assert (said["dropped"], said["databases left"]) == (False, ["fluss"])
    codes = {
        "database twice": 6,
        "created twice": 8,
        "partition twice": 42,
        "lake": 53,
        "no table": 7,
        "no database": 4,
        "aggregation": 15,
        "not empty": 5,
    }
    assert {name: said[name][0] for name in codes} == codes


def create_types(client: Client, compression: str = "ZSTD") -> None:
    options = {"table.log.arrow.compression.type": compression}
    client.admin.create_table(PATH, TableDescriptor(TYPES, properties=options))


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_pyfluss_reads_what_we_write(address: str, client: Client, compression: str) -> None:
    """Every type: with nulls, and without, where pyarrow leaves the validity buffers out."""
    create_types(client, compression)
    rows = pa.concat_tables([every_value(), every_value().slice(0, 1)])
    with client.log_writer(PATH) as writer:
        for start, count in ((0, 2), (2, 1)):
            writer.write(rows.slice(start, count))
            writer.flush()
    scanned = OfficialClient(address).scan(str(PATH))
    assert scanned[OFFSET].to_pylist() == [0, 1, 2]
    assert as_written(scanned.drop_columns([BUCKET, OFFSET])) == rows


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_we_read_what_pyfluss_writes(address: str, client: Client, compression: str) -> None:
    create_types(client, compression)
    rows = every_value()
    OfficialClient(address).append(str(PATH), with_zones(rows))
    bucket = TableBucket(client.admin.table_info(PATH).table_id, None, 0)
    found = [records.batch for records in client.log_reader(PATH).read(bucket, 0, 2)]
    assert pa.Table.from_batches(found).cast(rows.schema) == rows


def test_a_column_that_older_batches_lack(address: str, client: Client) -> None:
    path = TablePath("tour", "grows")
    schema = Schema((Column("id", BIGINT, 0),), highest_field_id=0)
    client.admin.create_table(path, TableDescriptor(schema))
    with client.log_writer(path) as writer:
        writer.write(pa.table({"id": [1, 2]}))
    client.admin.add_columns(path, [Column("n", INT, 1)])
    with client.log_writer(path) as writer:
        writer.write(pa.table({"id": [3], "n": pa.array([30], pa.int32())}))
    assert pyfluss(address, "grows", "n", "id") == {"n": [None, None, 30], "id": [1, 2, 3]}
    assert pyfluss(address, "grows", "id") == {"id": [1, 2, 3]}


def with_zones(rows: pa.Table) -> pa.Table:
    """LTZ columns with a zone, as pyfluss has them; the log's own Arrow has none."""
    return rows.cast(pa.schema([_zoned(field) for field in rows.schema]))


def as_written(rows: pa.Table) -> pa.Table:
    return rows.cast(every_value().schema)


def _zoned(field: pa.Field) -> pa.Field:
    ltz = EVERY_TYPE[field.name].root is TypeRoot.TIMESTAMP_LTZ
    return field.with_type(pa.timestamp(field.type.unit, "UTC")) if ltz else field
