"""`sluice append`: all of a file or nothing is sent, and what broke off is not begun again."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from sluice import failpoints
from sluice.cli.append import _comes_twice
from sluice.cli.main import cli
from sluice.cli.send_journal import RESUMABLE_S, SendJournal
from sluice.cli.sending import Sending
from sluice.client import connect
from sluice.config import ServerConfig
from sluice.model import Column, Schema, TableBucket, TableDescriptor, TablePath
from sluice.model import types as t
from sluice.server.cluster import EmbeddedCluster
from sluice.testing.tables import table_info
from tests.support.processes import SLUICE, environment

GOES_ON = re.compile(
    r"The first ([\d,]+) of 20,000 rows of rows.csv are stored, maybe more\. Go on"
)
ROWS = 20_000
ORDERS = "id BIGINT NOT NULL, note STRING"


class Shop:
    """A server and its one table, the state folder of a user, and the commands."""

    def __init__(self, address: str, home: Path) -> None:
        self.address = address
        self.home = home
        self.state = home / "state"
        self.table = TablePath("shop", home.name)

    def run(self, *arguments: str, fails: int = 0, **env: str) -> str:
        settings = {
            "SLUICE_CLIENT_BOOTSTRAP": self.address,
            "SLUICE_CLIENT_WRITER_BATCH_BYTES": "20000",
            "XDG_STATE_HOME": str(self.state),
        }
        done: Result = CliRunner().invoke(cli, arguments, env={**settings, **env})
        assert done.exit_code == fails, done.output
        assert "Traceback" not in done.output
        return done.output

    def create(self, schema: str, *options: str) -> None:
        self.run("create-table", str(self.table), "--schema", schema, *options)

    def append(self, path: Path, *options: str, fails: int = 0, **env: str) -> str:
        return self.run("append", str(self.table), str(path), *options, fails=fails, **env)

    def file(self, rows: int = ROWS, name: str = "rows.csv") -> Path:
        path = self.home / name
        path.write_text("id,note\n" + "".join(f"{i},{i:0100}\n" for i in range(rows)))
        return path

    def ids(self) -> list[int]:
        with connect(self.address) as client:
            info = client.admin.table_info(self.table)
            reader, found = client.log_reader(self.table), list[int]()
            for number in range(info.bucket_count):
                for records in reader.read(TableBucket(info.table_id, None, number)):
                    found += records.batch.column("id").to_pylist()
            return found

    def keys(self) -> list[int]:
        with connect(self.address) as client:
            return sorted(client.limit_scan(self.table, 100_000).column("id").to_pylist())

    @property
    def records(self) -> list[Path]:
        return list(self.state.rglob("*.jsonl"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    config = ServerConfig(str(tmp_path_factory.mktemp("data")), listen="grpc://127.0.0.1:0")
    with EmbeddedCluster(config) as cluster, connect(cluster.address) as client:
        client.admin.create_database("shop")
        yield cluster


@pytest.fixture
def shop(cluster: EmbeddedCluster, tmp_path: Path) -> Shop:
    return Shop(cluster.address, tmp_path)


@pytest.fixture
def breaks(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Has the writer break off at a batch, once; 0 lets it go."""

    def arm(batch: int) -> None:
        monkeypatch.setattr(failpoints, "_passages", {})
        armed = {"client.write.answered": ("raise", batch)} if batch else {}
        monkeypatch.setattr(failpoints, "_armed", armed)

    return arm


@pytest.fixture
def broken(shop: Shop, breaks: Callable[[int], None]) -> tuple[Path, str]:
    """A file that an earlier run has sent a part of, and what that run said."""
    shop.create(ORDERS, "--buckets", "2")
    path = shop.file()
    breaks(80)
    said = shop.append(path, fails=1)
    breaks(0)
    return path, said


def stored_of(said: str) -> int:
    found = GOES_ON.search(said)
    assert found, said
    return int(found[1].replace(",", ""))


# ---- nothing is sent before all is checked ----


def test_a_bad_last_row_of_many_leaves_nothing_behind(shop: Shop) -> None:
    shop.create(ORDERS, "--buckets", "4")
    large = {"SLUICE_CLIENT_WRITER_BATCH_BYTES": "1000000"}
    path = shop.file(200_000)
    with path.open("a") as file:
        file.write("twelve,the last one\n")
    said = shop.append(path, fails=1)
    told = "rows.csv: line 200002: column id: expected BIGINT NOT NULL, found 'twelve'"
    assert f"{told}. Nothing was sent\n" in said
    assert shop.ids() == []
    assert shop.records == []
    path.write_text(path.read_text().replace("twelve", "200000"))
    assert "200,001 rows appended in" in shop.append(path, **large)
    assert sorted(shop.ids()) == list(range(200_001))
    assert shop.records == []
    assert "200,001 rows appended in" in shop.append(path, **large), (
        "what came to its end may come again"
    )
    assert len(shop.ids()) == 400_002


def test_a_bad_last_row_of_a_parquet_file_too(shop: Shop) -> None:
    shop.create("id BIGINT NOT NULL, n INT")
    n = pa.array([*range(200_000), 2**31])
    path = shop.home / "rows.parquet"
    pq.write_table(pa.table({"id": range(200_001), "n": n}), path, row_group_size=50_000)
    said = shop.append(path, fails=1)
    told = "row 200001 (row group 5 of 5): column n: expected INT, found 2147483648"
    assert f"rows.parquet: {told}. Nothing was sent\n" in said
    assert shop.ids() == []


@pytest.mark.parametrize(
    ("schema", "options", "lines", "told"),
    [
        (
            "region STRING, n INT",
            ["--partition-by", "region"],
            ["eu,1", "eu,2", "us,3", "eu,4"],
            "PartitionNotExists: {file}: line 4: table {table} has no partition region=us: create",
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
    path.write_text("id,code\n1,abc\n2,abcd\n")
    said = shop.append(path, fails=1)
    assert "line 3: the value of column 'code' does not fit CHAR(3)" in said
    assert shop.keys() == []
    path.write_text("id,code\n1,abc\n,\n")
    assert "line 3: column id: expected INT NOT NULL" in shop.run(
        "delete", str(shop.table), str(path), fails=1
    )


# ---- a run that broke off ----


def test_the_same_file_is_offered_to_go_on(shop: Shop, broken: tuple[Path, str]) -> None:
    path, said = broken
    stored, before = stored_of(said), len(shop.ids())
    assert 0 < stored <= before < ROWS
    command = f"sluice append {shop.table} {path} --skip-rows {stored}"
    assert f"Go on with: {command}\n" in said
    again = shop.append(path, fails=2)
    assert f"An earlier run broke off. The first {stored:,} of 20,000 rows" in again
    assert f"Go on with: {command}. With --again the whole file is" in again
    assert command in shop.append(path, "--skip-rows", "7", fails=2)
    copy = path.with_name("copy.csv")
    copy.write_bytes(path.read_bytes())
    assert "An earlier run broke off" in shop.append(copy, fails=2), "the rows are the same"
    assert len(shop.ids()) == before
    went_on = shop.run(*shlex.split(command)[1:])
    assert re.search(
        rf" {ROWS - stored:,} rows appended in \S+ s, after the first {stored:,}\n", went_on
    )
    assert sorted(shop.ids()) == list(range(ROWS))
    assert shop.records == []


def test_on_a_terminal_it_asks(shop: Shop, broken: tuple[Path, str]) -> None:
    path, _ = broken
    answers = {"n\n": (2, "nothing was sent"), "\n": (0, " s, after the first ")}
    for answer, (code, told) in answers.items():
        ours, theirs = pty.openpty()
        os.write(ours, answer.encode())
        done = subprocess.run(
            [SLUICE, "append", str(shop.table), str(path)],
            env=environment(
                {"SLUICE_CLIENT_BOOTSTRAP": shop.address, "XDG_STATE_HOME": str(shop.state)}
            ),
            stdin=theirs,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        os.close(ours)
        os.close(theirs)
        assert "maybe more. Go on after them? [Y/n]" in done.stderr
        assert done.returncode == code, done.stderr
        assert told in done.stdout + done.stderr
    assert sorted(shop.ids()) == list(range(ROWS))


def test_who_wants_all_rows_again_gets_them(shop: Shop, broken: tuple[Path, str]) -> None:
    path, _ = broken
    before = len(shop.ids())
    assert "20,000 rows appended in" in shop.append(path, "--again")
    assert len(shop.ids()) == before + ROWS
    assert shop.records == []


def test_after_many_days_nobody_can_go_on_exactly(shop: Shop, broken: tuple[Path, str]) -> None:
    path, said = broken
    stored = stored_of(said)
    (record,) = shop.records
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    for line in lines[1:-1]:
        line[-1] -= RESUMABLE_S
    record.write_text("".join(json.dumps(line) + "\n" for line in lines))
    refused = shop.append(path, "--skip-rows", str(stored), fails=2)
    assert "It is too long ago to go on exactly" in refused
    assert f"--again --skip-rows {stored}" in refused
    shop.append(path, "--again", "--skip-rows", str(stored))
    assert set(shop.ids()) == set(range(ROWS))


def test_a_run_that_goes_on_may_break_off_too(
    shop: Shop, broken: tuple[Path, str], breaks: Callable[[int], None]
) -> None:
    path, said = broken
    for batch in (1, 4, 2):
        breaks(batch)
        stored = stored_of(said)
        said = shop.append(path, "--skip-rows", str(stored), fails=1)
        assert stored_of(said) >= stored
        assert set(range(stored)) <= set(shop.ids())
    breaks(0)
    shop.append(path, "--skip-rows", str(stored_of(said)))
    assert sorted(shop.ids()) == list(range(ROWS))


def test_rows_can_be_skipped_without_an_earlier_run(
    shop: Shop, breaks: Callable[[int], None]
) -> None:
    """And that run, too, can break off."""
    shop.create(ORDERS)
    path = shop.file()
    breaks(80)
    stored = stored_of(shop.append(path, "--skip-rows", "4321", fails=1))
    breaks(0)
    assert stored > 4321
    shop.append(path, "--skip-rows", str(stored))
    assert sorted(shop.ids()) == list(range(4321, ROWS))
    assert "rows.csv has 20,000 rows" in shop.append(path, "--skip-rows", "20001", fails=2)
    assert " s, after the first 20,000\n" in shop.append(path, "--skip-rows", "20000")


def test_half_a_line_in_the_record_is_no_line(shop: Shop, broken: tuple[Path, str]) -> None:
    path, said = broken
    (record,) = shop.records
    with record.open("a") as file:
        file.write("[null, 0, 12")
    shop.append(path, "--skip-rows", str(stored_of(said)))
    assert sorted(shop.ids()) == list(range(ROWS))


def test_where_the_cluster_forgot_the_earlier_run_nothing_is_mixed_up(
    shop: Shop, broken: tuple[Path, str]
) -> None:
    path, said = broken
    before = len(shop.ids())
    (record,) = shop.records
    header, *lines = record.read_text().splitlines()
    with connect(shop.address) as client, client.log_writer(shop.table) as other:
        another_id = other._id()
    changed = {**json.loads(header), "writer": [another_id, *json.loads(header)["writer"][1:]]}
    record.write_text("\n".join([json.dumps(changed), *lines, ""]))
    told = shop.append(path, "--skip-rows", str(stored_of(said)), fails=1)
    assert told.startswith("sluice: OutOfOrderSequence: ")
    assert "So nobody can go on exactly" in told
    assert told.endswith("With --again the whole file is appended once more\n")
    assert len(shop.ids()) == before
    shop.append(path, "--again")


def test_a_damaged_record_is_named(shop: Shop, broken: tuple[Path, str]) -> None:
    path, _ = broken
    (record,) = shop.records
    for damaged in ("no JSON\n", "{}\n", record.read_text().replace("[", "[[", 2)):
        record.write_text(damaged)
        said = shop.append(path, fails=1)
        assert f"{record}: the record of an earlier run is damaged: remove the file" in said


def test_a_disk_that_is_full_ends_the_run(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that cannot be noted is not sent."""
    shop.create(ORDERS)
    path, write, lines = shop.file(), os.write, list[bytes]()

    def writing(file: int, text: bytes) -> int:
        if not text.startswith((b"{", b"[")):
            return write(file, text)
        lines.append(text)
        if len(lines) > 30:
            return write(file, text[:3])
        return write(file, text)

    monkeypatch.setattr(os, "write", writing)
    said = shop.append(path, fails=1)
    monkeypatch.undo()
    assert "StorageError: " in said
    assert "No space left on device: nothing more is sent. The first" in said
    shop.run(*shlex.split(said.partition("Go on with: sluice ")[2]))
    assert sorted(shop.ids()) == list(range(ROWS))


def test_two_do_not_send_the_same_file_at_one_time(shop: Shop, broken: tuple[Path, str]) -> None:
    path, said = broken
    (record,) = shop.records
    header = json.loads(record.read_text().splitlines()[0])
    name = {k: v for k, v in header.items() if k not in ("rows", "skipped", "writer", "at")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(shop.state))
        other = SendJournal(name)
    assert other.path == record
    for options in (["--skip-rows", str(stored_of(said))], ["--again"]):
        told = shop.append(path, *options, fails=1)
        assert "another `sluice append` sends this file just now: wait for it" in told
    other.__exit__(None, None, None)
    shop.append(path, "--skip-rows", str(stored_of(said)))


def test_where_no_record_can_be_kept_it_says_so(shop: Shop, breaks: Callable[[int], None]) -> None:
    shop.create(ORDERS)
    path = shop.file()
    (shop.home / "no-folder").write_text("")
    breaks(3)
    env = {"XDG_STATE_HOME": str(shop.home / "no-folder")}
    said = shop.append(path, fails=1, **env)
    breaks(0)
    assert "note: no record of this run is kept in" in said
    assert "(rows after them that are stored come twice then)" in said
    assert "rows appended" in shop.append(path, "--skip-rows", str(stored_of(said)), **env)
    assert set(shop.ids()) == set(range(ROWS))


def test_what_broke_off_before_its_first_batch_has_sent_nothing(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.create(ORDERS)
    path = shop.file()
    check = Sending.check_all

    def check_and_change(sending: Sending) -> int:
        found = check(sending)
        with path.open("a") as file:
            file.write("20000,one more\n")
        return found

    monkeypatch.setattr(Sending, "check_all", check_and_change)
    said = shop.append(path, fails=1)
    assert "rows.csv was changed while it was read. Nothing was sent\n" in said
    assert shop.ids() == []
    monkeypatch.undo()
    shop.append(path)


def test_a_file_that_changes_while_it_is_sent_ends_the_run(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.create(ORDERS)
    path = shop.file(200_000)
    send_all = Sending.send_all

    def send_and_cut(sending: Sending, total: int, skipped_rows: int) -> None:
        def send(batch: pa.RecordBatch) -> None:
            sending.send(batch)
            os.truncate(path, 1_000_000)

        changed = {**sending.__dict__, "send": send}
        send_all(Sending(**changed), total, skipped_rows)

    monkeypatch.setattr(Sending, "send_all", send_and_cut)
    said = shop.append(path, fails=1)
    assert "rows.csv was changed while it was read. The first" in said
    assert len(shop.ids()) < 200_000


# ---- tables whose rows can be sent twice ----


def test_a_keyed_table_takes_the_file_again(shop: Shop, breaks: Callable[[int], None]) -> None:
    shop.create(f"{ORDERS}, PRIMARY KEY (id)", "--buckets", "2")
    path = shop.file()
    breaks(80)
    said = shop.append(path, fails=1)
    breaks(0)
    stored = stored_of(said)
    assert 0 < stored < len(shop.keys()) < ROWS
    assert f"Go on with: sluice append {shop.table} {path} --skip-rows {stored}\n" in said
    assert "20,000 rows upserted" in shop.append(path), "it need not be told how to go on"
    assert shop.keys() == list(range(ROWS))
    assert "15,000 rows upserted in" in shop.append(path, "--skip-rows", "5000")
    said = shop.run("delete", str(shop.table), str(path), "--skip-rows", "15000")
    assert "5,000 deletes sent in" in said
    assert shop.keys() == list(range(15_000))
    assert shop.records == []


def test_where_a_row_that_comes_twice_counts_twice() -> None:
    columns = {"id": t.INT.not_null()}
    assert _comes_twice(table_info(columns))
    assert not _comes_twice(table_info(columns, primary_key=["id"]))
    for engine, twice in (("aggregation", True), ("versioned", False)):
        merged = {"table.merge-engine": engine}
        assert _comes_twice(table_info(columns, primary_key=["id"], properties=merged)) is twice


# ---- memory ----


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_a_large_file_takes_no_more_memory_than_a_small_one(tmp_path: Path, name: str) -> None:
    """A row group of 160 MB is no more than one of 10."""
    code = """
import resource, sys
from pathlib import Path
import pyarrow as pa
from sluice.cli.files import rows_of
wanted = pa.schema([("id", pa.int64()), ("note", pa.string())])
for name in sys.argv[1:]:
    rows = rows_of(Path(name), wanted)
    rows.read_through()
    count = sum(batch.num_rows for batch in rows.batches())
    print(count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""
    paths = []
    for rows in (100_000, 1_500_000):
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
        [sys.executable, "-c", code, *map(str, paths)], capture_output=True, text=True, check=True
    )
    small, large = (line.split() for line in done.stdout.splitlines())
    assert (small[0], large[0]) == ("100000", "1500000")
    assert int(large[1]) - int(small[1]) < 48, done.stdout
